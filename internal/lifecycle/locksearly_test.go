// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// One decision may end a step, skip the next one and begin the one after that. So a step may be
// granted its locks while status says of what it depends on that it did not begin, and one of
// spec.finally before status says that the run ends. What keeps the locks of a run that nobody may
// change (internal/quota/locks) relies on no more than this.
//
// mutations: startAll that leaves what depends on a skipped step to the next decision, and
// startSteps without its second startAll, make this fail: then less need be kept.
func TestLocksAreAskedForByTheDecisionThatEndsWhatTheyWaitFor(t *testing.T) {
	skipped := func(s *v1alpha1.Step) { s.When = "false" }
	locked := withStepLocks(mutexOf("m"))
	last := newRun(newStep("a"))
	last.Spec.Finally = []v1alpha1.Step{newStep("z", locked)}
	for name, run := range map[string]*v1alpha1.WorkflowRun{
		"behind one that is skipped": newRun(newStep("a"), newStep("b", after("a"), skipped), newStep("z", after("b"), locked)),
		"at the end of the run":      last,
	} {
		t.Run(name, func(t *testing.T) {
			decideLocked(t, run, epoch, nil)
			if run.Status.Ending != nil || run.Status.Steps[1].Phase != v1alpha1.StepPending {
				t.Fatalf("after it begins: %+v", run.Status)
			}
			out := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{succeeded("a", 1, `1`)}}))
			if got := partsAsked(&out); got != "z" {
				t.Errorf("asks for %q", got)
			}
		})
	}
}
