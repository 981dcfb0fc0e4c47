// SPDX-License-Identifier: Apache-2.0

package actions

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutation: Again that keeps shutdown, or the key, makes this fail.
func TestAgainTakesOverWhatTheRunDid(t *testing.T) {
	t.Parallel()
	was := &v1alpha1.WorkflowRun{}
	was.Name, was.Spec.IdempotencyKey, was.Spec.Suspend, was.Spec.Shutdown = "nightly", "k", true, v1alpha1.ShutdownCancel
	was.Spec.WorkflowRef = &v1alpha1.WorkflowReference{Name: "w"}
	was.Status = &v1alpha1.WorkflowRunStatus{Workflow: &v1alpha1.WorkflowRevision{Name: "w", Revision: "0c1f"}}
	next, err := Again(was, time.Unix(100, 0))
	if err != nil {
		t.Fatal(err)
	}
	if s := next.Spec; s.IdempotencyKey != "" || s.Suspend || s.Shutdown != "" || s.WorkflowRef.Revision != "0c1f" || next.GenerateName != "nightly-" {
		t.Errorf("%+v", next)
	}
	was.Status.Parent = &v1alpha1.ParentStatus{Name: "above"}
	if _, err := Again(was, time.Unix(100, 0)); !isUseless(err) {
		t.Errorf("of a child run: %v", err)
	}
}

