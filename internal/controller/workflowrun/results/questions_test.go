// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// stored is a stream that gives a page, or an error.
type stored struct {
	page busresults.AnswerPage
	err  error
	asks int
	from uint64 // that of the last question
}

func (s *stored) Answers(_ context.Context, _ string, from uint64) (busresults.AnswerPage, error) {
	s.asks++
	s.from = from
	return s.page, s.err
}

// NATS is away for a moment, and then no pass comes for more than a minute. By then there are more
// answers than are read at a time.
//
// mutations: a page that does not begin the patience anew, and a question that is not asked because
// the one before failed, make this fail.
func TestAnswersThatComeInPagesAreNotGivenUp(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	s := &stored{err: errTest}
	asked := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "asked_total", Help: "Asked."}, []string{"outcome"})
	stream, memory := &Stream{Answers: s, Clock: clk, Asked: asked}, &AskState{}
	stream.Questions(memory, 0).Ask(t.Context(), "run", newBatch(0, policy.Effective{}))
	since := memory.since
	for {
		q := stream.Questions(memory, 0)
		known := q.Answers()
		if known.GivenUp(clk.Now()) {
			break
		}
		clk.SetTime(clk.Now().Add(time.Second))
	}
	memory.next = clk.Now().Add(time.Hour) // a refusal of the API server put it off
	s.page, s.err = busresults.AnswerPage{Next: 129, More: true, Answers: []busresults.Answer{{
		ID: protocol.JobID{RunUID: "run", Step: "a", Item: protocol.NoItem, Attempt: 1}, Result: protocol.Result{Status: protocol.StatusSucceeded}, PublishedAt: since,
	}}}, nil
	q := stream.Questions(memory, 0)
	if again := q.Ask(t.Context(), "run", newBatch(0, policy.Effective{})); !again || s.asks != 2 {
		t.Errorf("asked %d times, and the decision has more: %t", s.asks, again)
	}
	if known := q.Answers(); known.GivenUp(clk.Now()) {
		t.Errorf("what comes after the first page is given up: missing since %s", known.MissingSince)
	}
}

// The API server takes no write for two minutes. The first page of answers was found before, and is
// found again: it did not wait for the object store.
//
// mutation: a page that is taken for stuck before it was decided on makes this fail.
func TestAPageThatCouldNotBeWrittenIsNews(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	s := &stored{page: busresults.AnswerPage{Next: 129, More: true, Answers: []busresults.Answer{{
		ID: protocol.JobID{RunUID: "run", Step: "a", Item: protocol.NoItem, Attempt: 1}, Result: protocol.Result{Status: protocol.StatusSucceeded}, PublishedAt: clk.Now(),
	}}}}
	stream := &Stream{Answers: s, Clock: clk, Asked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "asked_total", Help: "Asked."}, []string{"outcome"})}
	memory := &AskState{}
	stream.Questions(memory, 0).Ask(t.Context(), "run", newBatch(0, policy.Effective{}))
	clk.SetTime(clk.Now().Add(2 * time.Minute))
	q := stream.Questions(memory, 0)
	q.Ask(t.Context(), "run", newBatch(0, policy.Effective{}))
	if known := q.Answers(); s.asks != 2 || known.GivenUp(clk.Now()) {
		t.Errorf("asked %d times, missing since %s", s.asks, known.MissingSince)
	}
}

// NATS lost its data, and numbers what it stores from 1 again: what was read and stuck before is
// not what it has now.
//
// mutations: Ask that keeps what was stuck, or from where it goes on, over a loss makes this fail.
func TestWhatWasReadIsForgottenWithTheStream(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	s := &stored{page: busresults.AnswerPage{Next: 129, More: true, Answers: []busresults.Answer{{
		ID: protocol.JobID{RunUID: "run", Step: "a", Item: protocol.NoItem, Attempt: 1}, Result: protocol.Result{Status: protocol.StatusSucceeded}, PublishedAt: clk.Now(),
	}}}}
	stream := &Stream{Answers: s, Clock: clk, Asked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "asked_total", Help: "Asked."}, []string{"outcome"})}
	memory := &AskState{}
	for _, c := range []struct {
		losses  uint64
		verdict lifecycle.Verdict
		from    uint64
		givenUp bool
	}{
		{0, lifecycle.Waiting, 0, false},
		{0, lifecycle.Applied, 0, true},
		{0, lifecycle.Applied, 129, true},
		{1, lifecycle.Applied, 0, false},
	} {
		q, x := stream.Questions(memory, c.losses), newBatch(0, policy.Effective{})
		q.Ask(t.Context(), "run", x)
		if known := q.Answers(); s.from != c.from || known.GivenUp(clk.Now()) != c.givenUp {
			t.Errorf("after %d losses: asked from %d, missing since %s; want from %d, given up %t", c.losses, s.from, known.MissingSince, c.from, c.givenUp)
		}
		q.Heard(lifecycle.Decision{Deferred: true, Verdicts: []lifecycle.Verdict{c.verdict}}, x)
		clk.SetTime(clk.Now().Add(2 * time.Minute))
	}
}

