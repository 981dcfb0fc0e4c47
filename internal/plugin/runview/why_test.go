// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// saying is what Why says about a run with one condition; "" in facts means that it says
// nothing of it.
type saying struct {
	condition, reason string
	status            metav1.ConditionStatus
	summary, fact     string
	ended             bool
}

func sayings() []saying {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	return []saying{
		{condition: "Admitted", reason: "Admitted", status: yes},
		{condition: "Admitted", reason: "Pending", status: unknown, fact: "admission: waits for admission"},
		{condition: "Admitted", reason: "Suspended", status: no, fact: "admission: is not admitted while spec.suspend is set"},
		{condition: "Admitted", reason: "WaitingForWorkflow", status: no, fact: "admission: the Workflow that it follows, or its revision, does not exist or cannot be had for now"},
		{condition: "Admitted", reason: "WaitingForPolicy", status: no, fact: "admission: its LockPolicy was deleted moments ago, and may come back; MESSAGE"},
		{condition: "Admitted", reason: "WaitingForParent", status: no, fact: "admission: waits for its parent run to name it in its status"},
		{condition: "RunLockRenewed", reason: "Held", status: yes},
		{condition: "RunLockRenewed", reason: "Renewed", status: yes},
		{condition: "RunLockRenewed", reason: "Released", status: yes},
		{condition: "RunLockRenewed", reason: "NotTaken", status: unknown},
		{condition: "RunLockRenewed", reason: "RenewalFailing", status: no, fact: "lock: RenewalFailing: the lock cannot be renewed; its lease is still valid; MESSAGE"},
		{condition: "Admitted", reason: "TenantAtCapacity", status: no, fact: "admission: the tenant has as many slots taken as its LockPolicy lets it"},
		{condition: "Admitted", reason: "TotalAtCapacity", status: no, fact: "admission: all tenants together have as many slots taken as the LockPolicy lets them"},
		{condition: "Admitted", reason: "AdmissionBusy", status: no, fact: "admission: the admission lock of the tenant is busy; MESSAGE"},
		{condition: "Admitted", reason: "AdmissionUnavailable", status: no, fact: "admission: nobody is admitted, because Redis cannot be used; MESSAGE"},
		{condition: "Admitted", reason: "AdmissionRebuilding", status: no, fact: "admission: Redis lost its data; nobody is admitted until the runs are counted again"},
		{condition: "RunLockRenewed", reason: "ContinuingUnlocked", status: no, fact: "lock: ContinuingUnlocked: goes on without the lock, as its policy says; MESSAGE"},
		{condition: "RunLockRenewed", reason: "LockBusy", status: no, fact: "lock: LockBusy: another holds the lock; MESSAGE"},
		{condition: "RunLockRenewed", reason: "LockStoreUnavailable", status: no, fact: "lock: LockStoreUnavailable: the lock cannot be taken, because Redis cannot be used; MESSAGE"},
		{condition: "RunLockAbandoned", reason: "NotAbandoned", status: no},
		{condition: "RunLockAbandoned", reason: "Recovered", status: no},
		{condition: "RunLockAbandoned", reason: "LeaseDeadlineReached", status: yes, fact: "lock: LeaseDeadlineReached: a lease was lost: it could not be renewed before its validity ended; another holder takes over, at the latest 30s after the last renewal"},
		{condition: "RunLockAbandoned", reason: "OwnershipLost", status: yes, fact: "lock: OwnershipLost: a lease was lost: Redis says that the lock is gone or another's; another holder takes over, at the latest 30s after the last renewal"},
		{condition: "RunLockAbandoned", reason: "RenewalFailuresExceeded", status: yes, fact: "lock: RenewalFailuresExceeded: a lease was lost: too many renewals failed in a row; another holder takes over, at the latest 30s after the last renewal"},
		{condition: "DeadLettered", reason: "NoDeadLetters", status: no},
		{condition: "DeadLettered", reason: "ResultRejected", status: yes, fact: "dead letters: a result with an unusable body was put aside; MESSAGE"},
		{condition: "DeadLettered", reason: "DeliveriesExhausted", status: yes, fact: "dead letters: a result that could not be processed was put aside; MESSAGE"},
		{condition: "Succeeded", reason: "Pending", status: unknown, summary: "was not looked at yet"},
		{condition: "Succeeded", reason: "Queued", status: unknown, summary: "waits for admission"},
		{condition: "Succeeded", reason: "Running", status: unknown, summary: "is under way"},
		{condition: "Succeeded", reason: "WaitingForLock", status: unknown, summary: "waits for its run lock"},
		{condition: "Succeeded", reason: "BackingOff", status: unknown, summary: "waits for the next attempt of a step"},
		{condition: "Succeeded", reason: "WaitingForWorkers", status: unknown, summary: "waits for workers that get on with its jobs: MESSAGE"},
		{condition: "Succeeded", reason: "WaitingForNATS", status: unknown, summary: "waits for NATS: MESSAGE"},
		{condition: "Succeeded", reason: "WaitingForRoom", status: unknown, summary: "waits for room in NATS: MESSAGE"},
		{condition: "Succeeded", reason: "WaitingForApproval", status: unknown, summary: "waits for an approval"},
		{condition: "Succeeded", reason: "Delayed", status: unknown, summary: "waits until a delay is over"},
		{condition: "Succeeded", reason: "Finalizing", status: unknown, summary: "runs its finally steps"},
		{condition: "Succeeded", reason: "Suspended", status: unknown, summary: "is suspended: no new jobs"},
		{condition: "Succeeded", reason: "Succeeded", status: yes, ended: true, summary: "succeeded: MESSAGE"},
		{condition: "Succeeded", reason: "StepFailed", status: no, ended: true, summary: "failed: MESSAGE"},
		{condition: "Succeeded", reason: "OutputTooLarge", status: no, ended: true, summary: "failed: a step returned more than the object store takes: MESSAGE"},
		{condition: "Succeeded", reason: "ObjectTooLarge", status: no, ended: true, summary: "failed: its object has no room for its status: MESSAGE"},
		{condition: "Succeeded", reason: "OutputsFailed", status: no, ended: true, summary: "failed: its steps succeeded, but its outputs could not be evaluated: MESSAGE"},
		{condition: "Succeeded", reason: "FinallyTimeout", status: no, ended: true, summary: "failed: its steps succeeded, but its finally steps took too long: MESSAGE"},
		{condition: "Succeeded", reason: "InvalidSpec", status: no, ended: true, summary: "failed: its spec cannot be run: MESSAGE"},
		{condition: "Succeeded", reason: "ClassNotAllowed", status: no, ended: true, summary: "failed: its namespace may not use its workload class: MESSAGE"},
		{condition: "Succeeded", reason: "TopicNotAllowed", status: no, ended: true, summary: "failed: its namespace may not use a topic: MESSAGE"},
		{condition: "Succeeded", reason: "DuplicateRun", status: no, ended: true, summary: "was not run: another run does the same work: MESSAGE"},
		{condition: "Succeeded", reason: "IdempotencyConflict", status: no, ended: true, summary: "was not run: another run has its idempotency key: MESSAGE"},
		{condition: "Succeeded", reason: "WorkflowNotFound", status: no, ended: true, summary: "failed: the Workflow that it follows, or its revision, does not exist: MESSAGE"},
		{condition: "Succeeded", reason: "TenantNotAllowed", status: no, ended: true, summary: "failed: its namespace may not run for that tenant: MESSAGE"},
		{condition: "Succeeded", reason: "LockBusy", status: no, ended: true, summary: "was not run: a lock that it needs had no room: MESSAGE"},
		{condition: "Succeeded", reason: "LockQueueFull", status: no, ended: true, summary: "was not run: as many as may wait for a lock that it needs: MESSAGE"},
		{condition: "Succeeded", reason: "Superseded", status: no, ended: true, summary: "was not run: a later run waits for the same lock instead: MESSAGE"},
		{condition: "Succeeded", reason: "LockUnusable", status: no, ended: true, summary: "was not run: a lock that it needs cannot be used: MESSAGE"},
		{condition: "Succeeded", reason: "LockDeadlock", status: no, ended: true, summary: "failed: it waited for what others held that waited for it: MESSAGE"},
		{condition: "Succeeded", reason: "LockQueueTimeout", status: no, ended: true, summary: "timed out: it waited too long for its locks: MESSAGE"},
		{condition: "Succeeded", reason: "DeadlineExceeded", status: no, ended: true, summary: "timed out: MESSAGE"},
		{condition: "Succeeded", reason: "QueueTimeout", status: no, ended: true, summary: "timed out: MESSAGE"},
		{condition: "Succeeded", reason: "Cancelled", status: no, ended: true, summary: "was cancelled: MESSAGE"},
		{condition: "Succeeded", reason: "Terminated", status: no, ended: true, summary: "was terminated: MESSAGE"},
		{condition: "Succeeded", reason: "FromTheFuture", status: unknown, summary: "Succeeded is Unknown: FromTheFuture: MESSAGE"},
		{condition: "RunLockRenewed", reason: "FromTheFuture", status: no, fact: "lock: RunLockRenewed is False: FromTheFuture: MESSAGE"},
		{condition: "Ready", reason: "Ready", status: yes},
		{condition: "RolledOut", reason: "InForce", status: yes},
		{condition: "RolledOut", reason: "Immediate", status: yes},
		{condition: "RolledOut", reason: "AllStepsPassed", status: yes},
		{condition: "RolledOut", reason: "PromotedByUser", status: yes},
		{condition: "RolledOut", reason: "TriedNext", status: yes},
		{condition: "RolledOut", reason: "CanaryRuns", status: no, fact: "policy: strict tries its last edit on a part of the traffic"},
		{condition: "RolledOut", reason: "InsufficientData", status: no, fact: "policy: strict was edited, and the edit is not in force for all runs: too few of them had a busy lock"},
		{condition: "RolledOut", reason: "BusyRunsWorse", status: no, fact: "policy: strict was edited, and the edit taken back: more locks were busy again"},
		{condition: "RolledOut", reason: "WaitTailWorse", status: no, fact: "policy: strict was edited, and the edit taken back: locks were waited for longer"},
		{condition: "RolledOut", reason: "LatencyWorse", status: no, fact: "policy: strict was edited, and the edit taken back: results came into status later"},
		{condition: "RolledOut", reason: "HardGuardrail", status: no, fact: "policy: strict was edited, and the edit taken back: a lock was lost, a write refused or a result put aside"},
		{condition: "RolledOut", reason: "SampleRatioMismatch", status: no, fact: "policy: strict was edited, and the edit taken back: what was counted cannot be right"},
		{condition: "RolledOut", reason: "AbortedByUser", status: no, fact: "policy: strict was edited, and a user took the edit back"},
		{condition: "RolledOut", reason: "Superseded", status: no, fact: "policy: strict was edited anew while an edit was tried"},
		{condition: "Ready", reason: "ClassConflict", status: no, fact: "policy: strict lists the class, too, and is not in force for it: an older policy has it"},
	}
}

