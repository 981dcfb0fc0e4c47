// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch/backlog"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// answering is a queue that says of each step what became of its job, and what was asked.
type answering struct {
	emptyQueue
	says  map[string]error
	found map[string]jobs.RecoverOutcome
	mu    sync.Mutex
	asked int
}

func (q *answering) Publish(_ context.Context, j jobs.Job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked++
	return q.says[j.ID.Step]
}

func (q *answering) Recover(ctx context.Context, j jobs.Job) (jobs.RecoverOutcome, error) {
	if where := q.found[j.ID.Step]; where != 0 {
		return where, nil
	}
	if _, err := j.Render(ctx); err != nil {
		return 0, err
	}
	return jobs.Published, q.Publish(ctx, j)
}

// held is what a room holds.
func held(r *backlog.Room) (bytes float64) {
	out := make(chan prometheus.Metric, 10)
	r.Collect(out)
	close(out)
	for m := range out {
		var d dto.Metric
		if strings.Contains(m.Desc().String(), `"syncopate_job_share_bytes"`) && m.Write(&d) == nil {
			bytes = d.GetGauge().GetValue()
		}
	}
	return bytes
}

// sharing is a pass over a run with so many steps in flight, in a room of so many bytes.
func sharing(q *answering, n int, limit int64) (s *Session, run *v1alpha1.WorkflowRun, list func() []lifecycle.Job) {
	s, run, list = recovery(&q.emptyQueue, n)
	s.all.Jobs = q
	s.all.Backlog = backlog.New(func() backlog.Stream { return backlog.Stream{Limit: limit} }, func() (int, int) { return 64, 64 })
	return s, run, list
}

const aBit = 10 << 10

func input(context.Context, protocol.JobID) (json.RawMessage, error) {
	return json.RawMessage(strings.Repeat("1", aBit)), nil
}

// mutations: giveBack without one of its errors, or with another; recoverOne that keeps what has
// its answer, or forgets what is queued; Tidy that forgets what is to be withdrawn.
func TestSession_AJobHoldsItsShareWhileItMayBeInTheStream(t *testing.T) {
	for name, c := range map[string]struct {
		says  error
		found jobs.RecoverOutcome
		holds bool
	}{
		"published":                     {holds: true},
		"no answer":                     {says: errAway, holds: true},
		"NATS does not answer":          {says: bus.ErrUnreachable, holds: true},
		"NATS has no room":              {says: fmt.Errorf("publish: %w", bus.ErrNoRoom)},
		"too many topics":               {says: jobs.ErrTooManyTopics},
		"for the next pass":             {says: render.ErrEnough},
		"cannot be rendered":            {says: &render.LostError{Cause: errAway}},
		"in the stream":                 {found: jobs.Queued, holds: true},
		"done, and its answer is there": {found: jobs.Answered},
	} {
		t.Run(name, func(t *testing.T) {
			q := &answering{says: map[string]error{"s1": c.says}, found: map[string]jobs.RecoverOutcome{"s1": c.found}}
			s, run, list := sharing(q, 1, 1<<20)
			_, _ = s.Recover(t.Context(), run, q, list(), input)
			if holds := held(s.all.Backlog) > 0; holds != c.holds {
				t.Errorf("it holds something: %t", holds)
			}
			if c.found == 0 {
				fresh := s.all.Session(&State{}, 1)
				s.all.Backlog.Forget("uid")
				_ = fresh.Publish(t.Context(), run, q, []lifecycle.Job{{ID: attempt("s1"), Topic: "t"}})
				if holds := held(s.all.Backlog) > 0; holds != c.holds {
					t.Errorf("published: it holds something: %t", holds)
				}
			}
			run.Status.Steps[0].Phase = v1alpha1.StepSucceeded
			s.Tidy(run, []lifecycle.Withdrawal{{ID: attempt("s1")}})
			if c.holds && held(s.all.Backlog) == 0 {
				t.Error("what is still to be withdrawn is given back")
			}
			if s.Tidy(run, nil); held(s.all.Backlog) != 0 {
				t.Errorf("after its end it holds %v", held(s.all.Backlog))
			}
		})
	}
}

