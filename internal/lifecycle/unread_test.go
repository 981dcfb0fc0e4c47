// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// manyExpressions is a run of steps with so many expressions each, none of which is like another.
func manyExpressions(steps, each int) *v1alpha1.WorkflowRun {
	all := make([]v1alpha1.Step, 0, steps)
	for i := range steps {
		var b strings.Builder
		for j := range each {
			fmt.Fprintf(&b, `,"k%d":"${[%d].map(x, x + %d).size()}"`, j, i, j)
		}
		all = append(all, newStep(fmt.Sprintf("s%d", i), input("{"+b.String()[1:]+"}")))
	}
	run := newRun(all...)
	run.Spec.MaxParallelSteps = int32(steps)
	return run
}

// A valid spec takes seconds to validate if it is full of expressions, and it is validated before
// anything is known of it.
//
// mutations: initialize that does not heed Quick, or Glance; decideUnread that says that nothing is
// left; a meter without Pause.
func TestALongSpecIsNotReadQuickly(t *testing.T) {
	run := manyExpressions(50, 10)
	pauses := 0
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Quick: true, Pause: func() { pauses++ }, Yield: func() bool { pauses++; return true }})
	quick := Decide(in)
	if diff := cmp.Diff(Decision{Status: stored(run), Verdicts: []Verdict{}, Cut: true, Wake: epoch.Add(bounds.MinWake)}, quick); diff != "" || pauses > 400 {
		t.Errorf("quick, after %d expressions: %s", pauses, diff)
	}
	pauses, in.Glance = 0, true
	if glance := Decide(in); !glance.Changed || glance.Cut || len(glance.Status.Steps) > 0 || pauses > 0 {
		t.Errorf("a glance, after %d expressions: %+v", pauses, glance)
	}
	pauses, in.Glance, in.Quick = 0, false, false
	whole := Decide(in)
	if len(whole.Dispatch) == 0 || whole.Evaluated == nil || !whole.Evaluated.Valid || pauses < 500 {
		t.Fatalf("whole: dispatches %d, %+v, %d pauses", len(whole.Dispatch), whole.Evaluated, pauses)
	}
	in.Yield = func() bool { return false }
	if over := Decide(in); !over.Cut || len(over.Status.Steps) > 0 {
		t.Errorf("when its time is over: cut %t, %d steps", over.Cut, len(over.Status.Steps))
	}
	pauses, in.Quick, in.Evaluated = 0, true, &Evaluated{Valid: true}
	if known := Decide(in); len(known.Status.Steps) != 50 || pauses > 200 {
		t.Errorf("known to be valid: %d steps, %d pauses", len(known.Status.Steps), pauses)
	}
}

// What is wrong with a long spec is found, also in child runs, and by who has the time for it.
//
// mutation: validate that takes what it has not read for a mistake, or does not hand on that a
// child run was not read.
func TestWhatIsWrongWithALongSpec(t *testing.T) {
	long := manyExpressions(50, 10)
	spec, err := json.Marshal(v1alpha1.WorkflowRunSpec{Steps: long.Spec.Steps})
	if err != nil {
		t.Fatal(err)
	}
	nested := newRun(newStep("c"))
	nested.Spec.Steps[0].Job, nested.Spec.Steps[0].Run = nil, &v1alpha1.ChildRun{Spec: runtime.RawExtension{Raw: spec}}
	outputs := manyExpressions(1, 1)
	outputs.Spec.Outputs = raw(`{"z":"${nothing}"}`)
	wrong := manyExpressions(50, 10)
	wrong.Spec.Steps[49].When = "steps.nobody.phase == 'Failed'"
	for name, c := range map[string]struct {
		run   *v1alpha1.WorkflowRun
		quick bool // finds it
		valid bool
	}{
		"nothing":                {long, false, true},
		"nothing in a child run": {nested, false, true},
		"its last step":          {wrong, false, false},
		"its outputs":            {outputs, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := letIn(Input{Run: c.run, Now: epoch, Lock: held(1), Quick: true})
			if out := Decide(in); out.Cut == c.quick || (out.Status.Phase == v1alpha1.RunFailed) != c.quick {
				t.Errorf("quick: cut %t, %s", out.Cut, out.Status.Phase)
			}
			in.Quick = false
			if out := Decide(in); (out.Status.Phase == v1alpha1.RunFailed) == c.valid {
				t.Errorf("whole: %s, %s", out.Status.Phase, told(&out.Status))
			}
		})
	}
}

