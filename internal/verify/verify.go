// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/book"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// steps of each run; a quarter as many attempts fail or ask for a retry.
	steps   = 8
	workers = 12
	// limit of runs that are under way, by the policy that verify makes.
	limit = 6
	// slow is the longest job, late the longest time until a result is said again.
	slow, late = 2 * time.Second, 2 * time.Second
	// Bound is how far two results may be apart once a fault is over, unless it is said otherwise:
	// the longer of a run lock and the AckWait of jobs, 30 s; and 15 s for a take-over, a slow job
	// and an answer that is said late.
	Bound = 45 * time.Second

	look = 200 * time.Millisecond
	// cleanUpLimit bounds what is done after the last run.
	cleanUpLimit = 2 * time.Minute
)

// Options say what is verified, and how.
type Options struct {
	Kube     client.WithWatch
	JS       jetstream.JetStream // as workers have it
	Names    protocol.Names
	Operator string                // the namespace of the operator
	Redis    redis.UniversalClient // only to flush it; nil: it is not
	Clock    clock.WithTicker
	Say      func(format string, values ...any) // what goes on

	Runs     int
	Seed     uint64
	Patience time.Duration // for all runs together
	Bound    time.Duration // how far two results may be apart once a fault is over; usually [Bound]
	Faults   []Fault
	Keep     bool // leave what was made
}

// Run verifies an installation. An error says why it could not; what is wrong with the installation
// is in the report.
func Run(ctx context.Context, o Options) (report Report, err error) {
	t := &trial{Options: o, began: o.Clock.Now()}
	if err := t.faultsPossible(ctx); err != nil {
		return Report{}, err
	}
	if err := t.settle(ctx); err != nil {
		return Report{}, errors.Join(err, t.cleanUp(ctx))
	}
	report, err = t.play(ctx)
	return report, errors.Join(err, t.cleanUp(ctx))
}

// trial is one call of Run.
type trial struct {
	Options
	began time.Time
	name  string // of namespace, policy, class and topic

	plan    book.Plan
	size    book.Size
	ledger  *book.Ledger
	watcher *book.Watcher
	history *book.History
	clerks  *book.Clerks
	fire    context.CancelFunc // ends the clerks where they stand
	done    []Done
}

// play creates the runs, has faults happen, and judges.
func (t *trial) play(ctx context.Context) (Report, error) {
	t.size = book.Size{Runs: t.Runs, Steps: steps, Workers: workers, Topic: t.name, Slow: slow, Late: late}
	t.plan, t.ledger = book.MakePlan(t.Seed, t.size), book.New()
	t.watcher = book.NewWatcher(t.ledger, limit)
	history, stop, err := book.Follow(ctx, t.Kube, t.name, t.watcher.See)
	if err != nil {
		return Report{}, fmt.Errorf("watch runs: %w", err)
	}
	defer stop()
	t.history = history
	t.hire(ctx)
	defer func() { t.fire(); t.clerks.Close() }()
	t.Say("%d runs of %d steps in namespace %s, seed %d", t.Runs, steps, t.name, t.Seed)
	for _, run := range t.plan.Objects() {
		run.Namespace, run.Spec.WorkloadClass = t.name, t.name
		if err := t.Kube.Create(ctx, run); err != nil {
			return Report{}, fmt.Errorf("create run %s: %w", run.Name, err)
		}
	}
	within, cancel := context.WithTimeout(ctx, t.Patience)
	defer cancel()
	t.faults(within)
	if err := t.ended(within); err != nil {
		return Report{}, err
	}
	if err := ctx.Err(); err != nil {
		return Report{}, fmt.Errorf("stopped: %w", err)
	}
	if within.Err() == nil {
		t.clerks.Close()
	}
	return t.judge(ctx)
}

// hire starts workers; they end with fire, or Close.
func (t *trial) hire(ctx context.Context) {
	ctx, t.fire = context.WithCancel(ctx)
	t.clerks = book.Hire(ctx, t.JS, t.Names, t.name, t.plan, t.ledger)
}

// ended waits until all runs ended, or the time is over.
func (t *trial) ended(ctx context.Context) error {
	said := 0
	return t.await(ctx, func() (bool, error) {
		n, broken := t.history.Finished()
		if broken != "" {
			return false, fmt.Errorf("watch runs: %s", broken)
		}
		if n >= said+max(1, t.Runs/4) || n == t.Runs && n > said {
			t.Say("%d of %d runs ended", n, t.Runs)
			said = n
		}
		return n == t.Runs, nil
	})
}

// await asks again and again until something is done or the context is over, which is no error.
func (t *trial) await(ctx context.Context, done func() (bool, error)) error {
	tick := t.Clock.NewTicker(look)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// judge reads the runs as they are stored, and compares.
func (t *trial) judge(ctx context.Context) (Report, error) {
	var list v1alpha1.WorkflowRunList
	if err := t.Kube.List(ctx, &list, client.InNamespace(t.name)); err != nil {
		return Report{}, fmt.Errorf("read runs: %w", err)
	}
	now := t.Clock.Now()
	seen, cancel := context.WithTimeout(ctx, cleanUpLimit)
	defer cancel()
	missing := ""
	if err := t.await(seen, func() (bool, error) { missing = t.history.Has(list.Items); return missing == "", nil }); err != nil {
		return Report{}, err
	}
	if missing != "" {
		return Report{}, fmt.Errorf("the watch did not tell of the last write of run %s", missing)
	}
	runs, writes := t.history.Size()
	f := facts{
		Name: t.name, Seed: t.Seed, Took: t.Clock.Since(t.began), Patience: t.Patience, Bound: t.Bound, Figures: t.ledger.Figures(), HandOvers: t.ledger.HandOvers(list.Items),
		Runs: list.Items, Writes: writes, Watched: runs, Wrong: t.watcher.Wrong(), Done: t.done,
	}
	for i := range f.Done {
		d := &f.Done[i]
		switch {
		case !d.happened():
		case f.unfinished() > 0: // what was to come has not come until now
			d.Stall = t.watcher.StallUntil(d.over, now)
		default:
			d.Stall = t.watcher.Stall(d.over)
		}
	}
	if f.unfinished() == 0 {
		f.Verdict = t.ledger.Verdict(t.plan, list.Items)
	}
	return f.report(), nil
}