// sayingOf asks Why about a run, or a policy, with that one condition.
func sayingOf(s saying) Answer {
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{}}
	run.Name, run.Namespace, run.CreationTimestamp = "r", "ns", metav1.Time{Time: created}
	run.Spec.WorkloadClass = "c"
	c := metav1.Condition{Type: s.condition, Reason: s.reason, Status: s.status, Message: "MESSAGE", LastTransitionTime: metav1.Time{Time: created}}
	policies := []v1alpha1.LockPolicy{}
	switch s.condition {
	case v1alpha1.ConditionReady:
		p := v1alpha1.LockPolicy{Status: &v1alpha1.LockPolicyStatus{Conditions: []metav1.Condition{c}}}
		p.Name, p.Spec.WorkloadClasses, p.CreationTimestamp = "strict", []string{"c"}, metav1.Time{Time: created}
		older := v1alpha1.LockPolicy{Spec: p.Spec}
		older.Name = "older"
		policies = append(policies, p, older)
	case v1alpha1.ConditionRolledOut:
		p := v1alpha1.LockPolicy{Status: &v1alpha1.LockPolicyStatus{Conditions: []metav1.Condition{c}}}
		p.Name, p.Spec.WorkloadClasses = "strict", []string{"c"}
		policies = append(policies, p)
	default:
		run.Status.Conditions = append(run.Status.Conditions, c)
	}
	if s.ended {
		run.Status.CompletedAt = &metav1.Time{Time: created}
	}
	return Why(run, policies, created)
}

