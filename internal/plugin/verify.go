// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/verify"
)

const verifyHelp = `Play runs on an installation and look whether all guarantees hold: each result that NATS confirmed has one effect, each job is dispatched once,
fences grow, no more runs than the limit are admitted.

It makes a namespace, a LockPolicy and a topic of its own, is the workers of that topic (slow ones, ones that forget to acknowledge, ones that
answer twice), reads the status of the runs as a watch tells it, and takes away what it made. It needs NATS as workers have it. For a NATS inside
the cluster:

  kubectl -n nats port-forward svc/nats 4222:4222

Faults are for installations that bear them, each by its own flag. A seed plays the same again. docs/verify.md says what each check means.

Exit codes: 0 all held; 1 something did not, or it could not be tried; 3 nothing was wrong, and something could not be told; 2 a command line
that makes no sense.`

// VerifyError says that not all guarantees held, or could be told.
type VerifyError struct {
	Wrong, Untold int
	Namespace     string
}

func (e *VerifyError) Error() string {
	if e.Wrong > 0 {
		return fmt.Sprintf("%d checks failed; kubectl syncopate support-bundle writes what a bug report needs", e.Wrong)
	}
	return fmt.Sprintf("%d checks could not be told", e.Untold)
}

type verifyFlags struct {
	format, operator, junit               string
	runs                                  int
	seed                                  uint64
	timeout, bound                        time.Duration
	keep                                  bool
	restartWorker, restartOperator, flush bool
	redis                                 redisFlags
}

func verifyCommand(a *app) *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use: "verify [--runs N] [FAULT]...", Short: "Play runs on an installation and look whether all guarantees hold", Long: verifyHelp, Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), a) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.runs, "runs", 20, "How many runs, 1 to 1000. Each has 8 steps, and 10 results.")
	flags.Uint64Var(&f.seed, "seed", 1, "What workers do follows from it.")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "Time for all runs to end.")
	flags.DurationVar(&f.bound, "bound", verify.Bound, "How far two results may be apart once a fault is over. More is for a machine that is busy with other work.")
	flags.BoolVar(&f.keep, "keep", false, "Leave namespace, runs and LockPolicy.")
	flags.StringVar(&f.junit, "junit", "", "File to write a JUnit report to.")
	flags.StringVarP(&f.format, "output", "o", formatTable, "Format: table or json.")
	flags.StringVar(&f.operator, "operator-namespace", operatorNamespace, "Namespace of the operator.")
	flags.BoolVar(&f.restartWorker, string(verify.RestartWorker), false, "Fault: end all workers of verify in the middle of their jobs.")
	flags.BoolVar(&f.restartOperator, string(verify.RestartOperator), false, "Fault: delete a pod of the operator, at once.")
	flags.BoolVar(&f.flush, string(verify.FlushRedis), false, "Fault: delete all data in Redis. Refused where Redis has data of others.")
	a.nats.bind(cmd)
	f.redis.bind(cmd, redisByEnv)
	return cmd
}

func (f *verifyFlags) check() error {
	if f.runs < 1 || f.runs > 1000 {
		return usagef("--runs %d: need 1 to 1000", f.runs)
	}
	if f.timeout <= 0 {
		return usagef("--timeout %s: need more than 0", f.timeout)
	}
	if f.bound <= 0 {
		return usagef("--bound %s: need more than 0", f.bound)
	}
	return output(f.format, formatTable, formatJSON)
}

func (f *verifyFlags) run(ctx context.Context, a *app) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	o := verify.Options{
		Names: a.names(), Operator: f.operator, Clock: clock.RealClock{}, Say: a.note, Runs: f.runs, Seed: f.seed, Patience: f.timeout, Bound: f.bound, Keep: f.keep, Faults: f.faults(),
	}
	if o.Kube, err = a.watching(); err != nil {
		return err
	}
	if f.flush {
		if err := f.flushes(ctx, a, &o); err != nil {
			return err
		}
		defer func() { _ = o.Redis.Close() }()
	}
	nc, _, err := bus.Dial(ctx, a.nats.config(a.Getenv))
	if err != nil {
		return fmt.Errorf("NATS: %w", err)
	}
	defer nc.Close()
	if o.JS, err = jetstream.New(nc); err != nil {
		return fmt.Errorf("NATS: %w", err)
	}
	report, err := verify.Run(ctx, o)
	if report.Checks == nil {
		return err
	}
	return errors.Join(f.tell(a, report), err)
}

// flushes sets the Redis whose data is to be deleted, if it is this cluster's as far as it and the
// NATS beside it tell.
func (f *verifyFlags) flushes(ctx context.Context, a *app, o *verify.Options) error {
	nats, err := bus.Connect(ctx, a.nats.config(a.Getenv))
	if err != nil {
		return fmt.Errorf("NATS: %w", err)
	}
	defer nats.Close(context.WithoutCancel(ctx))
	reached, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	nats.AwaitConnected(reached)
	if err := ours(ctx, o.Kube, nats); errors.Is(err, errOtherCluster) { // a user of workers may not look at streams
		return err
	}
	config, err := f.redis.config(a.Getenv)
	if err != nil {
		return err
	}
	if o.Redis, err = lockmgr.NewClient(config); err != nil {
		return fmt.Errorf("configure Redis: %w", err)
	}
	if err := oursIsRedis(ctx, o.Kube, store.New(o.Redis, store.Options{Explain: lockmgr.Explain}), o.Clock); err != nil {
		return errors.Join(err, o.Redis.Close())
	}
	return nil
}

func (f *verifyFlags) faults() (all []verify.Fault) {
	for _, one := range []struct {
		wanted bool
		fault  verify.Fault
	}{{f.restartWorker, verify.RestartWorker}, {f.restartOperator, verify.RestartOperator}, {f.flush, verify.FlushRedis}} {
		if one.wanted {
			all = append(all, one.fault)
		}
	}
	return all
}

// tell writes the report, and returns an error unless all held.
func (f *verifyFlags) tell(a *app, r verify.Report) error {
	var err error
	if f.format == formatJSON {
		err = a.writeJSON(r)
	} else {
		err = r.Table(a.Out)
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if f.junit != "" {
		if err := writeFile(f.junit, r.JUnit); err != nil {
			return err
		}
	}
	if wrong, untold := r.Count(); wrong+untold > 0 {
		return &VerifyError{Wrong: wrong, Untold: untold, Namespace: r.Namespace}
	}
	return nil
}

// writeFile makes a file, or writes it anew.
func writeFile(name string, write func(io.Writer) error) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("make the file: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return write(file)
}

// watching is a client of the API server that also watches.
func (a *app) watching() (client.WithWatch, error) {
	config, _, err := a.Config()
	if err != nil {
		return nil, err
	}
	scheme, mapper, err := reads.Kinds()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	return c, nil
}
