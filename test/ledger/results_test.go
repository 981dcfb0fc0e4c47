// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/book"
)

const (
	// seedEnv repeats the plan of a test that failed.
	seedEnv = "LEDGER_SEED"
	// problemsShown bounds the output of a test that failed.
	problemsShown = 20
)

// TestEveryConfirmedResultIsAppliedExactlyOnce is the ledger at a size for every day.
//
// mutation: intake.accept that settles a result before it puts it into the inbox loses results at
// the kills; judge of internal/lifecycle that calls a result of an attempt that ended Applied has
// effects twice. Both make this fail.
func TestEveryConfirmedResultIsAppliedExactlyOnce(t *testing.T) {
	s := book.Size{Runs: 40, Steps: 16, Workers: 24, Patience: 3 * time.Minute, Slow: time.Second, Late: 2 * time.Second}
	runLedger(t.Context(), t, s, func(seed uint64) []fault {
		return shuffled(seed, operatorKilled, natsKilled, natsRestarted, bothKilled)
	}, v1alpha1.LockPolicySpec{RunLock: shortLock()})
}

// TestEveryConfirmedResultIsAppliedExactlyOnceAhead is the same with runs that are ahead of their
// status.
//
// mutation: Session.LooksFirst of package ahead that is always false dispatches attempts twice
// after the kills; Batch.Keep that settles loses results.
func TestEveryConfirmedResultIsAppliedExactlyOnceAhead(t *testing.T) {
	s := book.Size{Runs: 40, Steps: 16, Workers: 24, Patience: 3 * time.Minute, Slow: time.Second, Late: 2 * time.Second}
	runLedger(t.Context(), t, s, func(seed uint64) []fault {
		return shuffled(seed, operatorKilled, operatorKilled, natsKilled, operatorStopped, bothKilled)
	}, v1alpha1.LockPolicySpec{RunLock: shortLock(), Checkpoint: ahead()})
}

// ahead is the mode in which runs are ahead of their status.
func ahead() v1alpha1.CheckpointPolicy {
	return v1alpha1.CheckpointPolicy{Mode: v1alpha1.CheckpointCoalesced}
}

// BenchmarkLedgerAhead is the ledger in full with runs that are ahead of their status.
func BenchmarkLedgerAhead(b *testing.B) {
	for range b.N {
		runLedger(b.Context(), b, fullSize(), allFaults, v1alpha1.LockPolicySpec{Checkpoint: ahead()})
	}
}

// BenchmarkLedger is the ledger in full: 20,000 results of 500 runs.
func BenchmarkLedger(b *testing.B) {
	for range b.N {
		runLedger(b.Context(), b, fullSize(), allFaults, v1alpha1.LockPolicySpec{})
	}
}

func fullSize() book.Size {
	return book.Size{Runs: 500, Steps: 32, Workers: 128, Patience: 30 * time.Minute, Slow: 10 * time.Second, Late: 20 * time.Second}
}

func allFaults(seed uint64) []fault {
	return shuffled(seed, operatorKilled, operatorKilled, operatorKilled, operatorKilled, operatorPaused, operatorPaused,
		operatorStopped, natsKilled, natsKilled, natsRestarted, natsRestarted, bothKilled, bothKilled)
}

// shortLock frees the runs of a killed operator soon.
func shortLock() v1alpha1.RunLockPolicy {
	interval, margin := int64(900), int64(2000)
	return v1alpha1.RunLockPolicy{
		TTLSeconds: 5,
		Renewal:    v1alpha1.RenewalPolicy{IntervalMillis: &interval, TimeoutMillis: 500, SafetyMarginMillis: &margin},
	}
}

