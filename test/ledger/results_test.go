// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
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
	s := size{runs: 40, steps: 16, workers: 24, patience: 3 * time.Minute, slow: time.Second, late: 2 * time.Second}
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
	s := size{runs: 40, steps: 16, workers: 24, patience: 3 * time.Minute, slow: time.Second, late: 2 * time.Second}
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

func fullSize() size {
	return size{runs: 500, steps: 32, workers: 128, patience: 30 * time.Minute, slow: 10 * time.Second, late: 20 * time.Second}
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
func runLedger(ctx context.Context, tb testing.TB, s size, faults func(seed uint64) []fault, policy v1alpha1.LockPolicySpec) {
	tb.Helper()
	w := newWorld(ctx, tb)
	seed := w.seed()
	p, l := makePlan(seed, s), newLedger()
	w.policy(ctx, policy)
	h := w.follow(ctx, func(was, next *v1alpha1.WorkflowRun, _ time.Time) { l.see(was, next) })
	judged := false
	defer func() {
		if tb.Failed() && !judged {
			verdict(tb, l, p, w.runs(context.WithoutCancel(ctx))) // why the end did not come
		}
	}()
	o := w.startOperator(ctx, "operator")
	c := w.startClerks(ctx, p, l)
	begin := time.Now()
	w.create(ctx, p.objects())
	w.strike(ctx, o, l, s, faults(seed))
	h.awaitFinished(ctx, tb, s.patience, s.runs)
	took := time.Since(begin)
	c.close()
	w.expectSettled(ctx, s.patience)
	w.expectDeadLetters(ctx, 0)
	finals := w.runs(ctx)
	h.awaitVersions(ctx, tb, s.patience, finals)
	judged = true
	verdict(tb, l, p, finals)
	report(ctx, w, l, h, o, took)
}

// verdict fails the test with all that the judge found.
func verdict(tb testing.TB, l *ledger, p plan, finals []v1alpha1.WorkflowRun) {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong := slices.Concat(l.strange, judge(account{Plan: p.byName(), Attempts: l.attempts, Effects: l.effects, Finals: finals}))
	if len(l.order) != p.size.results() {
		wrong = append(wrong, fmt.Sprintf("%d attempts were answered, %d were planned", len(l.order), p.size.results()))
	}
	for _, problem := range wrong[:min(len(wrong), problemsShown)] {
		tb.Error(problem)
	}
	if len(wrong) > problemsShown {
		tb.Errorf("and %d more", len(wrong)-problemsShown)
	}
}

// report says what was survived.
func report(ctx context.Context, w *world, l *ledger, h *history, o *operator, took time.Duration) {
	w.tb.Helper()
	stored, err := w.stream(ctx, w.names.ResultsStream())
	if err != nil {
		w.tb.Fatal(err)
	}
	delivered, err := w.deliveries(ctx)
	if err != nil {
		w.tb.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.note("%d results of %d runs in %s, %.0f a second; %d PubAcks, of which %d say duplicate; %d messages stored, with Started; "+
		"%d redeliveries of results, %d of jobs; %d uploads; %d status writes; %d operator kills, %d restarts of NATS",
		len(l.order), len(h.last), took.Round(100*time.Millisecond), float64(len(l.order))/took.Seconds(), l.pubAcks, l.duplicates,
		stored.LastSeq, delivered-stored.LastSeq, l.taken-len(l.attempts), l.uploads, h.writes, o.kills, w.nats.restarts)
	if b, ok := w.tb.(*testing.B); ok {
		b.ReportMetric(float64(len(l.order))/took.Seconds(), "results/s")
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
