// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/origin"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// mutations: newDraft without Origin.Steps (a is dispatched again), or initialize without
// Origin.Problem, makes this fail.
func TestOrigin_WhatIsTakenOverIsNotDispatched(t *testing.T) {
	run := newRun(newStep("a"), newStep("b", after("a")))
	taken := []v1alpha1.StepStatus{{Name: "a", Phase: v1alpha1.StepSucceeded, DoneBy: "first"}}
	in := letIn(Input{Run: run, Now: epoch, Lock: held(7), Origin: Origin{Steps: taken}, Checkpoint: Checkpoint{Coalesced: true, Begins: true}})
	d := Decide(in)
	if len(d.Dispatch) != 1 || d.Dispatch[0].ID.Step != "b" || d.Status.Steps[0].DoneBy != "first" || d.Status.Progress != "1/2" {
		t.Fatalf("dispatches %v, status %+v", d.Dispatch, d.Status.Steps)
	}
	if d.MayLag {
		t.Error("what is taken over is dispatched on before it is stored")
	}
	next := *run
	next.Status = &d.Status
	again := Decide(letIn(Input{Run: &next, Now: epoch, Lock: held(7)}))
	if again.Changed || !slices.Equal([]string{again.Status.Steps[0].DoneBy, again.Status.Steps[1].DoneBy}, []string{"first", ""}) {
		t.Errorf("what is stored does not stand: %+v", again.Status.Steps)
	}
	was := newRun(newStep("a"))
	refused := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(7), Origin: origin.CleansUp(was)}))
	if reason := status.ReasonOf(&refused.Status, v1alpha1.ConditionSucceeded); reason != v1alpha1.ReasonInvalidSpec || len(refused.Dispatch) > 0 {
		t.Errorf("%s, dispatches %v", reason, refused.Dispatch)
	}
}

// A step that succeeded looks done in every form of an end; its output is there only in
// the full one.
//
// mutations: problemOf without status.CutShort, or report.Short or bare without status.LeftOut in
// condition Succeeded, makes this fail.
func TestOrigin_WhatWasNotWrittenInFullIsNotTakenOver(t *testing.T) {
	for form, wanted := range map[Form]bool{FormFull: true, FormShort: false, FormBare: false} {
		was := newRun(newStep("a"), newStep("b", after("a"), maxFailures(1), input(`{"a":"${steps.a.output}"}`)))
		advance(t, was, epoch)
		advance(t, was, epoch, succeeded("a", 1, "7"))
		out := Decide(letIn(Input{Run: was, Now: epoch, Lock: held(1), Form: form, Results: []Result{failed("b", 1, "E", "no")}}))
		was.Status = persisted(t, &out.Status)
		run := newRun(was.Spec.Steps...)
		run.Spec.StartFrom = &v1alpha1.StartFrom{Run: was.Name, UID: string(was.UID)}
		plan := dag.Of(run)
		o := origin.Of(was, run, &plan, nil, was.Status.Tenant)
		if (o.Problem == "") != wanted || len(o.Steps) > 0 != wanted || !wanted && !strings.Contains(o.Problem, "had no room") {
			t.Errorf("form %d: %q, takes over %+v", form, o.Problem, o.Steps)
		}
	}
}