// runLedger runs one plan to its end and judges it.
func runLedger(ctx context.Context, tb testing.TB, s book.Size, faults func(seed uint64) []fault, policy v1alpha1.LockPolicySpec) {
	tb.Helper()
	w := newWorld(ctx, tb)
	seed := w.seed()
	p, l := book.MakePlan(seed, s), book.New()
	w.policy(ctx, policy)
	h := w.follow(ctx, func(was, next *v1alpha1.WorkflowRun, _ time.Time) { l.See(was, next) })
	judged := false
	defer func() {
		if tb.Failed() && !judged {
			verdict(tb, l, p, w.runs(context.WithoutCancel(ctx))) // why the end did not come
		}
	}()
	o := w.startOperator(ctx, "operator")
	c := book.Hire(ctx, w.js, w.names, w.namespace, p, l)
	tb.Cleanup(c.Close)
	begin := time.Now()
	w.create(ctx, p.Objects())
	w.strike(ctx, o, l, s, faults(seed))
	awaitFinished(ctx, tb, h, s.Patience, s.Runs)
	took := time.Since(begin)
	c.Close()
	w.expectSettled(ctx, s.Patience)
	w.expectDeadLetters(ctx, 0)
	finals := w.runs(ctx)
	awaitVersions(ctx, tb, h, s.Patience, finals)
	judged = true
	verdict(tb, l, p, finals)
	report(ctx, w, l, h, o, took)
}

// verdict fails the test with all that the judge found.
func verdict(tb testing.TB, l *book.Ledger, p book.Plan, finals []v1alpha1.WorkflowRun) {
	tb.Helper()
	wrong := l.Verdict(p, finals)
	for _, problem := range wrong[:min(len(wrong), problemsShown)] {
		tb.Error(problem)
	}
	if len(wrong) > problemsShown {
		tb.Errorf("and %d more", len(wrong)-problemsShown)
	}
}

// report says what was survived.
func report(ctx context.Context, w *world, l *book.Ledger, h *book.History, o *operator, took time.Duration) {
	w.tb.Helper()
	stored, err := w.stream(ctx, w.names.ResultsStream())
	if err != nil {
		w.tb.Fatal(err)
	}
	delivered, err := w.deliveries(ctx)
	if err != nil {
		w.tb.Fatal(err)
	}
	f := l.Figures()
	runs, writes := h.Size()
	w.note("%d results of %d runs in %s, %.0f a second; %d PubAcks, of which %d say duplicate; %d messages stored, with Started; "+
		"%d redeliveries of results, %d of jobs; %d uploads; %d status writes; %d operator kills, %d restarts of NATS",
		f.Answered, runs, took.Round(100*time.Millisecond), float64(f.Answered)/took.Seconds(), f.PubAcks, f.Duplicates,
		stored.LastSeq, delivered-stored.LastSeq, f.Redeliveries, f.Uploads, writes, o.kills, w.nats.restarts)
	if b, ok := w.tb.(*testing.B); ok {
		b.ReportMetric(float64(f.Answered)/took.Seconds(), "results/s")
		b.ReportMetric(float64(delivered-stored.LastSeq), "redeliveries")
	}
}

// seed draws a seed, or takes the one that somebody wants to see again.
func (w *world) seed() uint64 {
	w.tb.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			w.tb.Fatal(err)
		}
	}
	w.note("%s=%d", seedEnv, seed)
	return seed
}

// awaitFinished waits for the end of all runs.
func awaitFinished(ctx context.Context, tb testing.TB, h *book.History, patience time.Duration, count int) {
	tb.Helper()
	await(ctx, tb, patience, "all runs end", func() string {
		switch n, broken := h.Finished(); {
		case broken != "":
			return broken
		case n < count:
			return fmt.Sprintf("%d of %d did", n, count)
		default:
			return ""
		}
	})
}

// awaitVersions waits until the history has seen the given versions.
func awaitVersions(ctx context.Context, tb testing.TB, h *book.History, patience time.Duration, runs []v1alpha1.WorkflowRun) {
	tb.Helper()
	await(ctx, tb, patience, "the watch tells of the last writes", func() string { return h.Has(runs) })
}
