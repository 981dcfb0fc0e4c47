// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

var errDown = errors.New("the store is down")

// mutation: Open that does not look at the clock makes "closed after the pause" fail.
func TestBreaker(t *testing.T) {
	c := clocktesting.NewFakeClock(epoch)
	b := &Breaker{clock: c}
	if b.Open() != nil {
		t.Error("open before anything failed")
	}
	cause := errors.New("refused")
	b.Trip(cause)
	c.Step(BreakerPause - time.Nanosecond)
	if !errors.Is(b.Open(), cause) {
		t.Error("not open during the pause")
	}
	c.Step(time.Nanosecond)
	if b.Open() != nil {
		t.Error("not closed after the pause")
	}
}

// mutation: Open that lets everybody through after the pause makes this fail.
func TestOnePassFindsOutWhetherTheStoreIsBack(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	b := &Breaker{clock: clk}
	b.Trip(errDown)
	for range 3 {
		clk.Step(BreakerPause)
		through := 0
		for range 16 {
			if b.Open() == nil {
				through++
			}
		}
		if through != 1 {
			t.Errorf("%d of 16 passes ask the store at the same time; want 1", through)
		}
	}
}

// mutation: pause that does not grow, and one that is not bounded, each make this fail.
func TestTheLongerTheStoreIsDownTheLongerRunsWait(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	b := &Breaker{clock: clk}
	b.Trip(errDown)
	for _, step := range []struct{ after, want time.Duration }{
		{0, time.Second}, {8 * time.Second, time.Second}, {8 * time.Second, 2 * time.Second}, {time.Hour, 5 * time.Second},
	} {
		clk.Step(step.after)
		b.Trip(errDown)
		if got := b.pause(); got != step.want {
			t.Errorf("after %s more the pause is %s; want %s", step.after, got, step.want)
		}
	}
	b.reset()
	if got := b.pause(); got != time.Second {
		t.Errorf("after the outage the pause is %s", got)
	}
}
