// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// A wait is overdue after the budget; a holder that shows life is left alone for half a
// TTL after that.
//
// mutation: look that sees no life in a renewal makes three cases fail; overdueAt
// without life four.
func TestWhenAWaitForABusyLockIsOverdue(t *testing.T) {
	start := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	owner := lockmgr.Owner{Token: "p1.a", Ends: start.Add(20 * time.Second)}
	p := policy.Defaults().RunLock // a budget of 3 s, a TTL of 30 s
	for name, c := range map[string]struct {
		policy func(*policy.RunLock)
		then   func(b *busyWait, run *v1alpha1.WorkflowRun)
		want   time.Duration // after start
	}{
		"no sign of life":                  {nil, nil, 3 * time.Second},
		"no budget: a second all the same": {func(p *policy.RunLock) { p.Wait.Budget = 0 }, nil, time.Second},
		"the same lock, looked at again": {nil, func(b *busyWait, run *v1alpha1.WorkflowRun) {
			b.look(run, lockmgr.Owner{Token: "p1.a", Ends: owner.Ends.Add(200 * time.Millisecond)}, start.Add(2*time.Second))
		}, 3 * time.Second},
		"it was renewed": {nil, func(b *busyWait, run *v1alpha1.WorkflowRun) {
			b.look(run, lockmgr.Owner{Token: "p1.a", Ends: owner.Ends.Add(10 * time.Second)}, start.Add(2*time.Second))
		}, 17 * time.Second},
		"renewed little by little": {nil, func(b *busyWait, run *v1alpha1.WorkflowRun) {
			for i := 1; i <= 3; i++ {
				b.look(run, lockmgr.Owner{Token: "p1.a", Ends: owner.Ends.Add(time.Duration(i) * 400 * time.Millisecond)}, start.Add(time.Duration(i)*time.Second))
			}
		}, 18 * time.Second},
		"another has it": {nil, func(b *busyWait, run *v1alpha1.WorkflowRun) {
			b.look(run, lockmgr.Owner{Token: "p2.b", Ends: owner.Ends}, start.Add(2*time.Second))
		}, 17 * time.Second},
		"another wrote the run": {nil, func(b *busyWait, run *v1alpha1.WorkflowRun) {
			run.ResourceVersion = "8"
			b.look(run, owner, start.Add(2*time.Second))
		}, 17 * time.Second},
		"this process wrote the run": {nil, func(b *busyWait, run *v1alpha1.WorkflowRun) {
			run.ResourceVersion = "8"
			b.looked(run)
			b.look(run, owner, start.Add(2*time.Second))
		}, 3 * time.Second},
		"a user edited the run": {nil, func(b *busyWait, run *v1alpha1.WorkflowRun) {
			run.ResourceVersion, run.Generation = "8", 2
			b.look(run, owner, start.Add(2*time.Second))
		}, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Generation: 1}}
			var b busyWait
			b.look(run, owner, start)
			b.looked(run)
			if c.then != nil {
				c.then(&b, run)
			}
			p := p
			if c.policy != nil {
				c.policy(&p)
			}
			if got := b.overdueAt(p).Sub(start); got != c.want {
				t.Errorf("overdue after %s, want %s", got, c.want)
			}
		})
	}
}

// mutation: holderText that does not compare processes, or text that promises an end to a lock
// without a TTL, makes a case fail.
func TestWhatIsSaidOfABusyLock(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC))
	ends := at.Add(time.Minute)
	status := &v1alpha1.WorkflowRunStatus{Lock: &v1alpha1.RunLockStatus{LeaseID: "p1.a", Holder: "operator-1", AcquiredAt: &at}}
	for name, c := range map[string]struct {
		status *v1alpha1.WorkflowRunStatus
		owner  lockmgr.Owner
		want   string
	}{
		"the last writer":          {status, lockmgr.Owner{Token: "p1.a", Ends: ends}, "held by operator-1 since 2026-01-02T10:00:00Z; me waits for it since 2026-01-02T10:00:30Z; if its holder is gone, it ends at 2026-01-02T10:01:00Z at the latest; it is tried again every 350-650ms"},
		"its process":              {status, lockmgr.Owner{Token: "p1.b", Ends: ends}, "held by operator-1; me waits"},
		"another process":          {status, lockmgr.Owner{Token: "p2.c", Ends: ends}, "held by a process that did not write the run before; me waits"},
		"nobody has written":       {nil, lockmgr.Owner{Token: "p2.c", Ends: ends}, "held by a process that did not write the run before; me waits"},
		"a key made by hand":       {status, lockmgr.Owner{Token: "mine"}, "held by a key that no operator wrote; me waits for it since 2026-01-02T10:00:30Z; it has no TTL, so it does not end by itself: if nobody works on the run, delete the key {run:u1}:lock in Redis; it is tried"},
		"whose it is is not known": {status, lockmgr.Owner{}, "held by another process; me waits for it since 2026-01-02T10:00:30Z; it is tried"},
	} {
		t.Run(name, func(t *testing.T) {
			run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{UID: types.UID("u1")}, Status: c.status}
			b := busyWait{since: at.Add(30 * time.Second)}
			if got := b.text(run, c.owner, "me", policy.Defaults().RunLock.BusyRetry); !strings.Contains(got, c.want) {
				t.Errorf("%q does not say %q", got, c.want)
			}
		})
	}
}

