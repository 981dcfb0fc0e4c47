// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// costly is an expression that takes nearly all that one may: each turn of the loops
// takes some units.
const costly = `inputs.l.all(a, inputs.l.all(b, a + b >= 0))`

// costlyRun has n steps with a condition and an input that take nearly all that they may.
func costlyRun(n int) *v1alpha1.WorkflowRun {
	steps := make([]v1alpha1.Step, n)
	for i := range steps {
		steps[i] = newStep(fmt.Sprintf("s%03d", i), when(costly), input(`{"x":"${`+costly+`}"}`))
	}
	run := newRun(steps...)
	run.Spec.MaxParallelSteps = int32(n)
	run.Spec.Inputs = raw(`{"l":` + numbers(120) + `}`)
	return run
}

// taken is what the expressions of a decision took.
func taken(d Decision) int {
	if d.Evaluated == nil {
		return 0
	}
	return d.Evaluated.Cost
}

// Mutation that this finds: evaluations.enough is always false (the first decision begins 200
// steps, for 40 million units).
func TestADecisionBeginsAsManyStepsAsItMayEvaluate(t *testing.T) {
	run := costlyRun(200)
	started := 0
	for decisions := 0; started < 200; decisions++ {
		if decisions == 200 {
			t.Fatalf("%d steps began with 200 decisions", started)
		}
		out := decideAt(run, epoch.Add(time.Duration(decisions)*time.Second), held(1))
		if len(out.Dispatch) == 0 {
			t.Fatalf("decision %d begins nothing", decisions)
		}
		for _, j := range out.Dispatch {
			if want := fmt.Sprintf("s%03d", started); j.ID.Step != want {
				t.Fatalf("step %s begins, want %s", j.ID.Step, want)
			}
			started++
		}
		if most := bounds.MaxDecisionCost + 4*expr.MaxCost; taken(out) > most {
			t.Fatalf("decision %d took %d units, more than %d", decisions, taken(out), most)
		}
		if left := started < 200; out.Cut != left || left && !out.Wake.Equal(epoch.Add(time.Duration(decisions)*time.Second+bounds.MinWake)) {
			t.Fatalf("after %d steps: cut %t, comes again at %s", started, out.Cut, out.Wake)
		}
		run.Status = persisted(t, &out.Status)
	}
}

// Mutation that this finds: bounds.MaxDecisionCost for each step with forEach.
func TestItemsOfAllStepsShareWhatADecisionMayEvaluate(t *testing.T) {
	steps := make([]v1alpha1.Step, bounds.MaxForEachSteps)
	for i := range steps {
		steps[i] = newStep(fmt.Sprintf("s%02d", i), forEach("${inputs.l}", 100, v1alpha1.Collect), input(`{"x":"${`+costly+`}"}`))
	}
	run := newRun(steps...)
	run.Spec.Inputs = raw(`{"l":` + numbers(120) + `}`)
	items := 0
	for k := range 3 {
		out := decideAt(run, epoch.Add(time.Duration(k)*time.Second), held(1))
		if most := bounds.MaxDecisionCost + 4*expr.MaxCost; taken(out) > most {
			t.Errorf("decision %d took %d units, more than %d", k, taken(out), most)
		}
		items += len(out.Dispatch)
		run.Status = persisted(t, &out.Status)
	}
	if items < 3 {
		t.Errorf("%d items began with 3 decisions", items)
	}
}

// Mutation that this finds: Decision.Evaluated is forgotten, or its key lacks what
// the expression sees.
func TestAnExpressionIsEvaluatedOnceInAPass(t *testing.T) {
	run := costlyRun(3)
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1)})
	first := Decide(in)
	in.Evaluated = first.Evaluated
	again := Decide(in)
	if taken(again) != taken(first) {
		t.Errorf("the second decision took %d units more", taken(again)-taken(first))
	}
	if diff := cmp.Diff(first.Dispatch, again.Dispatch); diff != "" || len(again.Dispatch) == 0 {
		t.Errorf("it begins other steps: %s", diff)
	}
}

// What is known from one decision of a pass must not stand for what the next one sees otherwise.
func TestAnExpressionThatSeesAnotherStateIsEvaluatedAgain(t *testing.T) {
	run := newRun(newStep("a"), newStep("b", after("a"), input(`{"x":"${steps.a.output}"}`)))
	run.Status = persisted(t, &[]Decision{decideAt(run, epoch, held(1))}[0].Status)
	one := letIn(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{succeeded("a", 1, `1`)}})
	two := one
	two.Results = []Result{succeeded("a", 1, `2`)}
	two.Evaluated = Decide(one).Evaluated
	out := Decide(two)
	if len(out.Dispatch) != 1 || string(out.Dispatch[0].Input) != `{"x":2}` {
		t.Errorf("dispatched %+v", out.Dispatch)
	}
}

