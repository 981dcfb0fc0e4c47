// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// continuing is a request of a policy that goes on, which counts how often it was told
// that something changed.
func continuing() (Request, *atomic.Int64) {
	told := &atomic.Int64{}
	r := request()
	r.Policy.Renewal.Continue, r.PolicyName = true, "batch"
	r.Wake = func() { told.Add(1) }
	return r, told
}

// unlocked is the gauge of leases that go on without the lock.
func (b *bubble) unlocked() float64 { return testutil.ToFloat64(b.m.opts.Metrics.unlocked) }

// leased is the time of leases in a state, in seconds.
func (b *bubble) leased(state string) float64 {
	return testutil.ToFloat64(b.m.opts.Metrics.leaseTime.WithLabelValues(state, "batch"))
}

// mutation: checkDeadline that ignores goesOn, and a gauge that is not lowered, each
// make this fail.
func TestContinueOutlivesAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fates("renew", refused)
		r, told := continuing()
		l := b.acquire(r)
		b.pass(11 * time.Second)
		if s := l.Status(); s.Failures != 1 || s.Cause == "" || s.Unlocked || told.Load() != 1 {
			t.Errorf("after a failed renewal: %+v, told %d times", s, told.Load())
		}
		b.pass(time.Minute)
		b.isValid(l)
		s := l.Status()
		if want := b.start.Add(validity); !s.Unlocked || !s.UnlockedSince.Equal(want.Round(0)) || s.Failures < 10 {
			t.Errorf("long after the deadline: %+v; want unlocked since %s", s, want)
		}
		if told.Load() != 2 || b.unlocked() != 1 {
			t.Errorf("told %d times, %v are counted as unlocked; want 2 and 1", told.Load(), b.unlocked())
		}
		if counted := b.leased(stateValid) + b.leased(stateInvalid); counted < 65 || b.leased(stateInvalid) < 30 {
			t.Errorf("%v s of 71 are counted during the outage, %v as not valid", counted, b.leased(stateInvalid))
		}

		b.store.script(nil)
		b.pass(4 * time.Second)
		b.isValid(l)
		if s := l.Status(); s.Unlocked || s.Failures != 0 || !s.Renewed || told.Load() != 3 || b.unlocked() != 0 {
			t.Errorf("after the outage: %+v, told %d times, %v unlocked", s, told.Load(), b.unlocked())
		}
		// The key was gone, so another could have been here: the fence is a new one, the lease
		// is the same.
		if l.Fence() != 2 || b.store.ownerOf(testRun) != l.ID() {
			t.Errorf("fence %d, owner %s; want 2, %s", l.Fence(), b.store.ownerOf(testRun), l.ID())
		}
		l.Drop(t.Context())
		// Of 75 s all but those from the end of the validity to the renewal were covered: about 72
		// s are too many to be made up for at the end.
		if valid, invalid := b.leased(stateValid), b.leased(stateInvalid); valid+invalid != 75 || invalid < 71-validity.Seconds() || valid < validity.Seconds() {
			t.Errorf("valid for %v s, not for %v s", valid, invalid)
		}
	})
}

// mutation: retake that does not stop where another has the lock makes this fail.
func TestContinueStopsWhereAnotherHasTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fates("renew", refused)
		r, told := continuing()
		l := b.acquire(r)
		b.pass(40 * time.Second)
		b.store.script(nil)
		second := b.other(t)
		defer closeAll(t, second)
		theirs, err := second.Acquire(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		b.pass(4 * time.Second)
		b.isLost(l, OwnershipLost)
		if told.Load() != 3 || b.unlocked() != 0 {
			t.Errorf("told %d times, %v unlocked; want 3 and none", told.Load(), b.unlocked())
		}
		l.Release(t.Context())
		theirs.Drop(t.Context())
	})
}

// mutation: retake without the floor of the lease's own fence makes this fail.
func TestContinueTakesALockThatIsGoneAgainWithAHigherFence(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		r, _ := continuing()
		r.Floor = 7
		l := b.acquire(r)
		b.store.flush()
		b.pass(10 * time.Second)
		b.isValid(l)
		if l.Fence() != 9 || b.store.ownerOf(testRun) != l.ID() {
			t.Errorf("fence %d, owner %q; want 9 and its own", l.Fence(), b.store.ownerOf(testRun))
		}
		l.Drop(t.Context())
	})
}

// The lock ended, another had it in between, and the reply to taking it again is lost: a renewal
// would say that the lock is ours, and leave the lease with a fence below that of the other.
//
// mutation: renew that ignores retaking makes this fail.
func TestContinueDoesNotBelieveARenewalAfterALostReply(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		r, _ := continuing()
		l := b.acquire(r)
		b.store.mu.Lock()
		delete(b.store.locks, testRun)
		b.store.fences[testRun]++
		b.store.mu.Unlock()
		b.fates("acquire", works, losesReply, works)
		b.pass(time.Minute)
		b.isValid(l)
		if l.Fence() != 3 || l.Status().Unlocked {
			t.Errorf("fence %d, %+v; want 3, locked", l.Fence(), l.Status())
		}
		l.Drop(t.Context())
	})
}

func TestFenceStopsWhereTheLockIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		l := b.acquire(request())
		b.store.flush()
		b.pass(10 * time.Second)
		b.isLost(l, OwnershipLost)
		l.Release(t.Context())
	})
}

// A lock that nobody works under is not clung to.
func TestContinueIsForLeasesInUse(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fates("renew", refused)
		r, _ := continuing()
		r.Policy.Linger = time.Hour
		b.acquire(r).Release(t.Context())
		b.pass(time.Minute)
		if len(b.m.runs) != 0 || b.unlocked() != 0 {
			t.Errorf("%d runs are remembered, %v unlocked", len(b.m.runs), b.unlocked())
		}
	})
}

func TestATakeFailsClosedWhateverThePolicy(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fates("acquire", refused)
		r, _ := continuing()
		var down *UnavailableError
		if _, err := b.m.Acquire(t.Context(), r); !errors.As(err, &down) {
			t.Errorf("acquire: %v; want unavailable", err)
		}
	})
}

func TestAnUnlockedLeaseMayBeReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.store.script(func(verb, _ string, _ int) outcome {
			if verb == "acquire" {
				return works
			}
			return refused
		})
		r, _ := continuing()
		l := b.acquire(r)
		b.pass(time.Minute)
		l.Release(t.Context())
		b.pass(time.Minute)
		if len(b.m.runs) != 0 || b.unlocked() != 0 {
			t.Errorf("%d runs are remembered, %v unlocked", len(b.m.runs), b.unlocked())
		}
	})
}

// An incident: Redis is away, runs go on, and they are to stop now.
//
// mutation: OnFailure that only sets the policy makes the second and third fail; one that ends
// every lease the first.
func TestALeaseCanBeToldToStopWhileRedisIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		away time.Duration // for how long, when it is told
		want Reason        // at once; "": later, as Fence has it
	}{
		"a renewal failed, and the lease is valid": {11 * time.Second, ""},
		"too many failed":                          {25 * time.Second, RenewalFailuresExceeded},
		"it goes on without the lock":              {time.Minute, LeaseDeadlineReached},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.fates("renew", refused)
				r, _ := continuing()
				l := b.acquire(r)
				b.pass(c.away)
				b.isValid(l)
				l.OnFailure(false)
				want := c.want
				if want == "" {
					b.isValid(l)
					b.pass(10 * time.Second)
					want = RenewalFailuresExceeded
				}
				b.isLost(l, want)
				if b.unlocked() != 0 || l.Policy().Renewal.Continue {
					t.Errorf("%v unlocked, %+v", b.unlocked(), l.Policy().Renewal)
				}
				l.OnFailure(true) // too late
				b.isLost(l, want)
				l.Release(t.Context())
			})
		})
	}
}

// A lock that was gone and may be ours again, or another's, is not ours for Fence.
func TestALeaseThatTakesItsLockAgainStopsWhenToldTo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		r, _ := continuing()
		l := b.acquire(r)
		b.store.flush()
		b.fates("acquire", refused)
		b.pass(11 * time.Second)
		b.isValid(l)
		l.OnFailure(false)
		b.isLost(l, OwnershipLost)
		l.Release(t.Context())
	})
}

// And if it is ours again, this process does not wait for itself until it ends.
//
// mutation: detach that remembers no lock that was lost to another makes this fail.
func TestALockThatMayBeOursAgainIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		r, _ := continuing()
		l := b.acquire(r)
		b.store.flush()
		b.fates("acquire", works, losesReply, works)
		b.pass(12 * time.Second)
		if owner := b.store.ownerOf(testRun); owner != l.ID() || l.Status().Failures != 1 {
			t.Fatalf("owner %q, %+v; want its own, and a reply that was lost", owner, l.Status())
		}
		l.OnFailure(false)
		b.isLost(l, OwnershipLost)
		l.Drop(t.Context())
		next := b.acquire(request())
		if next.Fence() <= l.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), l.Fence())
		}
		next.Drop(t.Context())
	})
}

// And the other way: work that is to go on.
func TestALeaseCanBeToldToGoOnWhileRedisIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fates("renew", refused)
		l := b.acquire(request())
		b.pass(11 * time.Second)
		l.OnFailure(true)
		b.pass(time.Minute)
		b.isValid(l)
		if s := l.Status(); !s.Unlocked || b.unlocked() != 1 {
			t.Errorf("%+v, %v unlocked", s, b.unlocked())
		}
		l.Drop(t.Context())
	})
}
