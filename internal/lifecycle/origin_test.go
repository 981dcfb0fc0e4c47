// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
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
	refused := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(7), Origin: Origin{Problem: "spec.startFrom: no"}}))
	if reason := status.ReasonOf(&refused.Status, v1alpha1.ConditionSucceeded); reason != v1alpha1.ReasonInvalidSpec || len(refused.Dispatch) > 0 {
		t.Errorf("%s, dispatches %v", reason, refused.Dispatch)
	}
}