// mutation: AgainFrom without a UID, or of a run that goes on, makes this fail.
func TestAgainFromNamesTheRun(t *testing.T) {
	t.Parallel()
	was := &v1alpha1.WorkflowRun{}
	was.Name, was.UID, was.Spec.StartFrom = "nightly", "u1", &v1alpha1.StartFrom{Run: "before", UID: "u0"}
	if next, err := Again(was, time.Unix(100, 0)); err != nil || next.Spec.StartFrom != nil {
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

// mutations: Again without labels or annotations, and takenOver that takes all of them, make this
// fail.
func TestAgainTakesOverLabelsAndAnnotationsOfUsers(t *testing.T) {
	t.Parallel()
	was := &v1alpha1.WorkflowRun{}
	was.Labels = map[string]string{
		"team": "red", v1alpha1.LabelSchedule: "nightly", "app.kubernetes.io/instance": "nightly-reports",
		"applyset.kubernetes.io/part-of": "applyset-1-v1", "objectset.rio.cattle.io/hash": "2f",
	}
	was.Annotations = map[string]string{
		"example.org/ticket": "7", v1alpha1.AnnotationStepEvents: "true", v1alpha1.AnnotationSlot: "2026-03-29T03:00:00+02:00",
		v1alpha1.AnnotationCreatedBy: "ada", v1alpha1.AnnotationTraceparent: "00-1-2-01", corev1.LastAppliedConfigAnnotation: "{}",
		"objectset.rio.cattle.io/id": "nightly",
	}
	was.Finalizers = []string{"example.org/keep"}
	next, err := Again(was, time.Unix(100, 0))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"team": "red"}; !maps.Equal(next.Labels, want) {
		t.Errorf("labels: got %v, want %v", next.Labels, want)
	}
	if want := map[string]string{"example.org/ticket": "7", v1alpha1.AnnotationStepEvents: "true"}; !maps.Equal(next.Annotations, want) {
		t.Errorf("annotations: got %v, want %v", next.Annotations, want)
	}
	if len(next.Finalizers) > 0 || was.Labels[v1alpha1.LabelSchedule] == "" {
		t.Errorf("next %v, was %v", next.ObjectMeta, was.ObjectMeta)
	}
}

// mutations: Again that does not look at finally, or into runs below runs, or AgainFrom that looks
// at delays, makes this fail.
func TestADelayThatIsOverIsNotBegunAgain(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	of := func(until time.Time) v1alpha1.Step {
		return v1alpha1.Step{Name: "wait", Delay: &v1alpha1.Delay{Until: &metav1.Time{Time: until}}}
	}
	was := &v1alpha1.WorkflowRun{}
	was.Spec.Steps = []v1alpha1.Step{of(now.Add(time.Second)), {Name: "rest", Delay: &v1alpha1.Delay{}}}
	if _, err := Again(was, now); err != nil {
		t.Errorf("a time to come: %v", err)
	}
	was.Spec.Finally = []v1alpha1.Step{of(now.Add(-time.Second))}
	if _, err := Again(was, now); !isUseless(err) || !strings.Contains(err.Error(), "wait") || !strings.Contains(err.Error(), "1970-01-01T00:16:39Z") {
		t.Errorf("a time that has passed: %v", err)
	}
	below := func(second int) v1alpha1.Step {
		inner := fmt.Sprintf(`{"finally":[{"name":"late","delay":{"until":"1970-01-01T00:16:%dZ"}}]}`, second)
		return v1alpha1.Step{Name: "inner", Run: &v1alpha1.ChildRun{Spec: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"steps":[{"name":"low","run":{"spec":%s}}]}`, inner)}}}
	}
	was.Spec.Finally, was.Spec.Steps = nil, []v1alpha1.Step{below(41)}
	if _, err := Again(was, now); err != nil {
		t.Errorf("a time to come, below: %v", err)
	}
	was.Spec.Steps = []v1alpha1.Step{below(39)}
	if _, err := Again(was, now); !isUseless(err) || !strings.Contains(err.Error(), "inner/low/late") {
		t.Errorf("a time that has passed, below: %v", err)
	}
	was.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunFailed, CompletedAt: &metav1.Time{Time: time.Unix(1, 0)}}
	if _, err := AgainFrom(was); err != nil {
		t.Errorf("what is done is taken over: %v", err)
	}
}

// The operator refuses such a run: it has nothing to do.
//
// mutation: AgainFrom that does not look at the steps makes this fail.
func TestAgainFromRefusesARunWithNothingLeftToDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		phases  string // of the steps, S or F; the last is of spec.finally
		ref     bool   // the steps are those of a Workflow
		large   bool   // the output of the first is in the object store
		useless bool
	}{
		"all is done":                         {phases: "SSS", useless: true},
		"a step failed":                       {phases: "SFS"},
		"the clean-up failed":                 {phases: "SSF", useless: true},
		"an output that is not taken over":    {phases: "SSS", large: true},
		"all of a Workflow's":                 {phases: "SSS", ref: true, useless: true},
		"a Workflow's, of steps not known":    {phases: "SSF", ref: true},
		"a status that has no steps":          {phases: ""},
		"a Workflow's status with no steps":   {phases: "", ref: true},
		"a status that has not all its steps": {phases: "S"},
	} {
		t.Run(name, func(t *testing.T) {
			was := &v1alpha1.WorkflowRun{}
			was.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunFailed, CompletedAt: &metav1.Time{Time: time.Unix(1, 0)}}
			if was.Spec.WorkflowRef = &(v1alpha1.WorkflowReference{Name: "w"}); !c.ref {
				was.Spec.WorkflowRef, was.Spec.Steps, was.Spec.Finally = nil, []v1alpha1.Step{{Name: "s0"}, {Name: "s1"}}, []v1alpha1.Step{{Name: "s2"}}
			}
			for i, phase := range c.phases {
				s := v1alpha1.StepStatus{Name: fmt.Sprintf("s%d", i), Phase: v1alpha1.StepSucceeded}
				if phase == 'F' {
					s.Phase = v1alpha1.StepFailed
				}
				if c.large && i == 0 {
					s.OutputRef = &v1alpha1.OutputReference{Name: "o"}
				}
				was.Status.Steps = append(was.Status.Steps, s)
			}
			if _, err := AgainFrom(was); isUseless(err) != c.useless {
				t.Errorf("%v", err)
			}
		})
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