// mutation: any text given to another reason, or a reason left out of meanings, makes this fail.
func TestWhyKnowsWhatEachReasonMeans(t *testing.T) {
	t.Parallel()
	for _, s := range sayings() {
		t.Run(s.condition+" "+s.reason, func(t *testing.T) {
			t.Parallel()
			a := sayingOf(s)
			var facts []string
			for _, f := range a.Facts {
				if f.About != "help" {
					facts = append(facts, f.About+": "+f.Text)
				}
			}
			var want []string
			if s.fact != "" {
				want = []string{s.fact}
			}
			if s.summary == "" {
				s.summary = "was not looked at by the operator yet"
			}
			if diff := cmp.Diff(want, facts); diff != "" || a.Summary != s.summary || a.Ended != s.ended {
				t.Errorf("summary %q, want %q; facts (-want +got):\n%s", a.Summary, s.summary, diff)
			}
		})
	}
}

// reasonsOfTheAPI reads the values of the constants Reason... from the source.
func reasonsOfTheAPI(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../../api/v1alpha1/conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range v.Names {
			if lit, ok := v.Values[i].(*ast.BasicLit); ok && strings.HasPrefix(name.Name, "Reason") {
				value, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[value] = true
			}
		}
		return true
	})
	return slices.Sorted(maps.Keys(found))
}

