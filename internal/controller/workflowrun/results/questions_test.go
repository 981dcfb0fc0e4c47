// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// stored is a stream that gives a page, or an error.
type stored struct {
	page busresults.AnswerPage
	err  error
	asks int
}

func (s *stored) Answers(context.Context, string, uint64) (busresults.AnswerPage, error) {
	s.asks++
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
