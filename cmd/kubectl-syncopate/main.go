// SPDX-License-Identifier: Apache-2.0

// Command kubectl-syncopate is a kubectl plugin: kubectl syncopate shows workflow runs as trees,
// says why a run stands still, and lists and redrives dead letters. See docs/kubectl-plugin.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"golang.org/x/term"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/buildinfo"
	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/plugin"
)

// version and commit are stamped by the build.
var version, commit string

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
	exitUnknown = 3 // of check, audit and verify: it could not tell
)

func main() { os.Exit(run()) }

func run() int {
	redis.SetLogger(silent{}) // its errors come back from the calls
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := plugin.NewCommand(plugin.Env{
		Out: os.Stdout, Err: os.Stderr, Color: colors(), Clock: clock.RealClock{}, Getenv: os.Getenv, Build: buildinfo.Of(version, commit),
	})
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "error:", plugin.OneLine(err))
	if _, usage := errors.AsType[*plugin.UsageError](err); usage {
		return exitUsage
	}
	if found, ok := errors.AsType[*plugin.CheckError](err); ok && found.Outcome == check.Unknown {
		return exitUnknown
	}
	if found, ok := errors.AsType[*plugin.AuditError](err); ok && found.Outcome == check.Unknown {
		return exitUnknown
	}
	if found, ok := errors.AsType[*plugin.VerifyError](err); ok && found.Wrong == 0 {
		return exitUnknown
	}
	return exitFailure
}

// colors follows https://no-color.org.
func colors() bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(os.Stdout.Fd()))
}

// silent keeps the Redis client from writing to stderr by itself.
type silent struct{}

// Printf does nothing.
func (silent) Printf(context.Context, string, ...any) {}
