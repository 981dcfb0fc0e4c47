// SPDX-License-Identifier: Apache-2.0

package actions

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutation: Again that keeps shutdown, or the key, makes this fail.
func TestAgainTakesOverWhatTheRunDid(t *testing.T) {
	t.Parallel()
	was := &v1alpha1.WorkflowRun{}
	was.Name, was.Spec.IdempotencyKey, was.Spec.Suspend, was.Spec.Shutdown = "nightly", "k", true, v1alpha1.ShutdownCancel
	was.Spec.WorkflowRef = &v1alpha1.WorkflowReference{Name: "w"}
	was.Status = &v1alpha1.WorkflowRunStatus{Workflow: &v1alpha1.WorkflowRevision{Name: "w", Revision: "0c1f"}}
	next, err := Again(was)
	if err != nil {
		t.Fatal(err)
	}
	if s := next.Spec; s.IdempotencyKey != "" || s.Suspend || s.Shutdown != "" || s.WorkflowRef.Revision != "0c1f" || next.GenerateName != "nightly-" {
		t.Errorf("%+v", next)
	}
	was.Status.Parent = &v1alpha1.ParentStatus{Name: "above"}
	if _, err := Again(was); !isUseless(err) {
		t.Errorf("of a child run: %v", err)
	}
}

// mutation: AgainFrom without a UID, or of a run that goes on, makes this fail.
func TestAgainFromNamesTheRun(t *testing.T) {
	t.Parallel()
	was := &v1alpha1.WorkflowRun{}
	was.Name, was.UID, was.Spec.StartFrom = "nightly", "u1", &v1alpha1.StartFrom{Run: "before", UID: "u0"}
	if next, err := Again(was); err != nil || next.Spec.StartFrom != nil {
		t.Errorf("from the start: %v, %v", next, err)
	}
	if _, err := AgainFrom(was); !isUseless(err) {
		t.Errorf("it has not ended: %v", err)
	}
	was.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunFailed, CompletedAt: &metav1.Time{Time: time.Unix(1, 0)}}
	if next, err := AgainFrom(was); err != nil || *next.Spec.StartFrom != (v1alpha1.StartFrom{Run: "nightly", UID: "u1"}) {
		t.Errorf("%v, %v", next, err)
	}
	was.Status.Phase = v1alpha1.RunSucceeded
	if _, err := AgainFrom(was); !isUseless(err) {
		t.Errorf("it succeeded: %v", err)
	}
	was.Status.Parent = &v1alpha1.ParentStatus{Name: "above"}
	if _, err := AgainFrom(was); !isUseless(err) {
		t.Errorf("of a child run: %v", err)
	}
}

// mutation: decidable without Over makes this fail.
func TestADecisionThatCouldHaveNoEffectIsRefused(t *testing.T) {
	t.Parallel()
	run := &v1alpha1.WorkflowRun{}
	run.Spec.Steps = []v1alpha1.Step{{Name: "ask", Approval: &v1alpha1.Approval{}}, {Name: "work", Job: &v1alpha1.Job{}}, {Name: "done", Approval: &v1alpha1.Approval{}}}
	run.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{Name: "done", Phase: v1alpha1.StepCancelled}}}
	for step, want := range map[string]bool{"ask": false, "work": true, "gone": true, "done": true} {
		if err := decidable(run, step, time.Time{}); isUseless(err) != want {
			t.Errorf("%s: %v", step, err)
		}
	}
}

func isUseless(err error) bool {
	_, useless := errors.AsType[*UselessError](err)
	return useless
}
