// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"
)

// setClock is a clock that was set by an hour: less has passed than it says.
type setClock struct {
	*clocktesting.FakeClock
	asked chan struct{}
	looks int
}

func (c *setClock) Since(t time.Time) time.Duration {
	c.looks++
	defer func() { c.asked <- struct{}{} }()
	if c.looks == 1 {
		return c.FakeClock.Since(t)
	}
	return c.FakeClock.Since(t) - time.Hour
}

// TestRunsAreLookedAtAgainWhenTheClockWasSet has the clock of the process set between two looks.
//
// mutation: a watchClock that measures what has passed by Now of the wall clock alone makes this
// fail.
func TestRunsAreLookedAtAgainWhenTheClockWasSet(t *testing.T) {
	clk := &setClock{FakeClock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), asked: make(chan struct{})}
	again := make(chan struct{}, 1)
	w := watchClock(clk, logr.Discard(), func() { again <- struct{}{} })
	go func() { _ = w.Start(t.Context()) }() // it ends with the test
	<-clk.asked
	clk.Step(time.Hour)
	<-clk.asked
	<-again
}
