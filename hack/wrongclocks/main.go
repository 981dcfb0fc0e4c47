// SPDX-License-Identifier: Apache-2.0

// Command wrongclocks writes what go build -overlay takes for a program whose wall clock a test can
// make wrong, and prints its path:
//
//	go build -overlay "$(go run ./hack/wrongclocks DIRECTORY)" ./cmd/manager
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/syncopate-dev/syncopate/internal/testenv/clocks"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "wrongclocks:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one directory, have %q", args)
	}
	goroot, err := exec.CommandContext(context.Background(), "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find Go: %w", err)
	}
	path, err := clocks.Overlay(args[0], strings.TrimSpace(string(goroot)))
	if err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	fmt.Println(path)
	return nil
}
