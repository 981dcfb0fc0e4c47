// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// veryCostly costs nearly all that an expression may over costlyInputs; its part is once for each
// of them.
const (
	veryCostly = "inputs.l.all(a, " + itsPart + ")"
	itsPart    = "inputs.l.all(b, a + b >= 0)"
)

func costlyInputs(t *testing.T) *runtime.RawExtension {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"l": make([]int, 120)})
	if err != nil {
		t.Fatal(err)
	}
	return &runtime.RawExtension{Raw: raw}
}

// Mutations that this finds: Evaluations.scope or spent, View.output, keep, ofItem or putTogether
// without the pause of the decision; an output that was checked and is checked again.
func TestWhatTakesLongPauses(t *testing.T) {
	large := smallValues()["objects with a key"]
	costly := func(steps ...v1alpha1.Step) *v1alpha1.WorkflowRun {
		run := newRun(steps...)
		run.Spec.Inputs = costlyInputs(t)
		return run
	}
	const parts = 30 // pauses that a text of 8 MiB has at least, each time that it is read
	for name, c := range map[string]struct {
		run         *v1alpha1.WorkflowRun
		result      func(o objects) Result
		least, most int
	}{
		"a costly condition": {run: costly(newStep("a", when(veryCostly))), least: 10, most: 50},
		"a costly input":     {run: costly(newStep("a", input(`{"x":"${`+veryCostly+`}"}`))), least: 10, most: 50},
		"short inputs of many items": {
			run:   costly(newStep("a", forEach("${inputs.l}", 100, v1alpha1.Collect), input(`{"x":"${item}"}`))),
			least: 100, most: 110,
		},
		"a costly list": {run: costly(newStep("a", forEach("${inputs.l.filter(a, "+itsPart+")}", 5, v1alpha1.Collect))), least: 10, most: 50},
		"a large output that a condition reads": {
			run:    newRun(newStep("first"), newStep("then", after("first"), when("size(steps.first.output) > 1"))),
			result: func(o objects) Result { return o.put("first", 1, large) }, least: parts, most: 2*parts - 1,
		},
		"a large output that nobody reads": {
			run:    newRun(newStep("first"), newStep("then", after("first"))),
			result: func(o objects) Result { return o.put("first", 1, large) }, most: 3,
		},
		"a short output in its result": {
			run:    newRun(newStep("first"), newStep("then", after("first"))),
			result: func(objects) Result { return succeeded("first", 1, `{"a":1}`) }, least: 3, most: 3,
		},
		"the list of the outputs of items": {
			run:    fanOut(1, 1, v1alpha1.FailStep),
			result: func(o objects) Result { return o.putItem("all", 0, large) }, least: 400, most: 450,
		},
		"a large output of an item": {
			run:    fanOut(2, 2, v1alpha1.FailStep),
			result: func(o objects) Result { return o.putItem("all", 0, large) }, least: 2 * parts, most: 10 * parts,
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := objects{}
			var results []Result
			if c.result != nil {
				store.advance(t, c.run, epoch)
				results = append(results, c.result(store))
			}
			in := letIn(Input{Run: c.run, Now: epoch, Lock: held(1), Results: results})
			want := store.decide(in)
			pauses := 0
			in.Pause = func() { pauses++ }
			if got := store.decide(in); !cmp.Equal(got.Status, want.Status) || !cmp.Equal(got.Dispatch, want.Dispatch) {
				t.Errorf("with pauses it decides something else:\n%s", cmp.Diff(want.Status, got.Status))
			}
			if pauses < c.least || pauses > c.most {
				t.Errorf("%d pauses, want %d to %d", pauses, c.least, c.most)
			}
		})
	}
}

// Mutations that this finds: Rendering.Pause, or ChildOf, that forgets its function; Budget that
// forgets it, too.
func TestWhatIsRenderedAgainPauses(t *testing.T) {
	pauses := 0
	pause := func() { pauses++ }
	const template = `{"x":"${` + veryCostly + `}"}`
	run := newRun(newStep("a", input(template)), newStep("sub", childRun(oneJob, template)))
	run.Spec.Inputs = costlyInputs(t)
	store := objects{}
	for range 3 {
		store.advance(t, run, epoch)
	}
	r := render.New(run, nil, nil)
	r.Pause(pause)
	r.Budget(false)
	if _, err := r.Job(protocol.JobID{RunUID: string(run.UID), Step: "a", Item: protocol.NoItem, Attempt: 1}); err != nil || pauses < 10 {
		t.Errorf("a job: %d pauses, %v", pauses, err)
	}
	pauses = 0
	if _, err := render.ChildOf(run, "sub", nil, pause); err != nil || pauses < 10 {
		t.Errorf("a child: %d pauses, %v", pauses, err)
	}
}
