// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// reserving is a run under way: a child run, or an approval, beside a job and another approval, and
// a clean-up that releases what the first step reserved.
func reserving(t *testing.T, first stepOption) *v1alpha1.WorkflowRun {
	t.Helper()
	run := newRun(newStep("reserve", first), newStep("prepare"), newStep("ok", approval(func(*v1alpha1.Approval) {})))
	run.Spec.Finally = []v1alpha1.Step{newStep("release", when(`steps.reserve.phase == "Succeeded"`))}
	advance(t, run, epoch)
	if c := run.Status.Steps[0].ChildRun; c != nil {
		c.UID = "u-c"
	}
	return run
}

// ended is the child of a step of a run, with its end.
func ended(run *v1alpha1.WorkflowRun, step int, phase v1alpha1.RunPhase) map[string]Child {
	c := run.Status.Steps[step].ChildRun
	return map[string]Child{c.Name: {State: ChildThere, UID: c.UID, Finished: true, Phase: phase, Output: []byte(`{"id":7}`)}}
}

// What is at hand counts before a failure ends the run, whatever kind it is of: the clean-up knows
// what there is to release.
//
// mutations: applyResults, or applySignals, that ends with endIfDone; endIfNoneFailed without
// failedBefore.
func TestWhatIsAtHandCountsBeforeAFailureEndsTheRun(t *testing.T) {
	child := childRun(oneJob, "")
	approves := []Signal{{Name: "x", Step: "reserve", Decision: v1alpha1.Approve, Approver: "ann", At: epoch}}
	rejects := []Signal{{Name: "x", Step: "ok", Decision: v1alpha1.Reject, Approver: "ann", At: epoch}}
	failed := []Result{finalFailure("prepare", 1)}
	for name, c := range map[string]struct {
		first stepOption
		in    Input
		child v1alpha1.RunPhase
		adapt func(*v1alpha1.WorkflowRun)
		want  string
	}{
		"a child run, and a job that fails":              {first: child, child: v1alpha1.RunSucceeded, in: Input{Results: failed}, want: "Succeeded Failed/StepFailed, release starts"},
		"a child run, and an approval that is rejected":  {first: child, child: v1alpha1.RunSucceeded, in: Input{Signals: rejects}, want: "Succeeded Failed/StepFailed, release starts"},
		"an approval, and a job that fails":              {first: approval(func(*v1alpha1.Approval) {}), in: Input{Results: failed, Signals: approves}, want: "Succeeded Failed/StepFailed, release starts"},
		"a child run that failed, and a job that fails":  {first: child, child: v1alpha1.RunFailed, in: Input{Results: failed}, want: "Failed Failed/StepFailed"},
		"a child run, and a job that failed before this": {first: child, child: v1alpha1.RunSucceeded, adapt: func(run *v1alpha1.WorkflowRun) { run.Status.Steps[1].Phase = v1alpha1.StepFailed }, want: "Succeeded Failed/StepFailed, release starts"},
		"a child run that is under way":                  {first: child, in: Input{Results: failed}, want: "Cancelled Failed/StepFailed"},
		"a child run, and the run is being deleted": {first: child, child: v1alpha1.RunSucceeded, in: Input{Results: failed}, adapt: func(run *v1alpha1.WorkflowRun) {
			run.DeletionTimestamp = &metav1.Time{Time: epoch}
		}, want: "Cancelled Cancelled/Terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			run := reserving(t, c.first)
			if c.adapt != nil {
				c.adapt(run)
			}
			in := letIn(c.in)
			in.Run, in.Now, in.Lock = run, epoch.Add(time.Second), held(1)
			if c.child != "" {
				in.Children = ended(run, 0, c.child)
			}
			out := objects{}.decide(in)
			phase, reason := out.Status.Phase, ""
			if e := out.Status.Ending; e != nil {
				phase, reason = e.Phase, e.Reason
			} else {
				reason = metaReason(out.Status.Conditions)
			}
			got := fmt.Sprintf("%s %s/%s", out.Status.Steps[0].Phase, phase, reason)
			if out.Status.Steps[3].Phase == v1alpha1.StepDispatched {
				got += ", release starts"
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// metaReason is why a run ended.
func metaReason(conditions []metav1.Condition) string {
	for i := range conditions {
		if conditions[i].Type == v1alpha1.ConditionSucceeded {
			return conditions[i].Reason
		}
	}
	return ""
}

// Ends of child runs whose outputs are more than a decision may load count before a failure ends
// the run, or a cancel does. One whose output can never be loaded holds up no end.
//
// mutations: leavesSome that does not look at left, or at taken.
func TestChildRunsThatAreLeftToTheNextDecisionCountBeforeTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		cancelled, lost bool
		lock            Lock
		want            string
	}{
		"one failed":                 {lock: held(1), want: "Succeeded Succeeded Failed: Failed after 2"},
		"the run is cancelled":       {cancelled: true, lock: held(1), want: "Succeeded Succeeded Failed: Cancelled after 2"},
		"cancelled without the lock": {cancelled: true, lock: Lock{State: LockBusy}, want: "Succeeded Cancelled Failed: Cancelled after 1"},
		"none can be loaded":         {lost: true, lock: held(1), want: "Cancelled Cancelled Failed: Failed after 2"},
	} {
		t.Run(name, func(t *testing.T) {
			o := objects{}
			run := newRun(newStep("a", childRun(oneJob, "")), newStep("b", childRun(oneJob, "")), newStep("c", childRun(oneJob, "")), newStep("d"))
			run.Spec.Finally = []v1alpha1.Step{newStep("tidy")}
			advance(t, run, epoch)
			if c.cancelled {
				run.Spec.Shutdown = v1alpha1.ShutdownCancel
				run.Spec.Steps[2].OnFailure = v1alpha1.FailureContinue
			}
			children, data := map[string]Child{}, text(5<<20)
			for i := range run.Status.Steps[:3] {
				s := run.Status.Steps[i].ChildRun
				s.UID = fmt.Sprint("u-", i)
				ref := protocol.NewOutputRef(protocol.JobID{RunUID: fmt.Sprint("u-", i), Step: "outputs", Item: protocol.NoItem, Attempt: 1}, []byte(data))
				o[ref.Name] = []byte(data)
				children[s.Name] = Child{State: ChildThere, UID: fmt.Sprint("u-", i), Finished: true, Phase: v1alpha1.RunSucceeded, OutputRef: reference(ref)}
			}
			failed := run.Status.Steps[2].ChildRun.Name
			children[failed] = Child{State: ChildThere, UID: "u-2", Finished: true, Phase: v1alpha1.RunFailed}
			decisions := 0
			for run.Status.Ending == nil && !Finished(run) && decisions < 10 {
				decisions++
				in := letIn(Input{Run: run, Now: epoch.Add(time.Second), Lock: c.lock, Children: children})
				decide := o.decide
				if c.lost {
					decide = Decide
				}
				out := decide(in)
				run.Status = persisted(t, &out.Status)
			}
			end := run.Status.Phase
			if e := run.Status.Ending; e != nil {
				end = e.Phase
			}
			s := run.Status.Steps
			if got := fmt.Sprintf("%s %s %s: %s after %d", s[0].Phase, s[1].Phase, s[2].Phase, end, decisions); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
