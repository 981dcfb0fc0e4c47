// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func TestAShortUseCostsOneTakeAndOneRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		l := b.acquire(request())
		b.pass(5 * time.Millisecond)
		l.Release(t.Context())
		b.pass(time.Minute)
		got := map[string]int{}
		for _, verb := range []string{"acquire", "renew", "release"} {
			got[verb] = b.store.count(verb, testRun)
		}
		if diff := cmp.Diff(map[string]int{"acquire": 1, "renew": 0, "release": 1}, got); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if owner := b.store.ownerOf(testRun); owner != "" {
			t.Errorf("the lock is still owned by %s", owner)
		}
	})
}

func TestLinger(t *testing.T) {
	linger := request().Policy.Linger
	tests := map[string]struct {
		change func(l *Lease, r *Request)
		after  time.Duration
		reused bool
	}{
		"a status without a fence reuses it":              {func(*Lease, *Request) {}, 0, true},
		"a status with a lower fence reuses it":           {func(l *Lease, r *Request) { r.Floor = l.Fence() - 1 }, 0, true},
		"a status with its own fence and id reuses it":    {func(l *Lease, r *Request) { r.Floor, r.FloorLeaseID = l.Fence(), l.ID() }, 0, true},
		"right before its end it is reused":               {func(*Lease, *Request) {}, linger - time.Nanosecond, true},
		"at its end it is released":                       {func(*Lease, *Request) {}, linger, false},
		"a status with its fence and another id does not": {func(l *Lease, r *Request) { r.Floor, r.FloorLeaseID = l.Fence(), "another" }, 0, false},
		"a status with a higher fence does not":           {func(l *Lease, r *Request) { r.Floor, r.FloorLeaseID = l.Fence()+1, l.ID() }, 0, false},
		"a changed policy does not":                       {func(_ *Lease, r *Request) { r.Policy.BusyRetry.Delay++ }, 0, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				first := b.acquire(request())
				first.Release(t.Context())
				if !errors.Is(first.Err(), ErrReleased) || !errors.Is(context.Cause(first.Context()), ErrReleased) {
					t.Errorf("after the release Err is %v, the cause %v", first.Err(), context.Cause(first.Context()))
				}
				b.pass(test.after)
				r := request()
				test.change(first, &r)
				second := b.acquire(r)
				b.isValid(second)
				if got := second.ID() == first.ID(); got != test.reused {
					t.Errorf("reused: %v; want %v", got, test.reused)
				}
				if !test.reused && second.Fence() <= max(first.Fence(), r.Floor) {
					t.Errorf("the new fence is %d, after %d, with floor %d", second.Fence(), first.Fence(), r.Floor)
				}
				if want := map[bool]int{true: 1, false: 2}[test.reused]; b.store.count("acquire", testRun) != want {
					t.Errorf("%d takes; want %d", b.store.count("acquire", testRun), want)
				}
				first.Drop(t.Context()) // the first use is over: nothing happens
				b.isValid(second)
				second.Release(t.Context())
			})
		})
	}
}

func TestALingeringLeaseIsRenewedAndMayBeLost(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fates("renew", works, refused)
		r := request()
		r.Policy.Linger = time.Hour
		l := b.acquire(r)
		l.Release(t.Context())
		b.pass(20 * time.Second)
		if got := b.store.count("renew", testRun); got != 2 {
			t.Errorf("%d renewals in 20 s; want 2", got)
		}
		b.pass(time.Minute)
		if len(b.m.runs) != 0 {
			t.Errorf("%d runs are remembered; want none", len(b.m.runs))
		}
	})
}

func TestDropDoesNotLinger(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		l := b.acquire(request())
		l.Drop(t.Context())
		if owner := b.store.ownerOf(testRun); owner != "" {
			t.Errorf("the lock is still owned by %s", owner)
		}
		l.Release(t.Context())
		if got := b.store.count("release", testRun); got != 1 {
			t.Errorf("%d releases; want 1", got)
		}
	})
}

func TestBusy(t *testing.T) {
	t.Run("in this process, without asking Redis", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			l := b.acquire(request())
			b.isBusy(b.m, true)
			if got := b.store.count("acquire", testRun); got != 1 {
				t.Errorf("%d takes went to Redis; want 1", got)
			}
			l.Release(t.Context())
		})
	})
	t.Run("in another process, until it is released", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			l := b.acquire(request())
			other := b.newManager(nil)
			b.isBusy(other, false)
			l.Drop(t.Context())
			theirs, err := other.Acquire(t.Context(), request())
			if err != nil || theirs.Fence() != l.Fence()+1 {
				t.Fatalf("after the release: %v, %v", theirs, err)
			}
			theirs.Drop(t.Context())
			if err := other.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("in this process while the work under a lost lease goes on", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			l := b.acquire(request())
			b.store.flush()
			b.pass(10 * time.Second)
			b.isLost(l, OwnershipLost)
			b.isBusy(b.m, true)
			l.Release(t.Context())
			b.acquire(request()).Drop(t.Context())
		})
	})
}

