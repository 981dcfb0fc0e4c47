// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// mutation: Decide without its case for newer makes this and the two tests below fail; one that
// looks at Finished first, the next.
func TestARunThatNeedsANewerOperatorIsLeftAlone(t *testing.T) {
	for name, lock := range map[string]Lock{"with the lock": held(2), "while it is busy": busy(), "while Redis is down": unavailable()} {
		t.Run(name, func(t *testing.T) {
			run := dispatched(t)
			run.Status.MinWriterVersion = v1alpha1.WriterVersion + 1
			run.Spec.Shutdown = v1alpha1.ShutdownTerminate
			in := letIn(Input{Run: run, Now: epoch.Add(24 * time.Hour), Lock: lock, Results: []Result{succeeded("a", 1, "7")}})
			want := Decision{Status: *run.Status.DeepCopy(), Verdicts: []Verdict{Waiting}, NeedsNewer: v1alpha1.WriterVersion + 1}
			if diff := cmp.Diff(want, Decide(in)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFinishedRunThatNeedsANewerOperatorIsLeftAlone(t *testing.T) {
	run := dispatched(t)
	run.Spec.TTLSecondsAfterFinished = new(int32(1))
	advance(t, run, epoch, succeeded("a", 1, "7"))
	run.Status.MinWriterVersion = v1alpha1.WriterVersion + 1
	late := letIn(Input{Run: run, Now: epoch.Add(time.Hour), Lock: held(2), Results: []Result{succeeded("a", 1, "7")}})
	if out := Decide(late); out.Delete || out.Verdicts[0] != Waiting {
		t.Errorf("deleted %t, %v", out.Delete, out.Verdicts)
	}
}

func TestAChildOfARunThatNeedsANewerOperatorIsLeftAlone(t *testing.T) {
	child, parent := ownedRun(newStep("a")), aParent()
	parent.Status.MinWriterVersion = v1alpha1.WriterVersion + 1
	parent.Status.Steps[0].ChildRun = nil // a field of the newer version may name the child
	out := Decide(letIn(Input{Run: child, Now: epoch.Add(time.Hour), Lock: held(1), Parent: facts.SeenParent(child, parent)}))
	if out.Changed || out.NeedsNewer != v1alpha1.WriterVersion+1 {
		t.Errorf("changed %t, needs %d: %s", out.Changed, out.NeedsNewer, outcomeOf(&out.Status))
	}
}

// mutation: SeenChild without its look at the version makes this fail.
func TestTheEndOfAChildThatNeedsANewerOperatorIsNotRead(t *testing.T) {
	child := dispatched(t)
	advance(t, child, epoch, succeeded("a", 1, "7"))
	if !facts.SeenChild(child).Finished {
		t.Fatal("it did not end")
	}
	child.Status.MinWriterVersion = v1alpha1.WriterVersion + 1
	if diff := cmp.Diff(Child{State: ChildThere, UID: string(child.UID)}, facts.SeenChild(child)); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
}

// Runs of operators from before there were versions, and of this one, go on; and what this one
// writes says so.
//
// mutation: decision that does not set the version, or durable that keeps it, makes this fail.
func TestAWriteSaysWhichVersionItNeeds(t *testing.T) {
	run := dispatched(t)
	if got := run.Status.MinWriterVersion; got != v1alpha1.OldestVersion {
		t.Errorf("the first write needs %d", got)
	}
	run.Status.MinWriterVersion = 0
	if out := decideAt(run, epoch, held(1)); out.Changed {
		t.Error("the version alone was worth a write")
	}
	if out := decideAt(run, epoch, held(1), succeeded("a", 1, "7")); !out.Changed || out.Status.MinWriterVersion != v1alpha1.OldestVersion {
		t.Errorf("changed %t, needs %d", out.Changed, out.Status.MinWriterVersion)
	}
}