// A quick decision compiles the expressions of no more steps than it evaluates, and of no step
// whose template is large.
//
// mutations: Render, or Wanted, that looks what a template reads before it is known whether it may
// be evaluated; ItemRenderer, or withItems, without tooLarge.
func TestAQuickDecisionCompilesLittle(t *testing.T) {
	small, large := manyExpressions(100, 5), manyExpressions(5, 200)
	conditions := manyExpressions(100, 1)
	for i := range conditions.Spec.Steps {
		conditions.Spec.Steps[i].When = fmt.Sprintf("[%d].map(x, x + 1).size() == 1", i)
	}
	items := manyExpressions(1, 150)
	items.Spec.Steps[0].ForEach = &v1alpha1.ForEach{Items: "${[1,2]}"}
	for name, c := range map[string]struct {
		run  *v1alpha1.WorkflowRun
		most int
	}{
		"small ones": {small, bounds.MaxQuickCost / 500}, "large ones": {large, 5}, "conditions": {conditions, bounds.MaxQuickCost / 500},
		"those of items": {items, 10},
	} {
		t.Run(name, func(t *testing.T) {
			pauses := 0
			in := letIn(Input{Run: c.run, Now: epoch, Lock: held(1), Quick: true, Evaluated: &Evaluated{Valid: true}, Pause: func() { pauses++ }})
			out := Decide(in)
			if !out.Cut || pauses > 3*c.most {
				t.Errorf("cut %t after %d pauses", out.Cut, pauses)
			}
			in.Quick = false
			if out := Decide(in); len(out.Dispatch) == 0 {
				t.Error("nothing goes out")
			}
		})
	}
}

// A list and its items may read outputs that find no room together. That is told when the step
// begins, by a quick decision, too: later its items would be lost.
//
// mutation: List that goes on where it leaves out what items read.
func TestAQuickDecisionLeavesAListThatReadsOutputs(t *testing.T) {
	wide := newStep("wide", forEach("${[steps.a.output]}", 1, v1alpha1.Collect), input(`{"pad":"`+strings.Repeat("x", 2*bounds.MaxQuickBytes)+`","v":"${steps.b.output}"}`))
	wide.DependsOn = []string{"a", "b"}
	run := newRun(newStep("a"), newStep("b"), wide)
	advance(t, run, epoch)
	payloads := Payloads{}
	for i := range 2 {
		s := &run.Status.Steps[i]
		ref := protocol.NewOutputRef(job(s.Name, 1), []byte(`"`+s.Name+`"`))
		ref.Size = bounds.MaxLoadedBytes/2 + 1
		s.Phase, s.CompletedAt, s.OutputRef = v1alpha1.StepSucceeded, s.DispatchedAt, reference(ref)
		payloads[ref.Name] = Payload{Data: []byte(`"` + s.Name + `"`)}
	}
	in := letIn(Input{Run: run, Now: epoch.Add(time.Second), Lock: held(1), Payloads: payloads, Quick: true})
	quick := Decide(in)
	if !quick.Cut || len(quick.Lists) > 0 || quick.Status.Steps[2].Phase != v1alpha1.StepPending {
		t.Errorf("quick: cut %t, lists %v, the step is %s", quick.Cut, quick.Lists, quick.Status.Steps[2].Phase)
	}
	in.Quick, in.Lists = false, quick.Lists
	if whole := Decide(in); whole.Status.Steps[2].Phase != v1alpha1.StepFailed || !strings.Contains(whole.Status.Steps[2].Error.Message, "bytes in all") {
		t.Errorf("whole: %+v", whole.Status.Steps[2])
	}
}

// readsStored is a run whose first step has its output in the object store, which the conditions
// of the others read. condition gives the rest of the one of a step.
func readsStored(t *testing.T, steps int, condition func(i int) string) *v1alpha1.WorkflowRun {
	t.Helper()
	all := []v1alpha1.Step{newStep("a")}
	for i := range steps {
		all = append(all, newStep(fmt.Sprintf("s%d", i), after("a"), when("steps.a.output == 1 && "+condition(i))))
	}
	run := newRun(all...)
	run.Spec.MaxParallelSteps = int32(steps)
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Evaluated: &Evaluated{Valid: true}})
	run.Status = persisted(t, &[]Decision{Decide(in)}[0].Status)
	s := &run.Status.Steps[0]
	s.Phase, s.CompletedAt, s.OutputRef = v1alpha1.StepSucceeded, s.DispatchedAt, reference(protocol.NewOutputRef(job("a", 1), []byte("1")))
	return run
}