// mutation: a further constant of a reason in the API makes this fail; tell people in meanings what
// it means, and here.
func TestWhyKnowsEveryReasonOfTheAPI(t *testing.T) {
	t.Parallel()
	reasons := reasonsOfTheAPI(t)
	ofWorkflows := []string{v1alpha1.ReasonInvalidTemplate, v1alpha1.ReasonRevisionNotKept} // whose conditions Why does not read
	reasons = slices.DeleteFunc(reasons, func(r string) bool { return slices.Contains(ofWorkflows, r) })
	if len(reasons) < 25 {
		t.Fatalf("only %d reasons found in the source", len(reasons))
	}
	said := map[string]bool{}
	for _, s := range sayings() {
		if _, known := meaningOf(s.condition, s.reason); known {
			said[s.reason] = true
		}
	}
	if diff := cmp.Diff(reasons, slices.Sorted(maps.Keys(said))); diff != "" {
		t.Errorf("reasons of the API, and those that Why knows and this test asks for (-want +got):\n%s", diff)
	}
}

// at builds a step's status.
func at(seconds float64) *metav1.MicroTime {
	return &metav1.MicroTime{Time: created.Add(time.Duration(seconds * float64(time.Second)))}
}

// mutation: a wish that is told until the run has ended, or Terminate that is not told while the
// finally steps run, makes this fail.
func TestWhyTellsOfAWishUntilItIsAnnounced(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wish   v1alpha1.ShutdownMode
		ending bool
		want   bool
	}{
		{v1alpha1.ShutdownCancel, false, true},
		{v1alpha1.ShutdownCancel, true, false},
		{v1alpha1.ShutdownTerminate, true, true},
	} {
		run := steady(t, func(run *v1alpha1.WorkflowRun) {
			run.Spec.Shutdown, run.Status = c.wish, &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning}
			if c.ending {
				run.Status.Ending = &v1alpha1.EndingStatus{Phase: v1alpha1.RunCancelled, Reason: v1alpha1.ReasonCancelled, AnnouncedAt: *at(500)}
			}
		})
		var out bytes.Buffer
		if err := Why(run, nil, now).Text(&out, now, false); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "not carried out yet"); got != c.want {
			t.Errorf("%s, ending %v:\n%s", c.wish, c.ending, out.String())
		}
	}
}

// steady is a run under way as lifecycle.Decide leaves it.
func steady(t *testing.T, change func(*v1alpha1.WorkflowRun)) *v1alpha1.WorkflowRun {
	t.Helper()
	run := &v1alpha1.WorkflowRun{}
	run.Name, run.Namespace, run.UID, run.Generation = "r", "ns", "uid-1", 1
	run.CreationTimestamp = metav1.Time{Time: created}
	for _, name := range []string{"a", "b", "c"} {
		run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{Name: name, Job: &v1alpha1.Job{Topic: "t"}})
	}
	run.Spec.MaxParallelSteps = 3
	change(run)
	return run
}

func held() lifecycle.Lock {
	return lifecycle.Lock{State: lifecycle.LockHeld, LeaseID: "l", Holder: "h", Fence: 1, AcquiredAt: created}
}