func TestAGlanceEvaluatesNothing(t *testing.T) {
	run := costlyRun(2)
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Glance: true})
	if out := Decide(in); !out.Changed || taken(out) != 0 || len(out.Dispatch) > 0 {
		t.Errorf("changed %t, took %d units, dispatches %d jobs", out.Changed, taken(out), len(out.Dispatch))
	}
	for range 2 {
		run.Status = persisted(t, &[]Decision{decideAt(run, epoch, held(1))}[0].Status)
	}
	in.Run = run
	if out := Decide(in); out.Changed {
		t.Errorf("nothing is to begin, and it says that there is: %+v", out.Status)
	}
}

// The inputs that one decision renders are bounded together: 200 steps with 256 KiB each would
// be 50 MiB.
//
// Mutation that this finds: Evaluated.Bytes is not counted.
func TestADecisionRendersSoManyBytesAtMost(t *testing.T) {
	steps := make([]v1alpha1.Step, 100)
	for i := range steps {
		steps[i] = newStep(fmt.Sprintf("s%03d", i), input(`{"x":["${inputs.t}","${inputs.t}","${inputs.t}"]}`))
	}
	run := newRun(steps...)
	run.Spec.MaxParallelSteps = 100
	text, _ := json.Marshal(map[string]string{"t": string(make([]byte, 10_000))})
	run.Spec.Inputs = raw(string(text))
	out := decideAt(run, epoch, held(1))
	bytes := 0
	for _, j := range out.Dispatch {
		bytes += len(j.Input)
	}
	if bytes == 0 || bytes > bounds.MaxRenderedTogether+bounds.MaxRenderedBytes {
		t.Errorf("%d jobs have %d bytes", len(out.Dispatch), bytes)
	}
}

// BenchmarkCostlyDecision is one decision of the worst run that is valid, for the figure in the
// documentation of this package.
func BenchmarkCostlyDecision(b *testing.B) {
	run := costlyRun(200)
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Evaluated: &Evaluated{Valid: true}})
	for b.Loop() {
		if out := Decide(in); len(out.Dispatch) == 0 {
			b.Fatal("nothing begins")
		}
	}
}

// A quick decision leaves what takes long, and says so; the whole decision after it does it.
//
// mutation: evaluations.limit that is always 0, or leave that is always false, makes cases fail.
func TestAQuickDecisionLeavesWhatTakesLong(t *testing.T) {
	outputs := newRun(newStep("a"))
	outputs.Spec.Inputs, outputs.Spec.Outputs = raw(`{"l":`+numbers(120)+`}`), raw(`{"x":"${`+costly+`}"}`)
	advance(t, outputs, epoch)
	list := newRun(newStep("a", forEach("${inputs.l.filter(a, inputs.l.all(b, a + b >= 0))}", 3, v1alpha1.Collect)))
	list.Spec.Inputs = raw(`{"l":` + numbers(120) + `}`)
	for name, c := range map[string]struct {
		run     *v1alpha1.WorkflowRun
		results []Result
		done    func(st *v1alpha1.WorkflowRunStatus) bool
	}{
		"a condition and an input": {run: costlyRun(1), done: func(st *v1alpha1.WorkflowRunStatus) bool { return st.Steps[0].Phase == v1alpha1.StepDispatched }},
		"a list":                   {run: list, done: func(st *v1alpha1.WorkflowRunStatus) bool { return st.Steps[0].Phase == v1alpha1.StepRunning }},
		"the outputs of a run": {run: outputs, results: []Result{succeeded("a", 1, "1")}, done: func(st *v1alpha1.WorkflowRunStatus) bool {
			return st.Phase == v1alpha1.RunSucceeded
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in := letIn(Input{Run: c.run, Now: epoch, Lock: held(1), Results: c.results, Quick: true})
			if out := Decide(in); !out.Cut || c.done(&out.Status) {
				t.Errorf("quick: cut %t, the run is %s, its step %s", out.Cut, out.Status.Phase, out.Status.Steps[0].Phase)
			}
			in.Quick = false
			if out := Decide(in); !c.done(&out.Status) {
				t.Errorf("whole: the run is %s, its step %+v", out.Status.Phase, out.Status.Steps[0])
			}
		})
	}
}
