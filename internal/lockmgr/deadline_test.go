// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// lossOf is the cause of the lease's context; nil if it is valid, or not lost.
func lossOf(l *Lease) *LostError {
	lost, _ := errors.AsType[*LostError](context.Cause(l.Context()))
	return lost
}

// The default policy: TTL 30 s, margin 3.3 s, so validity 26.7 s; interval 10 s, timeout 1 s, retry
// after 3 s, 3 failures.
const validity = 26700 * time.Millisecond

func TestDeadlineRule(t *testing.T) {
	tests := map[string]struct {
		renewals    []outcome     // of the renewals, the last repeats
		maxFailures int           // 0: the policy's
		validUntil  time.Duration // since the take; the lease is valid right before, and lost then
		lost        Reason
		calls       int // renewals sent up to then
	}{
		"three renewals refused in a row end the lease": {
			renewals: []outcome{refused}, validUntil: 16 * time.Second, lost: RenewalFailuresExceeded, calls: 3,
		},
		"three renewals timed out in a row end the lease": {
			renewals: []outcome{timesOut}, validUntil: 19 * time.Second, lost: RenewalFailuresExceeded, calls: 3,
		},
		// mutation: failures that are not reset by a success make this fail.
		"a renewal that succeeds starts the count of failures anew": {
			renewals: []outcome{refused, refused, works, refused}, validUntil: 32 * time.Second, lost: RenewalFailuresExceeded, calls: 6,
		},
		// mutation: validity without the margin makes this fail.
		"the deadline ends the lease when failures do not": {
			renewals: []outcome{refused}, maxFailures: 100, validUntil: validity, lost: LeaseDeadlineReached, calls: 6,
		},
		"a renewal under way at the deadline is cut off": {
			renewals: []outcome{works, timesOut}, maxFailures: 100, validUntil: 10*time.Second + validity, lost: LeaseDeadlineReached, calls: 6,
		},
		"a renewal that happened but whose reply was lost does not move the deadline": {
			renewals: []outcome{losesReply}, maxFailures: 100, validUntil: validity, lost: LeaseDeadlineReached, calls: 5,
		},
		// mutation: sentAt taken after the reply makes this fail.
		"the deadline counts from the sending of the renewal, not from its reply": {
			renewals: []outcome{repliesLate, refused}, maxFailures: 100, validUntil: 10*time.Second + validity, lost: LeaseDeadlineReached, calls: 7,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.fates("renew", test.renewals...)
				r := request()
				if test.maxFailures > 0 {
					r.Policy.Renewal.MaxConsecutiveFailures = test.maxFailures
				}
				l := b.acquire(r)
				b.pass(test.validUntil - time.Nanosecond)
				b.isValid(l)
				b.pass(time.Nanosecond)
				b.isLost(l, test.lost)
				if got := b.store.count("renew", testRun); got != test.calls {
					t.Errorf("%d renewals were sent; want %d", got, test.calls)
				}
				l.Release(t.Context())
			})
		})
	}
}

// mutation: a mismatch that counts as one failure of three makes this fail.
func TestNotOwnerEndsTheLeaseAtOnce(t *testing.T) {
	tests := map[string]func(s *modelStore){
		"when the key is gone":      (*modelStore).flush,
		"when another one has it":   func(s *modelStore) { s.steal(testRun, "another") },
		"when it is gone then back": func(s *modelStore) { s.flush(); s.steal(testRun, "another") },
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				l := b.acquire(request())
				happens(b.store)
				b.pass(10*time.Second - time.Nanosecond)
				b.isValid(l)
				b.pass(time.Nanosecond)
				b.isLost(l, OwnershipLost)
				l.Release(t.Context())
			})
		})
	}
}