// mutation: leaving out a kind of moment, or counting the end of a wait while suspended or without
// a place, makes this fail.
func TestTheNextLookIsThatOfTheCore(t *testing.T) {
	t.Parallel()
	admitted := func(run *v1alpha1.WorkflowRun, steps ...v1alpha1.StepStatus) {
		run.Status = &v1alpha1.WorkflowRunStatus{
			Tenant: "ns", Phase: v1alpha1.RunRunning,
			Admission: &v1alpha1.AdmissionStatus{QueuedAt: &metav1.Time{Time: created}, AdmittedAt: &metav1.Time{Time: created}}, Steps: steps,
		}
	}
	running := v1alpha1.StepStatus{Name: "a", Phase: v1alpha1.StepRunning, Attempt: 1, DispatchedAt: at(0), StartedAt: at(500)}
	dispatched := v1alpha1.StepStatus{Name: "b", Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: at(100)}
	backing := v1alpha1.StepStatus{Name: "c", Phase: v1alpha1.StepBackingOff, Attempt: 1, Failures: 1, DispatchedAt: at(1), NextAttemptAt: at(660.5)}
	tests := map[string]struct {
		change func(*v1alpha1.WorkflowRun)
		lock   lifecycle.Lock
		want   time.Duration // from creation; 0: never
	}{
		"an attempt runs out of its time": {lock: held(), want: 4100 * time.Second, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.Steps[0].TimeoutSeconds = 3600
			done := v1alpha1.StepStatus{Name: "b", Phase: v1alpha1.StepSucceeded, Attempt: 1}
			admitted(r, running, done, v1alpha1.StepStatus{Name: "c", Phase: v1alpha1.StepSucceeded, Attempt: 1})
		}},
		"an attempt waits for a worker": {lock: held(), want: 700 * time.Second, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.Steps[1].StartTimeoutSeconds = 600
			admitted(r, running, dispatched, v1alpha1.StepStatus{Name: "c", Phase: v1alpha1.StepSucceeded, Attempt: 1})
		}},
		"a step backs off": {lock: held(), want: 660500 * time.Millisecond, change: func(r *v1alpha1.WorkflowRun) {
			admitted(r, running, dispatched, backing)
		}},
		"a step backs off, and there is no place for it": {lock: held(), want: 3700 * time.Second, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.MaxParallelSteps = 2
			admitted(r, running, dispatched, backing)
		}},
		"a step backs off in a suspended run": {lock: held(), want: 3700 * time.Second, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.Suspend = true
			admitted(r, running, dispatched, backing)
		}},
		"the run has a deadline": {lock: held(), want: 601 * time.Second, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.ActiveDeadlineSeconds = new(int32(601))
			admitted(r, running, dispatched, backing)
		}},
		"nothing is in flight in a suspended run": {lock: held(), change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.Suspend = true
			admitted(r, v1alpha1.StepStatus{Name: "a", Phase: v1alpha1.StepPending}, v1alpha1.StepStatus{Name: "b", Phase: v1alpha1.StepPending}, backing)
		}},
		"the lock store is down while steps run": {
			lock: lifecycle.Lock{State: lifecycle.LockUnavailable, Message: "refused"}, want: 7200 * time.Second,
			change: func(r *v1alpha1.WorkflowRun) {
				r.Spec.ActiveDeadlineSeconds = new(int32(7200))
				admitted(r, running, dispatched, backing)
			},
		},
		"the lock store is down before admission": {
			lock: lifecycle.Lock{State: lifecycle.LockUnavailable, Message: "refused"}, want: 1500 * time.Second,
			// 10 min after its creation it is seen first
			change: func(r *v1alpha1.WorkflowRun) { r.Spec.QueueTimeoutSeconds = new(int32(900)) },
		},
		"the queue clock of a run that was never suspended runs from queuedAt": {
			lock: lifecycle.Lock{State: lifecycle.LockUnavailable, Message: "refused"}, want: 930 * time.Second,
			change: func(r *v1alpha1.WorkflowRun) {
				r.Spec.QueueTimeoutSeconds = new(int32(900))
				r.Status = &v1alpha1.WorkflowRunStatus{Tenant: "ns", Admission: &v1alpha1.AdmissionStatus{QueuedAt: &metav1.Time{Time: created.Add(30 * time.Second)}}}
			},
		},
		"a delay is to end, also while the run is suspended": {lock: held(), want: 615 * time.Second, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.Suspend = true
			r.Spec.Steps[0] = v1alpha1.Step{Name: "a", Delay: &v1alpha1.Delay{Seconds: new(int32(600))}}
			admitted(r, v1alpha1.StepStatus{Name: "a", Phase: v1alpha1.StepDelayed, StartedAt: at(15), DelayedUntil: at(615)}, dispatched, backing)
		}},
		"an approval has a time-out": {lock: held(), want: 650 * time.Second, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.Steps[0] = v1alpha1.Step{Name: "a", Approval: &v1alpha1.Approval{TimeoutSeconds: new(int32(600))}}
			admitted(r, v1alpha1.StepStatus{Name: "a", Phase: v1alpha1.StepWaiting, StartedAt: at(50)}, dispatched, backing)
		}},
		"an approval has none": {lock: held(), want: 660500 * time.Millisecond, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.Steps[0] = v1alpha1.Step{Name: "a", Approval: &v1alpha1.Approval{}}
			admitted(r, v1alpha1.StepStatus{Name: "a", Phase: v1alpha1.StepWaiting, StartedAt: at(50)}, dispatched, backing)
		}},
		"approvals and delays take no place of a job": {lock: held(), want: 660500 * time.Millisecond, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.MaxParallelSteps = 1
			r.Spec.Steps[0] = v1alpha1.Step{Name: "a", Approval: &v1alpha1.Approval{}}
			r.Spec.Steps[1] = v1alpha1.Step{Name: "b", Delay: &v1alpha1.Delay{Seconds: new(int32(800))}}
			admitted(r, v1alpha1.StepStatus{Name: "a", Phase: v1alpha1.StepWaiting, StartedAt: at(50)},
				v1alpha1.StepStatus{Name: "b", Phase: v1alpha1.StepDelayed, StartedAt: at(50), DelayedUntil: at(850)}, backing)
		}},
		"a step that backs off keeps its place with its locks": {lock: held(), want: 660500 * time.Millisecond, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.MaxParallelSteps, r.Spec.Steps[1].StartTimeoutSeconds = 2, 3600
			r.Spec.Steps[2].Locks = []v1alpha1.LockRequest{{Mutex: "m"}}
			keeps, placeless := backing, backing
			keeps.Locks = []v1alpha1.LockHold{{Name: "mutex:ns/m", Permits: 1, Fence: 1}}
			placeless.Name, placeless.NextAttemptAt = "a", at(650)
			admitted(r, placeless, dispatched, keeps)
		}},
		"a child run takes a place and has no time-out of its step": {lock: held(), want: 700 * time.Second, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.MaxParallelSteps = 2
			r.Spec.Steps[0] = v1alpha1.Step{Name: "a", Run: &v1alpha1.ChildRun{}}
			r.Spec.Steps[1].StartTimeoutSeconds = 600
			admitted(r, v1alpha1.StepStatus{Name: "a", Phase: v1alpha1.StepRunning, StartedAt: at(1), ChildRun: &v1alpha1.ChildRunStatus{Name: "x", UID: "y"}}, dispatched, backing)
		}},
		"the finally steps have a bound of their own": {lock: held(), want: 800 * time.Second, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.ActiveDeadlineSeconds = new(int32(601))
			r.Spec.FinallyTimeoutSeconds = 300
			r.Spec.Finally = []v1alpha1.Step{{Name: "clean", Job: &v1alpha1.Job{Topic: "t"}}}
			done := func(name string) v1alpha1.StepStatus {
				return v1alpha1.StepStatus{Name: name, Phase: v1alpha1.StepSucceeded, Attempt: 1}
			}
			admitted(r, done("a"), done("b"), done("c"), v1alpha1.StepStatus{Name: "clean", Phase: v1alpha1.StepRunning, Attempt: 1, DispatchedAt: at(500), StartedAt: at(501)})
			r.Status.Ending = &v1alpha1.EndingStatus{Phase: v1alpha1.RunSucceeded, Reason: v1alpha1.ReasonSucceeded, AnnouncedAt: *at(500)}
		}},
		"a finished run is to be deleted": {lock: held(), want: 3660 * time.Second, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.TTLSecondsAfterFinished = new(int32(3600))
			admitted(r)
			r.Status.CompletedAt = &metav1.Time{Time: created.Add(time.Minute)}
		}},
		"a finished run is to be deleted whose end was ahead of when it was stored": {lock: held(), want: 3630 * time.Second, change: func(r *v1alpha1.WorkflowRun) {
			r.Spec.TTLSecondsAfterFinished = new(int32(3600))
			admitted(r)
			r.Status.CompletedAt, r.Status.EndStoredAt = &metav1.Time{Time: created.Add(time.Minute)}, &metav1.Time{Time: created.Add(30 * time.Second)}
		}},
		"a finished run stays": {lock: held(), change: func(r *v1alpha1.WorkflowRun) {
			admitted(r)
			r.Status.CompletedAt = &metav1.Time{Time: created.Add(time.Minute)}
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := steady(t, tt.change)
			d := lifecycle.Decide(lifecycle.Input{Run: run, Now: now, Lock: tt.lock, Tenant: lifecycle.Tenant{Name: "ns", Allowed: true}, Permits: lifecycle.Permits{AnyClass: true, AnyTopic: true}, Gate: lifecycle.Gate{State: lifecycle.GateOpen}, MaxRetryAfter: time.Hour})
			if len(d.Dispatch)+len(d.Withdraw) > 0 || d.Delete {
				t.Fatalf("the scenario is not steady: %+v", d)
			}
			run.Status = &d.Status
			var got time.Time
			if n := Why(run, nil, now).Next; n != nil {
				got = n.At
			}
			if !got.Equal(d.Wake) {
				t.Errorf("next look %s, the core says %s", got, d.Wake)
			}
			if tt.want != 0 && !got.Equal(created.Add(tt.want)) || tt.want == 0 && !got.IsZero() {
				t.Errorf("next look %s, want %s after creation", got, tt.want)
			}
		})
	}
}

