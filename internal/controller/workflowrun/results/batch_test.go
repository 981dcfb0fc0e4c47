// SPDX-License-Identifier: Apache-2.0

package results

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var errTest = errors.New("the test wants it")

func TestRetryDelay(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"an error without a wish":        {errTest, time.Second},
		"a wish deep in the chain":       {fmt.Errorf("a: %w", fmt.Errorf("b: %w", &RetryError{After: 7, Cause: errTest})), 7},
		"a wish in one of several":       {errors.Join(errTest, &RetryError{After: 7, Cause: errTest}), 7},
		"a wish of 0 would make it spin": {&RetryError{Cause: errTest}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := RetryDelay(c.err, time.Second); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func newBatch(spread float64, p policy.Effective, list ...*Pending) *Batch {
	inbox := NewInbox(10, 96<<20)
	x := &Batch{all: &Batches{
		Inbox: inbox, Settler: NewSettler(inbox, uncounted{}), Clock: clocktesting.NewFakeClock(epoch), Spread: func() float64 { return spread },
		Applied:  func(string, time.Duration) {},
		PerWrite: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "per_write", Help: "Applied."}),
	}, run: "uid", apply: list}
	x.Under(p)
	return x
}

// An unusable result becomes a dead letter whatever the verdict: after a crash between the status
// write and the dead letter it is delivered again as a duplicate, and acknowledging it would lose
// its bytes. mutation: nil for duplicates makes this fail.
func TestAnUnusableResultIsNeverAcknowledged(t *testing.T) {
	for _, verdict := range []lifecycle.Verdict{lifecycle.Applied, lifecycle.Duplicate, lifecycle.Stale} {
		fake := &fakeDelivery{}
		x := newBatch(0.5, policy.Effective{}, &Pending{Fact: lifecycle.Result{Rejected: "no JSON"}, Delivery: fake})
		x.Settle(t.Context(), lifecycle.Decision{Verdicts: []lifecycle.Verdict{verdict}}, nil)
		if len(fake.settled) != 1 {
			t.Fatalf("%s: settled %d times", verdict, len(fake.settled))
		}
		if _, ok := errors.AsType[*busresults.PermanentError](fake.settled[0]); !ok {
			t.Errorf("%s: settled with %v", verdict, fake.settled[0])
		}
	}
}

// mutation: a budget for every class, or > for >=, makes this fail.
func TestBatch_GiveBack(t *testing.T) {
	for name, c := range map[string]struct {
		class    string
		failures int
		dead     bool
	}{
		"a failure within the budget":             {bus.ClassPublishFailed, 1, false},
		"the failure that uses the budget up":     {bus.ClassPublishFailed, 2, true},
		"beyond it, its dead letter did not work": {bus.ClassPublishFailed, 9, true},
		"an attempt that nobody knows":            {bus.ClassAhead, 2, true},
		"a busy lock never counts":                {bus.ClassLockBusy, 99, false},
		"nor does Redis":                          {bus.ClassStoreUnavailable, 99, false},
		"nor a full inbox":                        {bus.ClassInboxFull, 99, false},
		"nor a shutdown":                          {bus.ClassShutdown, 99, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newBatch(0.5, policy.Effective{Delivery: policy.Delivery{MaxDeliveries: 3}})
			s := x.GiveBack(&Pending{Failures: c.failures}, time.Second, c.class, errTest)
			dead, ok := errors.AsType[*busresults.PermanentError](s.As)
			if ok != c.dead || (ok && dead.Reason != "DeliveriesExhausted") || !errors.Is(s.As, errTest) {
				t.Errorf("settled as %v", s.As)
			}
			if a, ok := errors.AsType[*RetryError](s.As); !c.dead && (!ok || a.After != time.Second || a.Class != c.class) {
				t.Errorf("settled as %v", s.As)
			}
		})
	}
}

// mutation: Refuse that goes by the policy makes this fail.
func TestBatch_RefuseGoesByItsBudget(t *testing.T) {
	for budget, dead := range map[int]bool{3: true, 4: false} {
		p := &Pending{Failures: 2, Delivery: &fakeDelivery{}}
		newBatch(0.5, policy.Defaults(), p).Refuse(t.Context(), p, errTest, budget)
		if (p.Exhausted != nil) != dead {
			t.Errorf("with a budget of %d the third failure makes a dead letter: %t", budget, !dead)
		}
	}
}

