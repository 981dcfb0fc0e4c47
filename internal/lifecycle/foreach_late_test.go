// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// An item whose worker hangs times out, though others begin behind it and many back off.
//
// mutation: those nearest in time made one, of groups in flight and those that back off together,
// makes this fail.
func TestAHungItemTimesOutWhileOthersBegin(t *testing.T) {
	for _, c := range []struct {
		name               string
		steps, items, hung int
		backoff, late      time.Duration
	}{
		{"one step, and a long backoff", 1, 450, 310, time.Hour, 0},
		{"20 steps, and a backoff of a minute", 20, 100, 31, time.Minute, 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := manyFans(c.steps, c.items, c.backoff)
			o, due := objects{}, map[int][]Result{}
			for s := 0; s <= 2*c.hung+60+int(c.late.Seconds()); s += 2 {
				if k := s / 2; k < c.items {
					for i := range c.steps {
						oneBegins(due, fmt.Sprint("s", i), k, k == c.hung)
					}
				}
				for _, job := range o.advance(t, run, epoch.Add(time.Duration(s)*time.Second), due[s]...).Dispatch {
					if job.ID.Attempt > 1 {
						due[s+2] = append(due[s+2], Result{ID: job.ID, Result: protocol.Result{Status: protocol.StatusSucceeded}, PublishedAt: epoch.Add(time.Duration(s+2) * time.Second)})
					}
				}
			}
			for i := range run.Status.Steps {
				for _, g := range fanout.Groups(run.Status.Steps[i].ForEach) {
					if status.InFlight(g.Phase) && g.Set.Contains(c.hung) {
						t.Errorf("step %d: %s after its time-out item %d is %s since %s", i, c.late, c.hung, g.Phase, g.StartedAt.Sub(epoch))
					}
				}
			}
		})
	}
}

// manyFans is a run whose steps have so many items each, all of which go out at once.
func manyFans(steps, items int, backoff time.Duration) *v1alpha1.WorkflowRun {
	var all []v1alpha1.Step
	for i := range steps {
		s := newStep(fmt.Sprint("s", i), forEach("${inputs.list}", int32(items), v1alpha1.Collect), maxFailures(3), initialMillis(backoff.Milliseconds()))
		s.Retry.Backoff.MaxMillis = new(backoff.Milliseconds())
		s.TimeoutSeconds, s.StartTimeoutSeconds = 60, 20_000
		all = append(all, s)
	}
	run := newRun(all...)
	run.Spec.MaxParallelSteps = int32(steps)
	run.Spec.Inputs = raw(`{"list":` + numbers(items) + `}`)
	return run
}

// oneBegins has a worker begin with item k of a step after 2k seconds: unless it hangs it takes
// 20 s, and every third fails.
func oneBegins(due map[int][]Result, step string, k int, hangs bool) {
	says := func(s int, r protocol.Result) {
		id := result(step, 1, r.Status).ID
		id.Item = fmt.Sprint(k)
		due[s] = append(due[s], Result{ID: id, Result: r, PublishedAt: epoch.Add(time.Duration(s) * time.Second)})
	}
	says(2*k, protocol.Result{Status: protocol.StatusStarted})
	switch {
	case hangs:
	case k%3 == 0:
		says(2*k+20, protocol.Result{Status: protocol.StatusFailed, Error: &protocol.ResultError{Code: "Busy"}})
	default:
		says(2*k+20, protocol.Result{Status: protocol.StatusSucceeded})
	}
}
