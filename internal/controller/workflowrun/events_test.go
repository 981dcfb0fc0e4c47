// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/tools/events"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// mutations: no bound, one bound for both types, or nothing counted, each make this fail.
func TestEventsAreLeftOutWhileTooManyWait(t *testing.T) {
	for name, c := range map[string]struct {
		waiting int
		kind    string
		written bool
	}{
		"few wait":                       {10, lifecycle.EventNormal, true},
		"as many as may, but one":        {maxWaitingEvents - 1, lifecycle.EventNormal, true},
		"as many as may":                 {maxWaitingEvents, lifecycle.EventNormal, false},
		"a warning is still written":     {maxWaitingEvents, lifecycle.EventWarning, true},
		"warnings are left out at twice": {2 * maxWaitingEvents, lifecycle.EventWarning, false},
	} {
		t.Run(name, func(t *testing.T) {
			fake := events.NewFakeRecorder(1)
			b := &BoundedEvents{fake, func() int { return c.waiting }, prometheus.NewCounter(prometheus.CounterOpts{Name: "dropped_total", Help: "Left out."})}
			b.Eventf(&v1alpha1.WorkflowRun{}, nil, c.kind, "StepSucceeded", "Advance", "%s", "note")
			if got := len(fake.Events) == 1; got != c.written || testutil.ToFloat64(b.Dropped) == 1 == c.written {
				t.Errorf("written %v, %v left out", got, testutil.ToFloat64(b.Dropped))
			}
		})
	}
}
