// SPDX-License-Identifier: Apache-2.0

// Command operator stands for the manager in a test of images: it prints a version, or answers
// on livez, unless its mode begins with "dies".
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
)

var mode string // set by the linker

func main() {
	version := flag.Bool("version", false, "")
	probes := flag.String("health-probe-bind-address", "", "")
	kubeconfig := flag.String("kubeconfig", "", "")
	for _, ignored := range []string{"metrics-bind-address", "nats-url", "redis-addrs"} {
		flag.String(ignored, "", "")
	}
	flag.Parse()
	if *version {
		fmt.Println("manager", mode)
		return
	}
	if _, err := os.ReadFile(*kubeconfig); err != nil || strings.HasPrefix(mode, "dies") {
		log.Fatalf("no kubeconfig (%v), or mode %q", err, mode)
	}
	http.HandleFunc("/livez", func(http.ResponseWriter, *http.Request) {})
	log.Fatal(http.ListenAndServe(*probes, nil))
}
