// SPDX-License-Identifier: Apache-2.0

// Command manager is the Syncopate operator: it drives WorkflowRuns. Flags say where NATS and Redis
// are; credentials come from the environment or files, never from flags. See docs/architecture.md
// for the picture.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	_ "time/tzdata" // expressions may name time zones, and the image has no files but the operator

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

func main() {
	var o options
	o.bind(flag.CommandLine)
	logging := zap.Options{}
	logging.BindFlags(flag.CommandLine)
	version := flag.Bool("version", false, "Print the version and exit.")
	page := flag.String("ask", "", "Do nothing but get this address, as https://syncopate-metrics:8443/metrics, until it answers, for a minute at most: 0 if it did. For helm test.")
	flag.Parse()
	if *version {
		fmt.Println("manager", build())
		return
	}
	ctx := ctrl.SetupSignalHandler()
	ctrl.SetLogger(newLogger(ctx, &logging))

	do := func() error { return start(ctx, o, flag.Args()) }
	if *page != "" {
		do = func() error { return ask(ctx, *page) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

// start checks the options and runs the operator until ctx ends. There are no words beside flags:
// the library drops all flags behind the first one.
func start(ctx context.Context, o options, words []string) error {
	if len(words) > 0 {
		return fmt.Errorf("%q is no flag; switches are --name=true", words[0])
	}
	if err := o.complete(os.Getenv); err != nil {
		return err
	}
	if o.memoryGoal > 0 {
		debug.SetMemoryLimit(o.memoryGoal)
	}
	ctrl.Log.WithName("setup").Info("Starting", "version", build().Version, "commit", build().Commit, "holder", o.holder, "nats", o.nats.redactedURL(), "redis", o.redis.addrs, "memoryGoal", o.memoryGoal)
	return run(ctx, o)
}
