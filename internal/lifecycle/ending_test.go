// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// What docs/workflows.md and the API say of status.ending.
//
// mutations: shutDown, endDeleted or followParent that does nothing once an end is announced, or
// ends as announced, makes this fail; and endWithoutRoom that looks at no announced end.
func TestWhatCutsACleanUpOff(t *testing.T) {
	terminated := aParent()
	terminated.Spec.Shutdown = v1alpha1.ShutdownTerminate
	for name, c := range map[string]struct {
		cut               func(in *Input)
		succeeded, failed string // the run whose announced end is that
	}{
		"it is terminated": {func(in *Input) { in.Run.Spec.Shutdown = v1alpha1.ShutdownTerminate }, "Cancelled/Terminated", "Cancelled/Terminated"},
		"it is cancelled":  {func(in *Input) { in.Run.Spec.Shutdown = v1alpha1.ShutdownCancel }, "Running/Finalizing", "Running/Finalizing"},
		"its deletion is held up": {func(in *Input) {
			in.Run.DeletionTimestamp = &metav1.Time{Time: in.Now}
		}, "Cancelled/Terminated", "Cancelled/Terminated"},
		"its parent is terminated": {func(in *Input) { in.Parent = facts.SeenParent(in.Run, terminated) }, "Cancelled/Terminated", "Cancelled/Terminated"},
		"its parent was deleted":   {func(in *Input) { in.Parent = facts.SeenParent(in.Run, nil) }, "Cancelled/Terminated", "Cancelled/Terminated"},
		"its object has no room":   {func(in *Input) { in.Form = FormShort }, "Failed/ObjectTooLarge", "Failed/StepFailed"},
	} {
		for want, result := range map[string]Result{c.succeeded + " after a success": succeeded("a", 1, `{}`), c.failed + " after a failure": failed("a", 1, "E", "no")} {
			t.Run(name+": "+want, func(t *testing.T) {
				run := ownedRun(newStep("a", maxFailures(1)))
				run.Spec.Finally = []v1alpha1.Step{newStep("f")}
				in := letIn(Input{Run: run, Now: epoch.Add(time.Hour), Lock: held(1), Parent: facts.SeenParent(run, aParent())})
				run.Status = persisted(t, new(Decide(in).Status))
				in.Results = []Result{result}
				run.Status = persisted(t, new(Decide(in).Status))
				announced := run.Status.Ending
				if announced == nil {
					t.Fatal("no end was announced")
				}
				in.Results = nil
				c.cut(&in)
				out := Decide(in)
				if got := outcomeOf(&out.Status); !strings.HasPrefix(want, got+" after ") {
					t.Errorf("got %s, want %s", got, want)
				}
				if e := out.Status.Ending; e == nil || e.Phase != announced.Phase || e.Reason != announced.Reason {
					t.Errorf("announced is %+v, was %+v", e, announced)
				}
			})
		}
	}
}