func (b *bubble) isBusy(m *Manager, local bool) {
	b.t.Helper()
	_, err := m.Acquire(b.t.Context(), request())
	var busy *BusyError
	if !errors.As(err, &busy) || busy.Local != local {
		b.t.Fatalf("acquire: %v; want busy, local %v", err, local)
	}
	if busy.RetryDelay() != 500*time.Millisecond || busy.RetryClass() != "lock_busy" {
		b.t.Errorf("retry after %s, class %s", busy.RetryDelay(), busy.RetryClass())
	}
}

func TestLostReplyOfATake(t *testing.T) {
	tests := map[string]struct {
		outcomes []outcome
		fence    int64
	}{
		"that happened":                    {[]outcome{losesReply, works}, 1},
		"that did not":                     {[]outcome{timesOut, works}, 1},
		"twice":                            {[]outcome{losesReply, losesReply, works}, 1},
		"that was refused after it":        {[]outcome{losesReply, refused, works}, 1},
		"that happened after the next one": {[]outcome{happensAfter, works}, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.fates("acquire", test.outcomes...)
				for range len(test.outcomes) - 1 {
					_, err := b.m.Acquire(t.Context(), request())
					var unavailable *UnavailableError
					if !errors.As(err, &unavailable) || unavailable.RetryDelay() != time.Second || unavailable.RetryClass() != "store_unavailable" {
						t.Fatalf("acquire: %v; want unavailable", err)
					}
				}
				// mutation: a new token for the next try makes this fail: it would find
				// its own ghost.
				l := b.acquire(request())
				if l.Fence() != test.fence || !strings.HasSuffix(l.ID(), ".lease-1") {
					t.Errorf("got fence %d, id %s; want those of the first try", l.Fence(), l.ID())
				}
				b.pass(3 * time.Second)
				b.isValid(l)
				l.Drop(t.Context())
				b.acquire(request()).Drop(t.Context())
			})
		})
	}
}

func TestALateTakeAfterTheReleaseIsNoGhostForThisProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fates("acquire", happensAfter, works)
		if _, err := b.m.Acquire(t.Context(), request()); err == nil {
			t.Fatal("the first take succeeded")
		}
		b.acquire(request()).Drop(t.Context())
		b.pass(3 * time.Second)
		if b.store.ownerOf(testRun) == "" {
			t.Fatal("the late take did not happen")
		}
		b.acquire(request()).Drop(t.Context())
	})
}

func TestAnUnknownTakeThatIsNotRepeatedEndsWithItsTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fates("acquire", losesReply, works)
		if _, err := b.m.Acquire(t.Context(), request()); err == nil {
			t.Fatal("the take succeeded")
		}
		b.pass(30*time.Second + time.Millisecond)
		if owner := b.store.ownerOf(testRun); owner != "" || len(b.m.runs) != 0 {
			t.Errorf("owner %q, %d runs remembered; want none", owner, len(b.m.runs))
		}
	})
}

// mutation: a release that fails without the token being kept as dead makes this fail.
func TestTheNextTakeReplacesATokenOfThePast(t *testing.T) {
	tests := map[string]struct {
		verb string
		wait time.Duration
	}{
		"whose release failed":     {"release", 0},
		"of a lease that was lost": {"renew", 17 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.fates(test.verb, refused)
				first := b.acquire(request())
				b.pass(test.wait)
				first.Drop(t.Context())
				if b.store.ownerOf(testRun) != first.ID() {
					t.Fatal("the lock was freed")
				}
				second := b.acquire(request())
				if second.ID() == first.ID() || second.Fence() != first.Fence()+1 {
					t.Errorf("second lease %s, fence %d", second.ID(), second.Fence())
				}
				b.store.script(nil)
				second.Drop(t.Context())
			})
		})
	}
}

func TestALostLeaseDoesNotTouchTheNewOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		l := b.acquire(request())
		b.store.steal(testRun, "another")
		b.pass(10 * time.Second)
		l.Release(t.Context())
		l.Drop(t.Context())
		b.pass(time.Minute)
		if owner := b.store.ownerOf(testRun); owner != "another" {
			t.Errorf("the owner is %q; want another", owner)
		}
	})
}