// A page of news that attempts began which status does not have holds up no other: it can never
// get there before what it follows from, which is on the next page.
//
// mutations: allCount that takes Started for an answer, or each that is ahead, or unusable, for
// news, makes a case of this fail.
func TestThatAttemptsAheadBeganHoldsNoPageUp(t *testing.T) {
	for name, c := range map[string]struct {
		status   protocol.ResultStatus
		rejected error
		verdict  lifecycle.Verdict
		from     uint64
	}{
		"began ahead":      {protocol.StatusStarted, nil, lifecycle.Ahead, 129},
		"waits":            {protocol.StatusStarted, nil, lifecycle.Waiting, 0},
		"succeeded ahead":  {protocol.StatusSucceeded, nil, lifecycle.Ahead, 0},
		"unusable ahead":   {protocol.StatusStarted, errTest, lifecycle.Ahead, 0},
		"counts for a job": {protocol.StatusSucceeded, nil, lifecycle.Applied, 129},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
			s := &stored{page: busresults.AnswerPage{Next: 129, More: true, Answers: []busresults.Answer{{
				ID: protocol.JobID{RunUID: "run", Step: "b", Item: protocol.NoItem, Attempt: 1}, Result: protocol.Result{Status: c.status}, Rejected: c.rejected, PublishedAt: clk.Now(),
			}}}}
			stream := &Stream{Answers: s, Clock: clk, Asked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "asked_total", Help: "Asked."}, []string{"outcome"})}
			memory := &AskState{}
			q, x := stream.Questions(memory, 0), newBatch(0, policy.Effective{})
			q.Ask(t.Context(), "run", x)
			q.Heard(lifecycle.Decision{Deferred: true, Verdicts: []lifecycle.Verdict{c.verdict}}, x)
			stream.Questions(memory, 0).Ask(t.Context(), "run", newBatch(0, policy.Effective{}))
			if s.asks != 2 || s.from != c.from {
				t.Errorf("asked %d times, last from %d; want from %d", s.asks, s.from, c.from)
			}
		})
	}
}

// withoutStore is a shell whose object store never answers, with one result of one run: it was
// delivered, the stream has it still, and its output is one for the store.
type withoutStore struct {
	stream *Stream
	clock  *clocktesting.FakePassiveClock
	memory AskState
	run    *v1alpha1.WorkflowRun
	answer lifecycle.Result
	writes int
}

// pass decides until nothing more can be found out, and writes what changed.
func (s *withoutStore) pass(t *testing.T, deliver bool) {
	q, x := s.stream.Questions(&s.memory, 0), newBatch(0, policy.Effective{})
	if deliver {
		x.apply = append(x.apply, &Pending{Fact: s.answer})
	}
	for {
		d := lifecycle.Decide(lifecycle.Input{
			Run: s.run, Now: s.clock.Now(), Tenant: lifecycle.Tenant{Name: "t", Allowed: true}, Permits: lifecycle.Permits{AnyClass: true, AnyTopic: true},
			Gate: lifecycle.Gate{State: lifecycle.GateOpen}, Lock: lifecycle.Lock{State: lifecycle.LockHeld, LeaseID: "l", Fence: 1, AcquiredAt: s.clock.Now()},
			Results: x.Facts(), Answers: q.Answers(),
		})
		if d.Needs.Answers && q.Ask(t.Context(), s.run.UID, x) {
			continue
		}
		if d.Needs.Outputs() && d.Deferred {
			q.Missing(time.Second, "no leader")
		}
		if d.Changed {
			s.run.Status = d.Status.DeepCopy()
			s.writes++
		}
		q.Heard(d, x)
		return
	}
}

// A result whose output waits for the object store is no news, however often the stream gives it:
// the time-outs wait for a minute, and not for as long as the store is away.
//
// mutations: heardSome that begins the patience anew for a page without More, or for one that was
// stuck before, and Heard that forgets that it was, make cases of this fail.
func TestAResultThatWaitsForTheObjectStoreHoldsNoDeadlineUp(t *testing.T) {
	for name, c := range map[string]struct {
		more     bool
		deadline *int32 // of the run; nil: the attempt times out
	}{
		"the run's deadline":                    {false, new(int32(60))},
		"the attempt's time-out":                {false, nil},
		"one of more than are read at a time":   {true, new(int32(60))},
		"one of more than are read, an attempt": {true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			const attempt = 70 // by then the run's deadline has come, too
			begin := time.Unix(1000, 0)
			id := protocol.JobID{RunUID: "run", Step: "a", Item: protocol.NoItem, Attempt: 1}
			found := busresults.Answer{ID: id, Result: protocol.Result{Status: protocol.StatusSucceeded, Output: []byte(`"` + strings.Repeat("x", 5000) + `"`)}, PublishedAt: begin}
			s := &withoutStore{
				clock: clocktesting.NewFakePassiveClock(begin),
				run: &v1alpha1.WorkflowRun{
					ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "ns", UID: "run", CreationTimestamp: metav1.Time{Time: begin}},
					Spec: v1alpha1.WorkflowRunSpec{WorkloadClass: "default", MaxParallelSteps: 1, ActiveDeadlineSeconds: c.deadline, Steps: []v1alpha1.Step{{
						Name: "a", Job: &v1alpha1.Job{Topic: "t"}, TimeoutSeconds: attempt, StartTimeoutSeconds: attempt, Retry: v1alpha1.Retry{MaxFailures: 1},
					}}},
				},
				answer: lifecycle.Result{ID: id, Result: found.Result, PublishedAt: begin},
			}
			s.stream = &Stream{
				Clock: s.clock, Asked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "asked_total", Help: "Asked."}, []string{"outcome"}),
				Answers: &stored{page: busresults.AnswerPage{Next: 129, More: c.more, Answers: []busresults.Answer{found}}},
			}
			s.pass(t, false)
			begun := s.writes
			for !lifecycle.Finished(s.run) && s.clock.Since(begin) < time.Hour {
				s.clock.SetTime(s.clock.Now().Add(time.Second))
				s.pass(t, true)
			}
			// The patience is a minute, and another one for a first page that has more.
			if took := s.clock.Since(begin); took > attempt*time.Second+2*time.Minute {
				t.Errorf("the run is %s after %s", s.run.Status.Phase, took)
			}
			if n := s.writes - begun; n > 3 {
				t.Errorf("%d status writes", n)
			}
		})
	}
}