// mutation: no limit, a limit before the jitter, or a shift without a bound makes this fail.
func TestBatch_FailureWaitGrowsUpToThePolicysLimit(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 3: 8 * time.Second, 5: 30 * time.Second, 9999: 30 * time.Second} {
		for r, percent := range map[float64]time.Duration{0: 80, 0.5: 100, 1: 120} {
			x := newBatch(r, policy.Defaults())
			if got, want := x.FailureWait(failures), min(want*percent/100, 30*time.Second); got != want {
				t.Errorf("after %d failures, at %v of the jitter: %s, want %s", failures, r, got, want)
			}
		}
	}
}

// A worker may name any object in its result, also another run's, and what is taken
// over is deleted.
// mutation: TakenOver without Check makes this fail.
func TestOnlyObjectsOfTheirOwnJobsAreTakenOver(t *testing.T) {
	own := protocol.JobID{RunUID: "6f1b1a52-0000-4000-8000-000000000001", Step: "s", Item: "3", Attempt: 1}
	neighbour, step, other := own, own, own
	neighbour.Item, step.Item = "4", protocol.NoItem
	other.RunUID = "6f1b1a52-0000-4000-8000-000000000002"
	result := func(of, named protocol.JobID, status protocol.ResultStatus) *Pending {
		ref := protocol.NewOutputRef(named, []byte(`"x"`))
		return &Pending{Fact: lifecycle.Result{ID: of, Result: protocol.Result{Status: status, OutputRef: &ref}}}
	}
	rejected := result(own, other, protocol.StatusSucceeded)
	rejected.Fact.Rejected = "no JSON"
	large := result(own, own, protocol.StatusSucceeded)
	large.Fact.Result.OutputRef.Size = protocol.MaxPayloadBytes + 1
	x := newBatch(0.5, policy.Effective{},
		result(own, own, protocol.StatusSucceeded),
		result(own, other, protocol.StatusSucceeded), result(own, other, protocol.StatusFailed), rejected,
		result(own, neighbour, protocol.StatusSucceeded), large,
		result(step, step, protocol.StatusSucceeded))
	verdicts := make([]lifecycle.Verdict, x.Len())
	for i := range verdicts {
		verdicts[i] = lifecycle.Applied
	}
	want := []string{protocol.NewOutputRef(own, []byte(`"x"`)).Name}
	if got := x.TakenOver(verdicts); !slices.Equal(got, want) {
		t.Errorf("taken over: %v, want %v", got, want)
	}
	verdicts[0] = lifecycle.Stale
	if got := x.TakenOver(verdicts); len(got) > 0 {
		t.Errorf("of results without effect: %v", got)
	}
}

// The clock of NATS says when a result was stored. Where it is ahead, a latency is 0: one below
// that would take away from the sum of all others.
//
// mutation: a latency below 0 of a result that is settled at once, or of one that was kept, makes
// this fail.
func TestALatencyIsNeverBelowZero(t *testing.T) {
	for name, c := range map[string]struct {
		stored, want time.Duration // after and before now
	}{"by a clock that is ahead": {time.Minute, 0}, "by the same clock": {-3 * time.Second, 3 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			var got []time.Duration
			result := func() *Pending {
				return &Pending{Fact: lifecycle.Result{PublishedAt: epoch.Add(c.stored)}, Delivery: &fakeDelivery{}}
			}
			x := newBatch(0.5, policy.Effective{Name: "shared"}, result())
			x.all.Applied = func(policy string, latency time.Duration) {
				if got = append(got, latency); policy != "shared" {
					t.Errorf("policy %q", policy)
				}
			}
			kept := result()
			kept.Kept = lifecycle.Applied
			x.kept, x.covered = []*Pending{kept}, true
			x.Settle(t.Context(), lifecycle.Decision{Verdicts: []lifecycle.Verdict{lifecycle.Applied}}, nil)
			if len(got) != 2 || got[0] != c.want || got[1] != c.want {
				t.Errorf("latencies %v; want %s twice", got, c.want)
			}
		})
	}
}
