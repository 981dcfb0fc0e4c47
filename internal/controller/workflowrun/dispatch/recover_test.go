// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var errAway = errors.New("nobody answers")

// emptyQueue has none of the jobs that it is asked for, but those that are said to be there.
type emptyQueue struct {
	there map[string]bool // by step
	says  error           // of Gone and Found; nil: they answer
	// silentAfter is after how many looks Gone and Found get no answer any more; 0: never.
	silentAfter, looks int

	mu     sync.Mutex
	looked int
}

func (q *emptyQueue) Publish(context.Context, jobs.Job) error         { return nil }
func (q *emptyQueue) Fence(context.Context, jobs.Job) (uint64, error) { return 1, nil }

func (q *emptyQueue) Recover(ctx context.Context, j jobs.Job) (jobs.RecoverOutcome, error) {
	q.mu.Lock()
	q.looked++
	q.mu.Unlock()
	if q.there[j.ID.Step] {
		return jobs.Queued, nil
	}
	if _, err := j.Render(ctx); err != nil {
		return 0, err
	}
	return jobs.Published, nil
}

// Gone lists those that are not there, of the topic t.
func (q *emptyQueue) Gone(_ context.Context, topic string, ids []protocol.JobID) (gone []protocol.JobID, err error) {
	q.looked += len(ids)
	if q.looks++; q.silentAfter > 0 && q.looks > q.silentAfter {
		return nil, context.DeadlineExceeded
	}
	if q.says != nil {
		return nil, q.says
	}
	for _, id := range ids {
		if !q.there[id.Step] && topic == "t" {
			gone = append(gone, id)
		}
	}
	return gone, nil
}

// Found says that those which are there are queued, of the topic t.
func (q *emptyQueue) Found(_ context.Context, topic string, ids []protocol.JobID) (map[protocol.JobID]jobs.RecoverOutcome, error) {
	q.looks++
	switch {
	case q.silentAfter > 0 && q.looks > q.silentAfter:
		return nil, context.DeadlineExceeded
	case q.says != nil:
		return nil, q.says
	}
	found := map[protocol.JobID]jobs.RecoverOutcome{}
	for _, id := range ids {
		if q.there[id.Step] && topic == "t" {
			found[id] = jobs.Queued
		}
	}
	return found, nil
}

// Err is that of the lease, which is held.
func (q *emptyQueue) Err() error { return nil }

// recovery is a pass over a run with so many steps in flight, of which nothing is known.
func recovery(q *emptyQueue, n int) (s *Session, run *v1alpha1.WorkflowRun, list func() []lifecycle.Job) {
	all := &Dispatcher{
		Jobs: q, Clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0)),
		Recoveries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "recoveries_total", Help: "By outcome."}, []string{"outcome"}),
		Latency:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "latency_seconds", Help: "Of dispatches."}),
	}
	run = &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{}}
	run.UID = "uid"
	for i := range n {
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: fmt.Sprintf("s%d", i+1), Phase: v1alpha1.StepDispatched, Attempt: 1})
	}
	s = all.Session(&State{}, 1)
	return s, run, func() []lifecycle.Job {
		var list []lifecycle.Job
		for _, id := range s.Lacks(run) {
			list = append(list, lifecycle.Job{ID: id, Topic: "t"})
		}
		return list
	}
}