// mutation: sentAt of a take taken after the reply makes this fail.
func TestValidityCountsFromTheSendingOfTheTake(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.store.script(func(verb, _ string, _ int) outcome {
			return map[string]outcome{"acquire": repliesLate, "renew": refused}[verb]
		})
		r := request()
		r.Policy.Renewal.MaxConsecutiveFailures = 100
		l := b.acquire(r)
		b.pass(validity - time.Since(b.start) - time.Nanosecond)
		b.isValid(l)
		b.pass(time.Nanosecond)
		b.isLost(l, LeaseDeadlineReached)
		l.Release(t.Context())
	})
}

// stallingStore answers a take after the clock went on by stall.
type stallingStore struct {
	*modelStore
	clock *clocktesting.FakeClock
	stall time.Duration
}

func (s *stallingStore) Acquire(ctx context.Context, c claim) (grant, error) {
	got, err := s.modelStore.Acquire(ctx, c)
	s.clock.Step(s.stall)
	return got, err
}

// mutation: settle without errLate makes this fail.
func TestAReplyAfterTheValidityIsNoLease(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	s := &stallingStore{modelStore: newModelStore(clk.Now), clock: clk, stall: validity}
	m := newManager(s, Options{Clock: clk})
	var unavailable *UnavailableError
	if l, err := m.Acquire(t.Context(), request()); !errors.As(err, &unavailable) || !errors.Is(err, errLate) {
		t.Fatalf("a reply at the end of the validity gave %v, %v", l, err)
	}
	first := s.ownerOf(testRun)

	s.stall = validity - time.Nanosecond
	l, err := m.Acquire(t.Context(), request())
	if err != nil || l.ID() != first || l.Fence() != 1 {
		t.Fatalf("the next try got %v, %v; want the same token and fence", l, err)
	}
	l.Drop(t.Context())
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestErrLooksAtTheClockItself(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	m := newManager(newModelStore(clk.Now), Options{Clock: clk})
	// Nobody ticks: the scheduler is held up, as in a process that comes out of a long pause.
	m.started = true
	l, err := m.Acquire(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	clk.Step(validity)
	// mutation: Err without checkDeadline makes this fail.
	if err := l.Err(); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("Err is %v; want the loss", err)
	}
	if got := lossOf(l); got == nil || got.Reason != LeaseDeadlineReached {
		t.Errorf("the context ended with %v", got)
	}
	l.Release(t.Context())
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheDeadlineIsTheInjectedClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := clocktesting.NewFakeClock(time.Unix(0, 0))
		s := newModelStore(clk.Now)
		m := newManager(s, Options{Clock: clk})
		l, err := m.Acquire(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		clk.Step(10 * time.Second)
		synctest.Wait()
		if !l.Status().Renewed || s.count("renew", testRun) != 1 {
			t.Errorf("renewed: %v, renewals: %d; want one at the interval", l.Status().Renewed, s.count("renew", testRun))
		}
		s.script(func(string, string, int) outcome { return refused })
		clk.Step(validity)
		synctest.Wait()
		if got := lossOf(l); got == nil || got.Reason != LeaseDeadlineReached {
			t.Errorf("a jump beyond the deadline ended the context with %v", got)
		}
		l.Release(t.Context())
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRetriesAfterFailedRenewalsAreSpread(t *testing.T) {
	tests := map[string]struct {
		rand float64
		want time.Duration
	}{
		"least":  {0, 2400 * time.Millisecond},
		"middle": {0.5, 3 * time.Second},
		"most":   {1, 3600 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.m.opts.Spread = func() float64 { return test.rand }
				b.fates("renew", refused, works)
				l := b.acquire(request())
				b.pass(10*time.Second + test.want - time.Microsecond)
				if l.Status().Failures != 1 || l.Status().Renewed {
					t.Errorf("before the retry: %d failures, renewed %v", l.Status().Failures, l.Status().Renewed)
				}
				b.pass(2 * time.Microsecond)
				if l.Status().Failures != 0 || !l.Status().Renewed {
					t.Errorf("after the retry: %d failures, renewed %v", l.Status().Failures, l.Status().Renewed)
				}
				l.Release(t.Context())
			})
		})
	}
}