// mutation: leaving out newer makes this fail.
func TestWhySaysThatARunNeedsANewerOperator(t *testing.T) {
	t.Parallel()
	run := steady(t, func(r *v1alpha1.WorkflowRun) { r.Status = &v1alpha1.WorkflowRunStatus{} })
	for version, want := range map[int32]bool{0: false, v1alpha1.WriterVersion: false, v1alpha1.WriterVersion + 1: true} {
		run.Status.MinWriterVersion = version
		got := slices.ContainsFunc(Why(run, nil, created).Facts, func(f Fact) bool {
			return f.About == "operator" && strings.Contains(f.Text, fmt.Sprintf("does not know version %d of its status", v1alpha1.WriterVersion+1))
		})
		if got != want {
			t.Errorf("version %d: said %t", version, got)
		}
	}
}

// A spec cannot be corrected in place, so the help names commands that can be followed.
// mutation: a help that says to apply the corrected spec makes this fail.
func TestWhySaysHowARunGetsAnotherSpec(t *testing.T) {
	t.Parallel()
	a := sayingOf(saying{condition: "Succeeded", reason: v1alpha1.ReasonInvalidSpec, status: metav1.ConditionFalse, ended: true})
	if !slices.ContainsFunc(a.Facts, func(f Fact) bool {
		return f.About == "help" && strings.Contains(f.Text, "kubectl replace --force -f FILE")
	}) {
		t.Errorf("%+v", a.Facts)
	}
}

