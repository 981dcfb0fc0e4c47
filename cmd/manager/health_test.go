// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
)

// controller-runtime's watches of partial objects pass events on through a filter, which is left
// behind when a watch ends with an event on its way. The process ends then.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"))
}

var errDown = errors.New("connection refused")

// mutation: probeTolerance of 1 makes "one failure" fail; look that does not reset
// makes "recovered" fail.
func TestReadinessForgivesALostPacketAndNoOutage(t *testing.T) {
	for name, c := range map[string]struct {
		looks []error
		ready bool
	}{
		"never reached":                      {nil, false},
		"never reached, and it fails":        {[]error{errDown}, false},
		"reached":                            {[]error{nil}, true},
		"one failure":                        {[]error{nil, errDown}, true},
		"two failures":                       {[]error{nil, errDown, errDown}, true},
		"three failures in a row":            {[]error{nil, errDown, errDown, errDown}, false},
		"three failures, not in a row":       {[]error{nil, errDown, errDown, nil, errDown}, true},
		"recovered after an outage, at once": {[]error{nil, errDown, errDown, errDown, errDown, nil}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var next error
			p := newProbe(clocktesting.NewFakeClock(time.Time{}), func(context.Context) error { return next })
			for _, next = range c.looks {
				p.look(t.Context())
			}
			err := p.ready(nil)
			if (err == nil) != c.ready {
				t.Fatalf("ready says %v", err)
			}
		})
	}
}

func TestAProbeLooksAtOnceAndThenAtItsPace(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Time{})
	looks := make(chan time.Duration)
	p := newProbe(c, func(ctx context.Context) error {
		deadline, _ := ctx.Deadline()
		looks <- time.Until(deadline)
		return nil
	})
	if p.NeedLeaderElection() {
		t.Error("a standby must answer readyz, too")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Start(ctx) }()
	for range 3 {
		if left := <-looks; left > probeTimeout {
			t.Errorf("a look may take %s, more than %s", left, probeTimeout)
		}
		c.Step(probePause)
	}
	<-looks
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-looks: // the tick of the last step was there first
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
