// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/internal/policy"
)

const testRun = "b2c5"

// bubble is a manager on a model store in a synctest bubble: time.Now and all timers, also those
// of contexts, are the bubble's, and stand still while anything runs. So the tests are exact and
// take no time.
type bubble struct {
	t     *testing.T
	store *modelStore
	m     *Manager
	reg   *prometheus.Registry
	start time.Time
	ids   atomic.Int64
}

// inBubble runs a test with a manager, whose jitter is in the middle of its range, and closes the
// manager after it.
func inBubble(t *testing.T, test func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t, store: newModelStore(time.Now), reg: prometheus.NewRegistry(), start: time.Now()}
		b.m = b.newManager(b.reg)
		// Deferred, and bounded, so that a test that fails half-way ends its bubble too.
		defer func() {
			b.store.script(nil)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
			defer cancel()
			if err := b.m.Close(ctx); err != nil {
				t.Errorf("close: %v", err)
			}
		}()
		test(t, b)
	})
}

// newManager is another process on the same store.
func (b *bubble) newManager(reg prometheus.Registerer) *Manager {
	m := newManager(b.store, Options{
		Rand:    func() float64 { return 0.5 },
		Spread:  func() float64 { return 0.5 },
		NewID:   func() string { return fmt.Sprintf("lease-%d", b.ids.Add(1)) },
		Metrics: NewMetrics(reg, nil),
	})
	m.mu.Lock()
	m.listen(b.t.Context())
	m.mu.Unlock()
	synctest.Wait() // it listens
	return m
}

// pass lets d pass and everything run that is due.
func (b *bubble) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// fates scripts what becomes of the calls of one verb: the n-th call gets the n-th outcome, those
// after the last get the last.
func (b *bubble) fates(verb string, outcomes ...outcome) {
	b.store.script(func(v, _ string, n int) outcome {
		if v != verb {
			return works
		}
		return outcomes[min(n, len(outcomes)-1)]
	})
}

func request() Request { return Request{RunUID: testRun, Policy: policy.Defaults().RunLock} }

func (b *bubble) acquire(r Request) *Lease {
	b.t.Helper()
	l, err := b.m.Acquire(b.t.Context(), r)
	if err != nil {
		b.t.Fatalf("acquire: %v", err)
	}
	return l
}

// isValid fails the test unless the lease may be worked under.
func (b *bubble) isValid(l *Lease) {
	b.t.Helper()
	if l.Context().Err() != nil || l.Err() != nil {
		b.t.Fatalf("after %s the lease is over: %v", time.Since(b.start), l.Err())
	}
}

// isLost fails the test unless the lease was lost for the reason, and its context and Err agree.
func (b *bubble) isLost(l *Lease, want Reason) {
	b.t.Helper()
	cause := lossOf(l)
	if cause == nil || cause.Reason != want {
		b.t.Fatalf("after %s the lease is lost for %v; want %s", time.Since(b.start), cause, want)
	}
	if !errors.Is(l.Err(), ErrLeaseLost) || cause.RunUID != testRun || cause.Fence != l.Fence() {
		b.t.Errorf("the loss is %v, Err is %v", cause, l.Err())
	}
}
