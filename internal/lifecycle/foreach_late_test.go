// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strconv"
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

// Of 20 steps one has four items that take a day, each in another attempt. Beside them others fail,
// and are tried again, and new ones begin.
//
// mutations: launchesOf that begins nothing, and sends nothing out again, beside four attempts; and
// Moments that has none then.
func TestFewLongItemsOfManyAttemptsKeepNoOthersBack(t *testing.T) {
	run := manyFans(20, 100, time.Minute)
	for i := range run.Spec.Steps {
		s := &run.Spec.Steps[i]
		s.TimeoutSeconds, s.Retry.MaxFailures, s.ForEach.MaxParallel = 86_400, 10, 10
	}
	o := objects{}
	says := func(step string, item int, attempt int32, at time.Time, status protocol.ResultStatus) Result {
		id := result(step, attempt, status).ID
		id.Item = fmt.Sprint(item)
		r := protocol.Result{Status: status}
		if status == protocol.StatusFailed {
			r.Error = &protocol.ResultError{Code: "Busy"}
		}
		return Result{ID: id, Result: r, PublishedAt: at}
	}
	sent, now := map[int]int32{}, epoch
	var due []Result
	for range 400 {
		if now.Sub(epoch) >= 12*time.Hour {
			break
		}
		out := o.advance(t, run, now, due...)
		due = nil
		for _, job := range out.Dispatch {
			if job.ID.Step != "s0" {
				continue
			}
			item, _ := strconv.Atoi(job.ID.Item)
			sent[item] = max(sent[item], job.ID.Attempt)
			switch {
			case item < 4 && int(job.ID.Attempt) > item: // it takes a day
				due = append(due, says("s0", item, job.ID.Attempt, now, protocol.StatusStarted))
			case item < 4 || job.ID.Attempt < 6:
				due = append(due, says("s0", item, job.ID.Attempt, now, protocol.StatusFailed))
			default:
				due = append(due, says("s0", item, job.ID.Attempt, now, protocol.StatusSucceeded))
			}
		}
		switch {
		case len(due) > 0:
			now = now.Add(time.Second)
		case out.Wake.After(now):
			now = out.Wake
		default:
			t.Fatalf("after %s nothing is to come: %+v", now.Sub(epoch), run.Status.Steps[0].ForEach)
		}
	}
	for item := range 100 {
		if want := int32(min(item+1, 6)); item < 4 && sent[item] != want || item >= 4 && sent[item] != 6 {
			t.Errorf("item %d went out %d times", item, sent[item])
		}
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
