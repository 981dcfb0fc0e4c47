// SPDX-License-Identifier: Apache-2.0

package keys_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
)

func newLive(t *testing.T, s *bustest.Safe, c clock.WithTicker) *keys.Live {
	t.Helper()
	k, err := keys.New(bustest.Ring(), s.Load, c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The rule itself, on a clock that stands still. mutation: "not before" for "after" in
// readSince makes the second line fail: a read that began together with the message says
// nothing about its key.
func TestOneReadJudgesAllThatCameBeforeIt(t *testing.T) {
	t.Parallel()
	c := clocktesting.NewFakeClock(time.Now())
	s := bustest.NewSafe(bustest.Ring())
	k := newLive(t, s, c)
	begin := c.Now()
	for i, step := range []struct {
		since time.Time
		reads int
	}{
		{begin.Add(-time.Second), 1},
		{begin, 2},
		{begin, 2},
		{begin.Add(keys.ReadPause - 1), 2},
		{begin.Add(keys.ReadPause), 3},
	} {
		done := make(chan error, 1)
		go func() { done <- keys.ReadSince(k, t.Context(), step.since) }()
		bustest.Eventually(t, "the look ends", func() bool {
			if c.HasWaiters() {
				c.Step(keys.ReadPause)
			}
			return len(done) == 1
		})
		if err := <-done; err != nil || s.Reads() != step.reads {
			t.Errorf("look %d: %v, %d reads, want %d", i, err, s.Reads(), step.reads)
		}
	}
}

// mutation: keeping the error of a caller who went away makes this fail: it would speak for others.
func TestACallerWhoGoesAwaySpeaksForNobody(t *testing.T) {
	t.Parallel()
	s := bustest.NewSafe(bustest.Ring())
	open := s.Shut()
	k := newLive(t, s, clock.RealClock{})
	since := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- keys.ReadSince(k, ctx, since) }()
	bustest.Eventually(t, "it reads", func() bool { return s.Reads() == 1 })
	other := make(chan error, 1)
	go func() { other <- keys.ReadSince(k, t.Context(), since) }()
	cancel()
	if err := bustest.Receive(t, "the first", gone, 1)[0]; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	open()
	if err := bustest.Receive(t, "the other", other, 1)[0]; err != nil {
		t.Errorf("the other: %v", err)
	}
}

func TestNewRefusesUnusableKeys(t *testing.T) {
	good := bustest.Ring().Current
	for name, ring := range map[string]keys.Keyring{
		"no key":                  {},
		"a short secret":          {Current: keys.Key{ID: "a", Secret: []byte("short")}},
		"a key id with a dot":     {Current: keys.Key{ID: "a.b", Secret: good.Secret}},
		"a short previous secret": {Current: good, Previous: keys.Key{ID: "b", Secret: []byte("short")}},
	} {
		t.Run(name, func(t *testing.T) {
			if k, err := keys.New(ring, nil, clock.RealClock{}); !errors.Is(err, bus.ErrConfig) {
				t.Errorf("got %v, %v; want ErrConfig", k, err)
			}
		})
	}
}
