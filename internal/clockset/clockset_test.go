// SPDX-License-Identifier: Apache-2.0

package clockset_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/clockset"
)

// machine has two clocks.
type machine struct {
	mu     sync.Mutex
	wall   time.Time
	passed time.Duration
	looks  chan struct{}
}

// move is time that passes by one clock and by the other.
func (m *machine) move(wall, passed time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall, m.passed = m.wall.Add(wall), m.passed+passed
}

func (m *machine) Wall() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wall
}

func (m *machine) Passed() time.Duration {
	defer func() { m.looks <- struct{}{} }() // the last that is asked at each look
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.passed
}

// TestAClockThatIsSetIsNoticedOnce has a clock that runs, is corrected by little, is set back and
// forth, and a machine that sleeps.
//
// mutations: a Watch that compares with its first look only tells each jump again; one
// without least tells of corrections; one that looks at what passed by the wall clock alone
// tells of each second.
func TestAClockThatIsSetIsNoticedOnce(t *testing.T) {
	m := &machine{wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), looks: make(chan struct{})}
	ticks := clocktesting.NewFakeClock(m.wall)
	told := make(chan time.Duration, 10)
	w := clockset.Watch{Wall: m.Wall, Passed: m.Passed, Ticks: ticks, Set: func(by time.Duration) { told <- by }}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	<-m.looks
	second := time.Second
	for _, step := range []struct{ wall, passed time.Duration }{
		{second, second},
		{second + 100*time.Millisecond, second},
		{second - time.Hour, second}, // set back
		{second, second},
		{second + time.Hour, second},   // and forth
		{second + time.Minute, second}, // it slept: the monotonic clock stood still
		{10 * second, 10 * second},     // the process was paused
		{second - second/2, second},    // as little as counts
		{second - 499*second/1000, second},
	} {
		m.move(step.wall, step.passed)
		ticks.Step(second)
		<-m.looks
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	close(told)
	var all []time.Duration
	for by := range told {
		all = append(all, by)
	}
	if diff := cmp.Diff([]time.Duration{-time.Hour, time.Hour, time.Minute, -second / 2}, all); diff != "" {
		t.Error(diff)
	}
}
