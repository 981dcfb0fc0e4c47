// SPDX-License-Identifier: Apache-2.0

// Command worker-conformance checks whether a worker keeps the protocol; docs/workers.md
// is its manual.
//
//	worker-conformance [flags] -- python3 worker.py demo.conformance    starts NATS and the worker, and does all checks
//	worker-conformance -nats URL [flags]                                 the worker runs already: checks that stop it are skipped
//
// It prints a line for every check and ends with 0 if none failed, 1 if one did, 2 if the checks
// could not be done.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
	workers "github.com/syncopate-dev/syncopate/test/workers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const (
	exitFailed = 1 // a check failed
	exitUnable = 2
)

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	c, command, err := parse(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(errs, "worker-conformance:", err)
		return exitUnable
	}
	outcomes, err := check(ctx, c, command, out)
	bad := count(outcomes, workers.Failed)
	fmt.Fprintf(out, "%d ok, %d failed, %d skipped\n", count(outcomes, workers.OK), bad, count(outcomes, workers.Skipped))
	switch {
	case err != nil:
		fmt.Fprintln(errs, "worker-conformance:", err)
		return exitUnable
	case bad > 0:
		return exitFailed
	}
	return 0
}

func count(outcomes []workers.Outcome, v workers.Verdict) int {
	n := 0
	for _, o := range outcomes {
		if o.Verdict == v {
			n++
		}
	}
	return n
}

// errUsage is returned for arguments that make no test.
var errUsage = errors.New("give -nats, the worker's command, or both")

// parse reads the command line; command is what follows the flags.
func parse(args []string, errs io.Writer) (c workers.Config, command []string, err error) {
	f := flag.NewFlagSet("worker-conformance", flag.ContinueOnError)
	f.SetOutput(errs)
	f.StringVar(&c.URL, "nats", "", "`URL` of a NATS server with JetStream, with all rights; default: a server of its own, which it also restarts")
	f.StringVar(&c.Prefix, "prefix", protocol.DefaultPrefix, "first token of all subjects")
	f.StringVar(&c.Topic, "topic", workers.DefaultTopic, "the worker's test topic")
	f.IntVar(&c.Concurrency, "concurrency", workers.DefaultConcurrency, "how many jobs the worker does at the same time")
	f.DurationVar(&c.AckWait, "ack-wait", workers.DefaultAckWait, "of the topic's consumer; 30s for a worker that pings every 10 s whatever the consumer says")
	f.DurationVar(&c.Patience, "patience", workers.DefaultPatience, "how long a check waits for what must happen")
	f.BoolVar(&c.References, "references", false, "the worker has to store outputs over 64 KiB: a final failure TooLarge in their place is not enough")
	f.BoolVar(&c.Reset, "reset", false, "delete the streams of this prefix if there are any")
	skip := f.String("skip", "", "checks to leave out, with commas: "+strings.Join(workers.IDs(), ","))
	if err := f.Parse(args); err != nil {
		return c, nil, err
	}
	if *skip != "" {
		c.Skip = strings.Split(*skip, ",")
	}
	if c.URL == "" && f.NArg() == 0 {
		return c, nil, errUsage
	}
	return c, f.Args(), nil
}

// check runs the kit, with a server of its own if none is given.
func check(ctx context.Context, c workers.Config, command []string, out io.Writer) (outcomes []workers.Outcome, err error) {
	if c.URL == "" {
		dir, err := os.MkdirTemp("", "worker-conformance-")
		if err != nil {
			return nil, fmt.Errorf("make directory: %w", err)
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory, and nothing to do about it
		server, err := devenv.StartNATS(dir)
		if err != nil {
			return nil, err
		}
		defer server.Stop()
		c.URL, c.RestartNATS = server.URL(), server.Restart
	}
	var last workers.Process
	if len(command) > 0 {
		starts := func(env ...string) func() (workers.Process, error) {
			return func() (workers.Process, error) {
				p, err := workers.Command{Args: command, Env: append(env, "NATS_URL="+c.URL)}.Start()
				last = p
				return p, err
			}
		}
		c.Start, c.StartHasty = starts(), starts("GRACE_SECONDS=1")
	}
	c.Report = func(o workers.Outcome) {
		fmt.Fprintln(out, o)
		if o.Verdict == workers.Failed && last != nil {
			fmt.Fprintln(out, tail(last.Output()))
		}
	}
	return workers.Run(ctx, c)
}

// shown is how many lines of a worker's output help to understand a failure.
const shown = 5

func tail(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if len(lines) > shown {
		lines = lines[len(lines)-shown:]
	}
	return "        the worker said: " + strings.Join(lines, "\n                         ")
}
