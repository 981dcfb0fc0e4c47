// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// page is a stream that always gives the same answers.
type page struct{ gives busresults.AnswerPage }

func (p page) Answers(context.Context, string, uint64) (busresults.AnswerPage, error) {
	return p.gives, nil
}

// manyAhead is a run that succeeded with step a, and had n steps begin ahead of that. What they
// render together is more than a pass may.
func manyAhead(n int) (*v1alpha1.WorkflowRun, []busresults.Answer) {
	pad := strings.Repeat(`"${inputs.pad}",`, 4) + `"${inputs.pad}"`
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "run", UID: "uid", CreationTimestamp: metav1.NewTime(epoch)},
		Spec: v1alpha1.WorkflowRunSpec{
			WorkloadClass: "default", MaxParallelSteps: int32(n), ActiveDeadlineSeconds: new(int32(30)), Steps: []v1alpha1.Step{step("a")},
			Inputs: &runtime.RawExtension{Raw: []byte(`{"pad":"` + strings.Repeat("x", 50_000) + `"}`)},
		},
	}
	answers := []busresults.Answer{{ID: attempt("a"), Result: protocol.Result{Status: protocol.StatusSucceeded}, PublishedAt: epoch}}
	for i := range n {
		name := fmt.Sprint("b", i)
		b := step(name, "a")
		b.Job.Input = &runtime.RawExtension{Raw: []byte(`{"pad":[` + pad + `]}`)}
		run.Spec.Steps = append(run.Spec.Steps, b)
		answers = append(answers, busresults.Answer{ID: attempt(name), Result: protocol.Result{Status: protocol.StatusSucceeded}, PublishedAt: epoch})
	}
	return run, answers
}

// largeItems is a run with a step over two items. Their outputs are with the object store, and have
// together more than a decision may load.
func largeItems() (run *v1alpha1.WorkflowRun, answers []busresults.Answer, objects map[string][]byte) {
	run, answers = manyAhead(0)
	each := step("b0")
	each.ForEach = &v1alpha1.ForEach{Items: "${[0, 1]}", MaxParallel: 2}
	run.Spec.MaxParallelSteps, run.Spec.Steps, objects = 2, append(run.Spec.Steps, each), map[string][]byte{}
	for _, item := range []string{"0", "1"} {
		id := attempt("b0")
		id.Item = item
		data := fmt.Appendf(nil, "%q", strings.Repeat(item, 5<<20))
		ref := protocol.NewOutputRef(id, data)
		objects[ref.Name] = data
		answers = append(answers, busresults.Answer{ID: id, Result: protocol.Result{Status: protocol.StatusSucceeded, OutputRef: &ref}, PublishedAt: epoch})
	}
	return run, answers, objects
}

// The lock of a run is not to be had, and its deadline is over. What was answered counts in the
// write of the end, as far as it can be had, and that comes within a minute or so.
//
// mutations: putOff without Missing fails "more expressions than a pass may evaluate", or "more
// outputs than a pass may load"; putOff without Heard fails "more results than are read at a time".
func TestADeadlineWithoutTheLockWaitsForAMinute(t *testing.T) {
	many, answers := manyAhead(30)
	few, some := manyAhead(2)
	items, referred, objects := largeItems()
	for name, c := range map[string]struct {
		run    *v1alpha1.WorkflowRun
		page   busresults.AnswerPage
		second v1alpha1.StepPhase
		says   string
	}{
		"more expressions than a pass may evaluate": {many, busresults.AnswerPage{Next: 32, Answers: answers}, v1alpha1.StepSucceeded, "more than a pass may evaluate"},
		"more results than are read at a time":      {few, busresults.AnswerPage{Next: 129, More: true, Answers: some[:2]}, v1alpha1.StepSucceeded, "more results than are read"},
		"more outputs than a pass may load":         {items, busresults.AnswerPage{Next: 4, Answers: referred}, v1alpha1.StepCancelled, "more than a pass may load"},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(epoch)
			in := lifecycle.Input{
				Run: c.run, Now: epoch, Tenant: lifecycle.Tenant{Name: "t", Allowed: true}, Permits: lifecycle.Permits{AnyClass: true, AnyTopic: true},
				Gate: lifecycle.Gate{State: lifecycle.GateOpen}, Checkpoint: lifecycle.Checkpoint{Coalesced: true},
				Lock: lifecycle.Lock{State: lifecycle.LockHeld, LeaseID: "l", Fence: 1, AcquiredAt: epoch},
			}
			began := lifecycle.Decide(in)
			c.run.Status = &began.Status
			in.Lock = lifecycle.Lock{State: lifecycle.LockBusy}
			stream := &results.Stream{Answers: page{c.page}, Clock: clk, Asked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "asked_total", Help: "Asked."}, []string{"outcome"})}
			asking := results.AskState{}
			var d lifecycle.Decision
			for clk.SetTime(epoch.Add(time.Minute)); !d.Changed; clk.SetTime(clk.Now().Add(actRetryDelay)) {
				p := &pass{questions: stream.Questions(&asking, 0), batch: &results.Batch{}}
				decide := func() {
					in.Now, in.Results, in.Answers = clk.Now(), p.batch.Facts(), p.questions.Answers()
					d = lifecycle.Decide(in)
				}
				in.Payloads = lifecycle.Payloads{}
				for decide(); len(d.Needs.Load) > 0 || d.Needs.Answers && p.questions.Ask(t.Context(), "uid", p.batch); {
					for _, ref := range d.Needs.Load {
						in.Payloads[ref.Name] = lifecycle.Payload{Data: objects[ref.Name]}
					}
					decide()
				}
				putOff(p, &d)
				if clk.Since(epoch) > time.Hour {
					t.Fatal("it never ends")
				}
			}
			if d.Status.Phase != v1alpha1.RunTimedOut || d.Status.Steps[0].Phase != v1alpha1.StepSucceeded || d.Status.Steps[1].Phase != c.second {
				t.Errorf("the run is %s, its first steps are %s and %s", d.Status.Phase, d.Status.Steps[0].Phase, d.Status.Steps[1].Phase)
			}
			if took := clk.Since(epoch) - time.Minute; took > time.Minute+2*actRetryDelay {
				t.Errorf("it waits for %s", took)
			}
			if known := asking; !strings.Contains(stream.Questions(&known, 0).Answers().Cause, c.says) {
				t.Errorf("it waited for: %s", stream.Questions(&known, 0).Answers().Cause)
			}
		})
	}
}