// What reads an output that is not loaded yet is compiled to find that out, and is not evaluated.
//
// mutations: a meter of a quick decision without a bound, one that is made anew for each
// expression, Wanted, readsOf, withItems or List that takes what is not compiled for a mistake, and
// a desk that has the bound.
func TestAQuickDecisionCompilesLittleOfWhatReadsStoredOutputs(t *testing.T) {
	sums := strings.Repeat("+[]", 95)
	for name, c := range map[string]struct {
		steps    int
		text     func(i int) string
		compiled int // at most, by a quick decision
		cut      bool
	}{
		"each takes long":     {50, func(i int) string { return fmt.Sprintf("[%d]%s != []", i, sums) }, 0, true},
		"together they do":    {60, func(i int) string { return fmt.Sprintf("[%d].map(x, x + 1).map(x, x + 2).size() == 1", i) }, 30, true},
		"none does":           {20, func(i int) string { return fmt.Sprintf("run.name != '%d'", i) }, 20, false},
		"one stands all over": {60, func(int) string { return "[7].map(x, x + 1).map(x, x + 2).size() == 1" }, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			run, pauses := readsStored(t, c.steps, c.text), 0
			in := letIn(Input{Run: run, Now: epoch.Add(time.Second), Lock: held(1), Quick: true, Pause: func() { pauses++ }})
			for _, state := range []string{"cold", "warm"} { // what others compiled makes no difference
				pauses = 0
				if out := Decide(in); out.Cut != c.cut || pauses > c.compiled || (len(out.Needs.Load) > 0) != (c.compiled > 0) || out.Status.Steps[1].Phase != v1alpha1.StepPending {
					t.Errorf("quick, %s: cut %t, %d compiled, needs %+v, %+v", state, out.Cut, pauses, out.Needs, out.Status.Steps[1])
				}
			}
			pauses, in.Quick = 0, false
			if out := Decide(in); out.Cut || len(out.Needs.Load) != 1 || pauses < min(c.compiled, c.steps) {
				t.Errorf("whole: cut %t, %d compiled, needs %+v", out.Cut, pauses, out.Needs)
			}
			in.Payloads = Payloads{out0(run): {Data: []byte("1")}}
			if out := Decide(in); len(out.Dispatch) == 0 {
				t.Errorf("with what it reads: %+v", out.Status.Steps[1])
			}
		})
	}
}

// out0 names the output of the first step.
func out0(run *v1alpha1.WorkflowRun) string { return run.Status.Steps[0].OutputRef.Name }

// A quick decision takes no list, input, output of a run or key for a mistake because it does not
// compile it.
//
// mutations: those of the test above.
func TestWhatAQuickDecisionDoesNotCompileIsNoMistake(t *testing.T) {
	sums := "[%d]" + strings.Repeat("+[]", 95)
	for i, c := range []struct {
		name string
		step func(text string) v1alpha1.Step
	}{
		{"an input", func(s string) v1alpha1.Step { return newStep("s", input(`{"x":"${`+s+`}"}`)) }},
		{"a list", func(s string) v1alpha1.Step { return newStep("s", forEach("${"+s+"}", 1, v1alpha1.Collect)) }},
		{"the input of items", func(s string) v1alpha1.Step {
			return newStep("s", forEach("${[1]}", 1, v1alpha1.Collect), input(`{"x":"${`+s+`}"}`))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := letIn(Input{Run: newRun(c.step(fmt.Sprintf(sums, 1000+i))), Now: epoch, Lock: held(1), Quick: true, Evaluated: &Evaluated{Valid: true}})
			if out := Decide(in); !out.Cut || len(out.Dispatch) > 0 || len(out.Status.Steps) != 1 || out.Status.Steps[0].Phase != v1alpha1.StepPending {
				t.Errorf("quick: cut %t, %+v", out.Cut, out.Status)
			}
			in.Quick = false
			if out := Decide(in); out.Cut || len(out.Dispatch) != 1 {
				t.Errorf("whole: cut %t, %+v", out.Cut, out.Status)
			}
		})
	}
}