// mutation: a release without the comparison makes this fail (in the model).
func TestALateReleaseDoesNotTouchTheNextLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fates("release", happensAfter, works)
		b.acquire(request()).Drop(t.Context())
		l := b.acquire(request())
		b.pass(5 * time.Second)
		if owner := b.store.ownerOf(testRun); owner != l.ID() {
			t.Errorf("the owner is %q; want %s", owner, l.ID())
		}
		l.Drop(t.Context())
	})
}

// mutation: giveBack with the context of its caller leaves the lock to its TTL when a process ends.
func TestContextOfALeaseHasTheValuesOfAcquiresButNotItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		l, err := b.m.Acquire(ctx, request())
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		b.pass(time.Minute)
		b.isValid(l)
		if got := l.Context().Value(key{}); got != "value" {
			t.Errorf("value %v; want value", got)
		}
		l.Drop(ctx)
		if owner := b.store.ownerOf(testRun); owner != "" {
			t.Errorf("%s owns the lock after its end", owner)
		}
	})
}

func TestClose(t *testing.T) {
	t.Run("releases what lingers and what is unknown", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			b.store.script(func(verb, uid string, _ int) outcome {
				if verb == "acquire" && uid == "unknown" {
					return losesReply
				}
				return works
			})
			r := request()
			b.acquire(r).Release(t.Context())
			r.RunUID = "unknown"
			if _, err := b.m.Acquire(t.Context(), r); err == nil {
				t.Fatal("the take succeeded")
			}
			if err := b.m.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if a, u := b.store.ownerOf(testRun), b.store.ownerOf("unknown"); a != "" || u != "" {
				t.Errorf("owners after Close: %q, %q", a, u)
			}
			if _, err := b.m.Acquire(t.Context(), request()); !errors.Is(err, ErrClosed) {
				t.Errorf("acquire after Close: %v", err)
			}
		})
	})
	t.Run("tells users to stop, waits for them, and lets nothing linger", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			l := b.acquire(request())
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				<-l.Context().Done()
				b.pass(time.Second)
				l.Release(context.WithoutCancel(t.Context()))
			}()
			if err := b.m.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if took := time.Since(b.start); took != time.Second || !errors.Is(l.Err(), ErrClosed) || b.store.ownerOf(testRun) != "" {
				t.Errorf("Close took %s, Err is %v, owner %q", took, l.Err(), b.store.ownerOf(testRun))
			}
			<-stopped
		})
	})
	// mutation: finish without tasks.Add makes this fail.
	t.Run("waits for a release that its last user began", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			b.fates("release", happensLate)
			l := b.acquire(request())
			go func() {
				<-l.Context().Done()
				l.Release(context.WithoutCancel(t.Context()))
			}()
			if err := b.m.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if owner := b.store.ownerOf(testRun); owner != "" {
				t.Errorf("after Close %s owns the lock", owner)
			}
		})
	})
	t.Run("gives up with its context and leaves locks in use to their TTL", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			l := b.acquire(request())
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := b.m.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("close: %v", err)
			}
			if b.store.ownerOf(testRun) != l.ID() {
				t.Error("a lock in use was released")
			}
		})
	})
	t.Run("waits for a take under way, which gets no lease", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			b.fates("acquire", happensLate)
			got := make(chan error, 1)
			go func() {
				_, err := b.m.Acquire(t.Context(), request())
				got <- err
			}()
			synctest.Wait()
			if err := b.m.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-got; !errors.Is(err, ErrClosed) || b.store.ownerOf(testRun) != "" {
				t.Errorf("acquire: %v, owner %q", err, b.store.ownerOf(testRun))
			}
		})
	})
}

func TestInvalidRequests(t *testing.T) {
	noUID, noValidity := request(), request()
	noUID.RunUID = ""
	noValidity.Policy.TTL = noValidity.Policy.Renewal.Margin
	for name, r := range map[string]Request{"without a run": noUID, "without validity": noValidity} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				if _, err := b.m.Acquire(t.Context(), r); !errors.Is(err, ErrInvalidRequest) {
					t.Errorf("acquire: %v", err)
				}
			})
		})
	}
}

func TestReasonsAreThoseOfTheAPI(t *testing.T) {
	got := []Reason{LeaseDeadlineReached, OwnershipLost, RenewalFailuresExceeded}
	want := []Reason{v1alpha1.ReasonLeaseDeadlineReached, v1alpha1.ReasonOwnershipLost, v1alpha1.ReasonRenewalFailuresExceeded}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}
