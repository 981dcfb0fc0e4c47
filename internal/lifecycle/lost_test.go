// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: endLost that does nothing, fails what was answered or another attempt, lets a step try
// again, or leaves jobs where they may be, makes a case fail.
func TestAnAttemptThatIsLostFailsForGood(t *testing.T) {
	t.Parallel()
	const cause = "job.input: output a: the output is not in the object store"
	goesOn := func(s *v1alpha1.Step) { s.OnFailure = v1alpha1.FailureContinue }
	inFlight := newRun(newStep("a", goesOn), newStep("b"))
	items := newRun(newStep("a", forEach("${[1, 2, 3]}", 3, v1alpha1.Collect)), newStep("b"))
	fatal := newRun(newStep("a", forEach("${[1, 2, 3]}", 3, "")), newStep("b"))
	const unchanged = "Running/Running; a Dispatched; b Dispatched []"
	for name, c := range map[string]struct {
		run     *v1alpha1.WorkflowRun
		id      protocol.JobID
		lock    Lock
		results []Result
		want    string
	}{
		"a step":  {inFlight, job("a", 1), held(1), nil, "Running/Running; a Failed (ExpressionError: " + cause + "); b Dispatched [u-1/a/-/1]"},
		"an item": {items, itemJob("a", 1, 1), held(1), nil, "Running/Running; a Running (ExpressionError: item 1: " + cause + "); b Dispatched [u-1/a/1/1]"},
		"an item that fails its step": {
			fatal, itemJob("a", 1, 1), held(1), nil,
			"Failed/StepFailed; a Failed (ExpressionError: item 1: " + cause + "); b Cancelled [u-1/a/1/1 u-1/a/0/1 u-1/a/2/1 u-1/b/-/1]",
		},
		"one that was answered meanwhile":           {inFlight, job("a", 1), held(1), []Result{succeeded("a", 1, "1")}, "Running/Running; a Succeeded; b Dispatched []"},
		"an item that was answered meanwhile":       {items, itemJob("a", 1, 1), held(1), []Result{ofItem(1, succeeded("a", 1, "1"))}, "Running/Running; a Running; b Dispatched []"},
		"one whose answer waits for what it stored": {inFlight, job("a", 1), held(1), []Result{objects{}.put("a", 1, text(100<<10))}, unchanged},
		"a later attempt":                           {inFlight, job("a", 2), held(1), nil, unchanged},
		"of another run":                            {inFlight, protocol.JobID{RunUID: "u-2", Step: "a", Item: "-", Attempt: 1}, held(1), nil, unchanged},
		"while another has the lock":                {inFlight, job("a", 1), busy(), nil, unchanged},
	} {
		t.Run(name, func(t *testing.T) {
			run := c.run.DeepCopy()
			advance(t, run, epoch)
			in := letIn(Input{Run: run, Now: epoch, Lock: c.lock, Results: c.results, Lost: []LostJob{{ID: c.id, Cause: cause}}})
			out := Decide(in)
			var back []string
			for _, w := range out.Withdraw {
				back = append(back, w.ID.String())
			}
			if got := fmt.Sprint(told(&out.Status), " ", back); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			in.Run, in.Results = run.DeepCopy(), nil
			in.Run.Status = persisted(t, &out.Status)
			if again := Decide(in); out.Changed && again.Changed {
				t.Errorf("written twice: %s", told(&again.Status))
			}
		})
	}
}

// mutations: Budget that does nothing, or forgets Quick or More, makes this fail.
func TestARenderingWithABudgetStopsEarly(t *testing.T) {
	const items = 60
	run := newRun(newStep("all", forEach("${inputs.list}", items, ""), input(`{"n":"${item}","x":"${inputs.x + inputs.x}","y":"${inputs.x}"}`)))
	run.Spec.Inputs = raw(`{"list":` + numbers(items) + `,"x":"` + strings.Repeat("x", 55<<10) + `"}`)
	for len(InFlight(run)) < items {
		advance(t, run, epoch)
	}
	ids := InFlight(run)
	portion := func(quick bool) (bytes int) {
		r := render.New(run, nil, nil)
		r.Budget(quick)
		for n := 0; len(ids) > 0; n++ {
			j, err := r.Job(ids[0])
			if errors.Is(err, render.ErrEnough) && n > 0 {
				return bytes
			}
			if err != nil {
				t.Fatal(err)
			}
			bytes, ids = bytes+len(j.Input), ids[1:]
		}
		return bytes
	}
	quick, all := portion(true), []int(nil)
	for len(ids) > 0 {
		all = append(all, portion(false))
	}
	if len(all) < 3 || slices.Max(all) > bounds.MaxRenderedTogether+bounds.MaxRenderedBytes || quick > all[0]/2 {
		t.Errorf("bytes of portions: a quick one %d, the others %v", quick, all)
	}
}

// A run that no operator has looked at has nothing to render, with a budget or without.
func TestARenderingOfARunWithoutStatus(t *testing.T) {
	run := newRun(newStep("all"))
	run.Status = nil
	r := render.New(run, nil, nil)
	r.Budget(true)
	if _, err := r.Job(protocol.JobID{RunUID: string(run.UID), Step: "all", Attempt: 1}); !errors.Is(err, render.ErrNotInFlight) {
		t.Errorf("%v", err)
	}
}

// mutation: a LostError that hides its cause makes this fail.
func TestALostErrorHasItsCause(t *testing.T) {
	cause := errors.New("output is gone")
	if err := error(&render.LostError{Cause: cause}); !errors.Is(err, cause) || err.Error() != cause.Error() {
		t.Errorf("%v", err)
	}
}