// mutation: note that takes an attempt that is lost for one to be tried again, or Recover that
// calls it news each time, makes this fail.
func TestSession_RecoverGoesOnPastWhatCannotBeRendered(t *testing.T) {
	q := &emptyQueue{there: map[string]bool{"s4": true}}
	s, run, list := recovery(q, 4)
	input := func(_ context.Context, id protocol.JobID) (json.RawMessage, error) {
		switch id.Step {
		case "s1":
			return nil, fmt.Errorf("job: %w", &render.LostError{Cause: errors.New("it is gone")})
		case "s2":
			return nil, errAway
		case "s4":
			t.Error("the input of what is there was rendered")
		}
		return json.RawMessage("{}"), nil
	}
	for i, more := range []bool{true, false} {
		got, err := s.Recover(t.Context(), run, q, list(), input)
		if got != more || !errors.Is(err, errAway) {
			t.Errorf("%d: more %t, %v", i, got, err)
		}
		if diff := cmp.Diff([]protocol.JobID{attempt("s1"), attempt("s2")}, s.Lacks(run)); diff != "" {
			t.Errorf("%d: lacks (-want +got):\n%s", i, diff)
		}
		if diff := cmp.Diff([]lifecycle.LostJob{{ID: attempt("s1"), Cause: "it is gone"}}, s.Lost()); diff != "" {
			t.Errorf("%d: lost (-want +got):\n%s", i, diff)
		}
	}
	q.there["s1"] = true
	if _, err := s.Recover(t.Context(), run, q, list(), input); !errors.Is(err, errAway) || len(s.Lost()) != 0 {
		t.Errorf("found after all: %v, %v", s.Lost(), err)
	}
	s.lost[attempt("s1")] = "it is gone"
	run.Status.Steps[0].Phase = v1alpha1.StepFailed
	if s.Prune(run); len(s.Lost()) != 0 {
		t.Errorf("after its end: %v", s.Lost())
	}
}

// mutation: Recover that looks for the others though the pass may render no more, or forgets to say
// that there are some, makes this fail.
func TestSession_RecoverLeavesTheRestForTheNextPass(t *testing.T) {
	const n, portion = 200, 20
	q := &emptyQueue{}
	s, run, list := recovery(q, n)
	passes := 0
	for len(s.Lacks(run)) > 0 {
		passes++
		var mu sync.Mutex
		rendered := 0
		before := q.looked
		more, err := s.Recover(t.Context(), run, q, list(), func(context.Context, protocol.JobID) (json.RawMessage, error) {
			mu.Lock()
			defer mu.Unlock()
			if rendered == portion {
				return nil, render.ErrEnough
			}
			rendered++
			return json.RawMessage("{}"), nil
		})
		if left := len(s.Lacks(run)); err != nil || more != (left > 0) || left != n-passes*portion {
			t.Fatalf("pass %d: more %t, %d left, %v", passes, more, left, err)
		}
		if looked := q.looked - before; looked > portion+publishParallel {
			t.Errorf("pass %d: %d looks", passes, looked)
		}
	}
	if passes != n/portion {
		t.Errorf("%d passes", passes)
	}
}

// mutation: Recover that goes on when its pass is over makes this fail.
func TestSession_RecoverEndsWithItsPass(t *testing.T) {
	q := &emptyQueue{}
	s, run, list := recovery(q, 50)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	input := func(context.Context, protocol.JobID) (json.RawMessage, error) { return json.RawMessage("{}"), nil }
	if more, err := s.Recover(ctx, run, q, list(), input); !more || err != nil || q.looked != 0 {
		t.Errorf("more %t, %d looks, %v", more, q.looked, err)
	}
}

// observed counts what a histogram is told.
type observed int

func (o *observed) Observe(float64) { *o++ }

// mutation: taken that measures what was found in its place makes this fail.
func TestSession_OnlyJobsThatGoOutAreMeasured(t *testing.T) {
	q := &emptyQueue{there: map[string]bool{"s1": true, "s2": true}}
	s, run, list := recovery(q, 3)
	var told observed
	s.all.Latency = &told
	for i := range run.Status.Steps {
		run.Status.Steps[i].DispatchedAt = &metav1.MicroTime{Time: s.all.Clock.Now()}
	}
	input := func(context.Context, protocol.JobID) (json.RawMessage, error) { return json.RawMessage("{}"), nil }
	if _, err := s.Recover(t.Context(), run, q, list(), input); err != nil || told != 1 {
		t.Errorf("%d are measured, %v", told, err)
	}
}