// The policy has a say in waits for busy locks alone; all others are spread otherwise, or exact.
//
// mutation: Wait that draws both with rand, or both with spread, makes this fail.
func TestOnlyWaitsForBusyLocksAreThePolicys(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	l := New(Options{Clock: clk, Rand: func() float64 { return 0 }, Spread: func() float64 { return 0.5 }})
	s := l.Session(&State{}, types.NamespacedName{}, "uid", policy.Defaults())
	if got := s.Wait(bus.ClassLockBusy); got != 350*time.Millisecond {
		t.Errorf("a busy lock: %s, want the least of 350-650ms", got)
	}
	if got := s.Wait(bus.ClassStoreUnavailable); got != BreakerPause {
		t.Errorf("Redis: %s, want exactly %s", got, BreakerPause)
	}
}

// lineOf has a busy lock, and the last request for it.
type lineOf struct {
	last lockmgr.Request
	left time.Duration // that Leave had; 0: none
}

func (l *lineOf) Acquire(_ context.Context, r lockmgr.Request) (*lockmgr.Lease, error) {
	l.last = r
	return nil, &lockmgr.BusyError{Owner: lockmgr.Owner{Token: "p1.a"}}
}

func (l *lineOf) Leave(ctx context.Context, of func(string) bool) {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && of("mine") && !of("other") {
		l.left = time.Until(deadline)
	}
}

// mutation: Leave that has the caller's time, or no end, makes this fail.
func TestPlacesInLineAreGivenUpInAShortTimeOfTheirOwn(t *testing.T) {
	line := &lineOf{}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	New(Options{Locks: line}).Leave(over, func(uid types.UID) bool { return uid == "mine" })
	if line.left <= 0 || line.left > leaveTimeout {
		t.Errorf("it had %s", line.left)
	}
}

// mutation: no pause; one as long as the policy's, or longer; one for a run that is another by now,
// or that was called; a call that is not noted, or counts for ever; a lock that is hoped for though
// it was busy, or its store failed.
func TestABusyLockIsNotTriedForEachResult(t *testing.T) {
	clk := clocktesting.NewFakeClock(epoch)
	line := &lineOf{}
	l := New(Options{Clock: clk, Locks: line, Wake: func(types.NamespacedName) {}, Rand: func() float64 { return 0 }, NewID: func() string { return "" }, Metrics: lockmgr.NewMetrics(prometheus.NewRegistry(), nil)})
	for retry, want := range map[time.Duration]time.Duration{10 * time.Second: busyPause, 20 * time.Millisecond: 10 * time.Millisecond} {
		run, edited := bare(), bare()
		run.ResourceVersion, edited.ResourceVersion = "7", "8"
		s := l.Session(&State{}, types.NamespacedName{}, "uid", policy.Effective{})
		s.policy.RunLock.BusyRetry.Delay = retry
		if at := s.NotBefore(run); !at.IsZero() || !s.Hopeful() {
			t.Errorf("a lock that was not busy: %s, hopeful %t", at, s.Hopeful())
		}
		for range 2 { // when it is found busy for the first time, and later
			clk.Step(time.Second)
			_, _ = s.Without(run, s.Take(t.Context(), run, "result"))
			s.RetryAt(t.Context(), run, clk.Now(), retry)
			if got := s.NotBefore(run).Sub(clk.Now()); got != want {
				t.Errorf("retries of %s: after %s, want %s", retry, got, want)
			}
		}
		if at := s.NotBefore(edited); !at.IsZero() {
			t.Errorf("another version: %s", at)
		}
		if s.Hopeful() {
			t.Error("a lock that was busy is hoped for")
		}
		line.last.Wake()
		if at := s.NotBefore(run); !at.IsZero() {
			t.Errorf("it was called: %s", at)
		}
		_ = s.Take(t.Context(), run, "result")
		if at := s.NotBefore(run); at.IsZero() {
			t.Error("a call counts for ever")
		}
	}
	if fresh := l.Session(&State{}, types.NamespacedName{}, "uid", policy.Effective{}); !l.Breaker.Trip(errDown) || fresh.Hopeful() {
		t.Error("a lock whose store failed is hoped for")
	}
}

// A run of the canary whose arm is not pinned yet says that it waits when the baseline would have
// it say so, and looks again at that moment; the retries are the candidate's.
//
// mutation: Without, or RetryAt, that asks the run's own policy makes this fail.
func TestARunWhoseArmIsNotPinnedSaysThatItWaitsWhenTheBaselineWould(t *testing.T) {
	for name, c := range map[string]struct{ own, baseline, want time.Duration }{
		"a patient candidate":   {time.Minute, 10 * time.Second, 10 * time.Second},
		"an impatient one":      {2 * time.Second, 10 * time.Second, 10 * time.Second},
		"its arm is pinned now": {20 * time.Second, 0, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			clk, run := clocktesting.NewFakeClock(epoch), bare()
			l := New(Options{Clock: clk, Locks: &lineOf{}, Wake: func(types.NamespacedName) {}, NewID: func() string { return "" }, Metrics: lockmgr.NewMetrics(prometheus.NewRegistry(), nil)})
			e := policy.Defaults()
			e.RunLock.Wait.Budget = c.own
			if c.baseline > 0 {
				baseline := e.RunLock
				baseline.Wait.Budget, e.Untried = c.baseline, &baseline
			}
			s := l.Session(&State{}, types.NamespacedName{}, "uid", e)
			overdue := func() bool {
				lock, _ := s.Without(run, s.Take(t.Context(), run, "reconcile"))
				return lock.Overdue
			}
			if overdue() {
				t.Error("it says at once that it waits")
			}
			if at := s.RetryAt(t.Context(), run, clk.Now(), time.Hour).Sub(epoch); at != c.want {
				t.Errorf("it looks again after %s; want %s", at, c.want)
			}
			if clk.Step(c.want - time.Millisecond); overdue() {
				t.Errorf("it says before %s that it waits", c.want)
			}
			if clk.Step(time.Millisecond); !overdue() {
				t.Errorf("it does not say after %s that it waits", c.want)
			}
		})
	}
}
