// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// many is more runs than can be asked for at the same time.
const many = 3200

// mutation: Close that does not cut off background calls makes both cases fail.
func TestCloseEndsInTimeThoughRedisHangs(t *testing.T) {
	tests := map[string]func(t *testing.T, b *bubble) []*Lease{
		"with renewals under way": func(_ *testing.T, b *bubble) []*Lease {
			leases := make([]*Lease, many)
			for i := range leases {
				r, _ := continuing()
				r.RunUID = strconv.Itoa(i)
				leases[i] = b.acquire(r)
			}
			b.fates("renew", timesOut)
			b.pass(10*time.Second + 100*time.Millisecond)
			return leases
		},
		"with waiters in line": func(t *testing.T, b *bubble) []*Lease {
			for i := range many {
				r, _ := continuing()
				r.RunUID = strconv.Itoa(i)
				b.store.steal(r.RunUID, "another.one")
				var busy *BusyError
				if _, err := b.m.Acquire(t.Context(), r); !errors.As(err, &busy) {
					t.Fatalf("acquire: %v; want busy", err)
				}
			}
			b.fates("acquire", timesOut)
			b.pass(time.Second)
			return nil
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bubble{t: t, store: newModelStore(time.Now), start: time.Now()}
				b.m = b.newManager(nil)
				leases := prepare(t, b)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				begin := time.Now()
				err := b.m.Close(ctx)
				if took := time.Since(begin); took > 6*time.Second {
					t.Errorf("Close took %s: %v", took, err)
				}
				for _, l := range leases {
					l.Drop(t.Context()) // too late: it asks nobody
				}
			})
		})
	}
}

// mutation: finish that counts on Close after it gave up makes the race detector find the misuse
// of the WaitGroup.
func TestAReleaseAfterCloseGaveUpAsksNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m := b.newManager(nil)
		l, err := m.Acquire(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close with a lease in use: %v", err)
		}
		l.Release(t.Context())
		if n := b.store.count("release", testRun); n != 0 {
			t.Errorf("Redis was asked %d times", n)
		}
	})
}

// mutation: giveBack that always frees in the caller makes this fail.
func TestWhoGivesUpALeaseThatFailsDoesNotWait(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		r, _ := continuing()
		l := b.acquire(r)
		b.store.script(func(string, string, int) outcome { return timesOut })
		b.pass(40 * time.Second)
		begin := time.Now()
		l.Drop(t.Context())
		if took := time.Since(begin); took > 0 {
			t.Errorf("it took %s", took)
		}
		b.store.script(nil)
		b.pass(2 * time.Second)
	})
}

// mutation: a renewal that fails and is tried again after a tenth of the TTL, however short the
// interval, makes this fail.
func TestARenewalThatFailedIsTriedAgainNoLaterThanTheNextOne(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		r := request()
		r.Policy.TTL = time.Hour
		l := b.acquire(r)
		b.fates("renew", refused, works)
		b.pass(10*time.Second + 12*time.Second)
		if s := l.Status(); s.Failures != 0 || !s.Renewed {
			t.Errorf("after two intervals and a bit: %+v", s)
		}
		l.Drop(t.Context())
	})
}

// The lock was gone and was taken again, but the reply was lost and the lease released: the lock
// that then appears belongs to nobody any more, and this process takes it over.
//
// mutation: retake that does not note that it sent the take once more makes this fail.
func TestNobodyWaitsForALockOfItsOwnPast(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		r, _ := continuing()
		l := b.acquire(r)
		b.fates("acquire", works, happensAfter)
		b.store.flush()
		b.pass(11500 * time.Millisecond) // the retake was sent after 10 s, given up after 11 s, and happens after 13 s
		b.store.script(nil)
		l.Drop(t.Context())
		b.pass(2 * time.Second)
		b.acquire(request()).Drop(t.Context())
	})
}