// mutations: leaving out lag, or its look at the mode, makes this fail.
func TestWhySaysThatStatusMayLagBehind(t *testing.T) {
	t.Parallel()
	const may = "status may lag behind: steps are dispatched before it is written"
	for name, tt := range map[string]struct {
		checkpoint *v1alpha1.CheckpointStatus
		ended      bool
		want       string
	}{
		"never ahead":           {want: ""},
		"not ahead any more":    {checkpoint: &v1alpha1.CheckpointStatus{Mode: v1alpha1.CheckpointEveryStep, LagMillis: 9}, want: ""},
		"written at once":       {checkpoint: &v1alpha1.CheckpointStatus{Mode: v1alpha1.CheckpointCoalesced}, want: may},
		"written after a while": {checkpoint: &v1alpha1.CheckpointStatus{Mode: v1alpha1.CheckpointCoalesced, LagMillis: 180}, want: may + "; the last write had waited 180 ms"},
		"ended":                 {checkpoint: &v1alpha1.CheckpointStatus{Mode: v1alpha1.CheckpointCoalesced, LagMillis: 180}, ended: true, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := steady(t, func(r *v1alpha1.WorkflowRun) { r.Status = &v1alpha1.WorkflowRunStatus{Checkpoint: tt.checkpoint} })
			if tt.ended {
				run.Status.CompletedAt = &metav1.Time{Time: created}
			}
			got := ""
			for _, f := range Why(run, nil, created).Facts {
				if f.About == "checkpoint" {
					got = f.Text
				}
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// mutation: leaving out late makes this fail.
func TestWhySaysThatTheOperatorIsLate(t *testing.T) {
	t.Parallel()
	run := steady(t, func(r *v1alpha1.WorkflowRun) { r.Spec.QueueTimeoutSeconds = new(int32(60)) })
	for name, tt := range map[string]struct {
		after time.Duration
		late  bool
	}{"a moment later": {75 * time.Second, false}, "long after": {10 * time.Minute, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := run.DeepCopy()
			run.Status = &v1alpha1.WorkflowRunStatus{
				Admission:  &v1alpha1.AdmissionStatus{QueuedAt: &metav1.Time{Time: created}},
				Conditions: []metav1.Condition{{Type: "Succeeded", Status: "Unknown", Reason: "Queued"}},
			}
			got := false
			for _, f := range Why(run, nil, created.Add(tt.after)).Facts {
				got = got || f.About == "operator"
			}
			if got != tt.late {
				t.Errorf("late: %v, want %v", got, tt.late)
			}
		})
	}
}

// mutation: a conflict that is told of each class of a policy makes this fail.
func TestWhySaysOfAPolicyWhatHoldsForTheRunsClass(t *testing.T) {
	t.Parallel()
	older, younger := v1alpha1.LockPolicy{}, v1alpha1.LockPolicy{}
	older.Name, older.Spec.WorkloadClasses, older.CreationTimestamp = "older", []string{"batch"}, metav1.Time{Time: created}
	younger.Name, younger.Spec.WorkloadClasses, younger.CreationTimestamp = "younger", []string{"batch", "gpu"}, metav1.Time{Time: created.Add(time.Second)}
	younger.Status = &v1alpha1.LockPolicyStatus{Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonClassConflict,
	}}}
	for class, told := range map[string]bool{"batch": true, "gpu": false} {
		run := steady(t, func(r *v1alpha1.WorkflowRun) { r.Spec.WorkloadClass = class })
		got := false
		for _, f := range Why(run, []v1alpha1.LockPolicy{older, younger}, created).Facts {
			got = got || f.About == "policy" && strings.Contains(f.Text, "not in force")
		}
		if got != told {
			t.Errorf("a run of class %s is told that the policy is not in force: %t, want %t", class, got, told)
		}
	}
}

// mutation: a step that waits for long without the hint makes this fail.
func TestWhyTellsWhereAnAnswerMayBeThatDoesNotCount(t *testing.T) {
	t.Parallel()
	run := steady(t, func(r *v1alpha1.WorkflowRun) {
		r.Status = &v1alpha1.WorkflowRunStatus{
			ObservedGeneration: 1, Phase: v1alpha1.RunRunning, Steps: []v1alpha1.StepStatus{{Name: "a", Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: at(0)}},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonRunning}},
		}
	})
	for after, want := range map[time.Duration]bool{patience: false, patience + time.Second: true} {
		got := false
		for _, f := range Why(run, nil, created.Add(after)).Facts {
			got = got || f.About == "help" && strings.Contains(f.Text, "wrong token") && strings.Contains(f.Text, "dead-letters list --run r -n ns")
		}
		if got != want {
			t.Errorf("after %s: %t, want %t", after, got, want)
		}
	}
}

