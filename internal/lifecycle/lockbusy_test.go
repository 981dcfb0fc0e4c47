// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// overdue is a lock that another holds, and that was waited for too long.
func overdue(message string) Lock {
	l := busy()
	l.Overdue, l.Message = true, message
	return l
}

// Without the lock nothing is written but that it is waited for: once, and again when
// another holds it.
//
// mutation: sayWaits without leaveAlone, sameWait that compares whole messages or no messages, or
// reportAll that does not look at Overdue, makes this fail.
func TestALockThatIsBusyForTooLongIsToldOnce(t *testing.T) {
	run := newRun(newStep("a"))
	advance(t, run, epoch)
	stored := run.Status.DeepCopy()
	if out := decideAt(run, epoch, busy()); out.Changed {
		t.Fatalf("written before it is too long: %v", out.Status.Conditions)
	}

	out := decideAt(run, epoch.Add(time.Minute), overdue("Held by operator-1; it ends at 10:02"))
	for kind, want := range map[string]metav1.Condition{
		v1alpha1.ConditionRunLockRenewed: {Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonLockBusy},
		v1alpha1.ConditionSucceeded:      {Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonWaitingForLock},
	} {
		c := status.Condition(&out.Status, kind)
		if c.Status != want.Status || c.Reason != want.Reason || c.Message != "Held by operator-1; it ends at 10:02" {
			t.Errorf("%+v", c)
		}
	}
	if len(out.Events) != 1 || out.Events[0].Type != EventWarning || out.Events[0].Reason != v1alpha1.ReasonLockBusy {
		t.Errorf("events %v", out.Events)
	}
	if len(out.Dispatch)+len(out.Withdraw) > 0 || !out.Changed {
		t.Errorf("changed %t, effects %v %v", out.Changed, out.Dispatch, out.Withdraw)
	}
	rest := out.Status.DeepCopy()
	rest.Conditions = stored.Conditions
	if diff := cmp.Diff(stored, rest); diff != "" {
		t.Errorf("more than conditions changed (-stored +written):\n%s", diff)
	}

	run.Status = persisted(t, &out.Status)
	if again := decideAt(run, epoch.Add(2*time.Minute), overdue("Held by operator-1; it ends at 10:05")); again.Changed || len(again.Events) > 0 {
		t.Errorf("told twice: %v", again.Events)
	}
	if !SaysLockBusy(run) {
		t.Error("status does not say so")
	}
	if other := decideAt(run, epoch.Add(2*time.Minute), overdue("Held by operator-2; it ends at 10:05")); !other.Changed || len(other.Events) != 1 {
		t.Errorf("another holder: changed %t, events %v", other.Changed, other.Events)
	}
	had := decideAt(run, epoch.Add(3*time.Minute), held(9))
	if got := status.ReasonOf(&had.Status, v1alpha1.ConditionSucceeded); !had.Changed || got != v1alpha1.ReasonRunning {
		t.Errorf("once it is had: changed %t, reason %s", had.Changed, got)
	}
}

// A run that was resumed stays Suspended until the lock is had: it says why.
func TestARunThatIsResumedSaysThatItWaitsForItsLock(t *testing.T) {
	run := newRun(newStep("a"))
	run.Spec.Suspend = true
	out := decideAt(run, epoch, held(1))
	run.Status, run.Spec.Suspend = persisted(t, &out.Status), false
	if run.Status.Phase != v1alpha1.RunSuspended {
		t.Fatalf("phase %s", run.Status.Phase)
	}
	out = decideAt(run, epoch.Add(time.Minute), overdue("Held by operator-1"))
	c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
	if !out.Changed || c.Reason != v1alpha1.ReasonWaitingForLock || c.Message != "Held by operator-1" {
		t.Errorf("changed %t: %+v", out.Changed, c)
	}
	if out.Status.Admission == nil || out.Status.Admission.QueuedAt == nil {
		t.Error("its queue clock does not run")
	}
}

// A run that nobody has written yet has all conditions by that.
func TestARunThatWasNeverWrittenSaysThatItWaitsForItsLock(t *testing.T) {
	run := newRun(newStep("a"))
	out := decideAt(run, epoch, overdue("Held by operator-1"))
	if !out.Changed || out.Status.Phase != v1alpha1.RunPending || out.Status.Fence != nil || out.Status.Lock != nil || out.Status.Progress != "0/1" {
		t.Errorf("changed %t: %+v", out.Changed, out.Status)
	}
	run.Status = persisted(t, &out.Status)
	if had := decideAt(run, epoch.Add(time.Minute), held(1)); had.Status.Phase != v1alpha1.RunRunning || len(had.Dispatch) != 1 {
		t.Errorf("once it is had: %s, %v", had.Status.Phase, had.Dispatch)
	}
	if SaysLockBusy(nil) || SaysLockBusy(newRun(newStep("a"))) {
		t.Error("a run without status tells of a lock")
	}
}

// What a run waits for its first lock under stays its policy, and its part in a rollout of that.
//
// mutation: sayWaits that does not say the policy, or says it of a run that somebody has written
// under the lock, makes this fail.
func TestARunThatWaitsForItsFirstLockSaysUnderWhichPolicy(t *testing.T) {
	waits := func(run *v1alpha1.WorkflowRun, now time.Time, policy string) v1alpha1.WorkflowRunStatus {
		in := letIn(Input{Run: run, Now: now, Lock: overdue("Held by operator-1"), Policy: &v1alpha1.PolicyReference{Name: policy}})
		return objects{}.decide(in).Status
	}
	run := newRun(newStep("a"))
	first := waits(run, epoch, "shared")
	if first.Policy == nil || first.Policy.Name != "shared" {
		t.Fatalf("the policy is %+v; want shared", first.Policy)
	}
	advance(t, run, epoch)
	if later := waits(run, epoch.Add(time.Minute), "shared"); later.Policy != nil {
		t.Errorf("the policy of its last write under the lock is %+v; want none", later.Policy)
	}
}