// mutations: a refusal that is an error, or is published; recoverOne that asks NATS about what has
// no share; OnlyShare that takes it for one of NATS.
func TestSession_WhatHasNoShareIsKeptBack(t *testing.T) {
	q := &answering{}
	s, run, list := sharing(q, 30, 16*aBit) // 14 of 16 may be held, a third of it by a run
	more, err := s.Recover(t.Context(), run, q, list(), input)
	left := len(s.Lacks(run))
	if more || err != nil || q.asked != 30-left || left < 25 {
		t.Fatalf("%d are left, %d published, more %t (%v)", left, q.asked, more, err)
	}
	if tried, refused := s.Room(); !tried || !refused || !s.OnlyShare() || !s.Refused(s.Lacks(run)) {
		t.Errorf("tried %t, refused %t, by its share alone %t", tried, refused, s.OnlyShare())
	}
	q.looked = 0
	refused := list()[:0:0]
	for _, j := range list() {
		if s.gate.known(j.ID) > 0 {
			refused = append(refused, j)
		}
	}
	next := s.all.Session(s.State, 1)
	asked := func(context.Context, protocol.JobID) (json.RawMessage, error) {
		t.Error("what is known to have no share is rendered")
		return nil, nil
	}
	if _, err := next.Recover(t.Context(), run, q, refused, asked); err != nil || len(refused) == 0 || !next.OnlyShare() {
		t.Errorf("of %d: %v", len(refused), err)
	}
	next.gate.note(lifecycle.Job{ID: attempt("s1")}, 1, errors.Join(bus.ErrNoRoom))
	if next.OnlyShare() {
		t.Error("NATS refused one, and its share is said to be used up")
	}
	fresh := s.all.Session(s.State, 1)
	job := lifecycle.Job{ID: attempt("fresh"), Topic: "t", Input: json.RawMessage(strings.Repeat("1", aBit))}
	before := q.asked
	if err := fresh.Publish(t.Context(), run, q, []lifecycle.Job{job}); err != nil || q.asked != before || !fresh.OnlyShare() {
		t.Errorf("a fresh one is published %d times (%v)", q.asked-before, err)
	}
}

// counting counts fences.
type counting struct {
	answering
	fences atomic.Int32
}

func (q *counting) Fence(context.Context, jobs.Job) (uint64, error) {
	return uint64(q.fences.Add(1)), nil
}

// A run has thousands of attempts in flight, and changes hands.
//
// mutations: Fence without withRoom, or without its error; Tidy, Forget and Leave without those of
// fences.
func TestSession_FencesTakeAShareOfTheReserve(t *testing.T) {
	q := &counting{}
	s, run, list := sharing(&q.answering, 3000, 1<<20)
	s.all.Jobs = q
	if err := s.Fence(t.Context(), run, "mine", list(), 8); !errors.Is(err, errShareUsed) || !s.OnlyShare() {
		t.Errorf("there are fences for all: %v", err)
	}
	if n := q.fences.Load(); n < 50 || n > 200 { // a third of 128 KiB
		t.Errorf("%d fences were stored", n)
	}
	used := func() bool {
		return !s.all.Backlog.Fences().Take("", protocol.JobID{RunUID: "other", Step: "a", Item: protocol.NoItem, Attempt: 1}, 1<<17)
	}
	if !used() {
		t.Error("the fences hold nothing")
	}
	for name, forget := range map[string]func(){
		"the run is forgotten": func() { s.all.Forget(string(run.UID)) },
		"the run is another's": func() { s.all.Leave(func(uid string) bool { return uid == string(run.UID) }) },
		"its attempts are over": func() {
			s.Tidy(&v1alpha1.WorkflowRun{ObjectMeta: run.ObjectMeta, Status: &v1alpha1.WorkflowRunStatus{}}, nil)
		},
	} {
		s.all.Backlog.Fences().Forget("other")
		s.all.Backlog.Fences().Found("", protocol.JobID{RunUID: string(run.UID), Step: "s1", Item: protocol.NoItem, Attempt: 1}, 500)
		if forget(); used() {
			t.Errorf("%s, and its fences hold something", name)
		}
	}
}