// mutation: span for times of which only the second is known makes this fail.
func TestWhyDoesNotTellMillisecondsThatNobodyKnows(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int]string{0: "less than a second", 1: "1s", 9: "9s"} {
		run := steady(t, func(r *v1alpha1.WorkflowRun) {
			begin, end := metav1.Time{Time: created}, metav1.Time{Time: created.Add(time.Duration(seconds) * time.Second)}
			r.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunSucceeded, StartedAt: &begin, CompletedAt: &end}
		})
		for _, f := range Why(run, nil, now).Facts {
			if f.About == "took" && f.Text != want {
				t.Errorf("took %q, want %q", f.Text, want)
			}
		}
	}
}

// What is known of a lock that another holds is in the condition: nothing else is promised, and the
// policy says when it is tried again.
//
// mutation: takeOver that does not look at LockBusy makes this fail.
func TestWhyTellsOfABusyLock(t *testing.T) {
	run := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{WorkloadClass: "batch"}, Status: &v1alpha1.WorkflowRunStatus{Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonWaitingForLock},
		{Type: v1alpha1.ConditionRunLockRenewed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonLockBusy, Message: "held by operator-1"},
		{Type: v1alpha1.ConditionRunLockAbandoned, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOwnershipLost},
	}}}
	for name, c := range map[string]struct {
		policies []v1alpha1.LockPolicy
		next     string
	}{
		"by hand-off":                 {[]v1alpha1.LockPolicy{samplePolicy(t, 1)}, "the lock is tried again every 500-1500ms, and at once when it is handed on"},
		"by polling":                  {[]v1alpha1.LockPolicy{polling(samplePolicy(t, 1))}, "the lock is tried again every 500-1500ms\n"},
		"policies that are not known": {nil, "the lock is tried again as runLock.busyRetry of its policy says"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := Why(run, c.policies, now).Text(&out, now, false); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"waits for its run lock (WaitingForLock)", "LockBusy: another holds the lock; held by operator-1", c.next, "kubectl syncopate run-locks"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, out.String())
				}
			}
			if strings.Contains(out.String(), "after the last renewal") {
				t.Errorf("it promises an end:\n%s", out.String())
			}
		})
	}
}

func polling(p v1alpha1.LockPolicy) v1alpha1.LockPolicy {
	p.Spec.RunLock.Wait.Mode = v1alpha1.WaitModePoll
	return p
}
