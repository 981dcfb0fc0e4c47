// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// asideRun is under way with one step, of which all that is in flight has a dead letter as answer.
func asideRun(s v1alpha1.StepStatus) *v1alpha1.WorkflowRun {
	s.Name = "a"
	run := &v1alpha1.WorkflowRun{}
	run.Spec.Steps = []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t"}}}
	run.Status = &v1alpha1.WorkflowRunStatus{
		Phase: v1alpha1.RunRunning, Steps: []v1alpha1.StepStatus{s},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonRunning}},
	}
	return run
}

// mutations: items that counts such groups by their phase, waitsForWorker or state without
// asideText, stepFact without it, and running without aside, each make a case fail.
func TestWhatHasADeadLetterAsAnswerWaitsForNoWorker(t *testing.T) {
	t.Parallel()
	at := metav1.NewMicroTime(created)
	group := func(items string, p v1alpha1.StepPhase, aside v1alpha1.DeadLetterReason) v1alpha1.ItemGroup {
		return v1alpha1.ItemGroup{Items: items, Phase: p, Attempt: 1, DispatchedAt: &at, DeadLetter: aside}
	}
	for name, c := range map[string]struct {
		step      v1alpha1.StepStatus
		tree, why string
	}{
		"a step that no worker began": {
			v1alpha1.StepStatus{Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: &at, DeadLetter: v1alpha1.DeadLetterExhausted},
			"its answer is a dead letter", "is under way",
		},
		"a step that a worker began": {
			v1alpha1.StepStatus{Phase: v1alpha1.StepRunning, Attempt: 1, DispatchedAt: &at, StartedAt: &at, DeadLetter: v1alpha1.DeadLetterExhausted},
			"its answer is a dead letter", "is under way",
		},
		"items": {
			v1alpha1.StepStatus{Phase: v1alpha1.StepRunning, StartedAt: &at, ForEach: &v1alpha1.ForEachStatus{Total: 3, Begun: 3, Succeeded: 1, Groups: []v1alpha1.ItemGroup{
				group("0", v1alpha1.StepDispatched, v1alpha1.DeadLetterExhausted), group("1", v1alpha1.StepRunning, v1alpha1.DeadLetterExhausted),
			}}},
			"1 of 3 items over, 2 with a dead letter as answer", "is under way",
		},
		"some of the items": {
			v1alpha1.StepStatus{Phase: v1alpha1.StepRunning, StartedAt: &at, ForEach: &v1alpha1.ForEachStatus{Total: 2, Begun: 2, Groups: []v1alpha1.ItemGroup{
				group("0", v1alpha1.StepDispatched, v1alpha1.DeadLetterExhausted), group("1", v1alpha1.StepDispatched, ""),
			}}},
			"0 of 2 items over, 1 waiting for workers, 1 with a dead letter as answer", "waits for workers: a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := asideRun(c.step)
			if row := TreeOf(run, now).Steps[0]; row.Why != c.tree {
				t.Errorf("tree: %q", row.Why)
			}
			answer := Why(run, nil, now)
			if answer.Summary != c.why {
				t.Errorf("why: %q", answer.Summary)
			}
			for _, f := range answer.Facts {
				if f.About == "step a" && !strings.HasPrefix(f.Text, c.tree) {
					t.Errorf("why, of the step: %q", f.Text)
				}
			}
		})
	}
}
