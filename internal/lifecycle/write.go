// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// complete completes the status and compares it with the persisted one.
func complete(d *draft) Decision {
	forgetDeadLetters(d)
	storeItems(d)
	releaseLocks(d)
	pruneAsks(d)
	rememberKeys(d)
	d.st.MinWriterVersion = v1alpha1.OldestVersion
	noteCheckpoint(d)
	if d.run.HasLocks() || len(facts.Above(&d.st)) > 0 {
		d.st.MinWriterVersion = v1alpha1.LocksVersion
	}
	if d.st.Workflow != nil {
		d.st.MinWriterVersion = v1alpha1.WorkflowVersion
	}
	if d.run.HasItemLocks() {
		d.st.MinWriterVersion = v1alpha1.ItemLocksVersion
	}
	reportAll(d)
	d.out.Status = d.st
	d.out.Changed = lockChanged(d) || !equality.Semantic.DeepEqual(durable(stored(d.run)), durable(d.st))
	d.out.Changed = d.out.Changed || d.in.Glance && d.left
	d.out.Postponed = d.store.postponed
	d.out.Cut, d.out.Evaluated = d.left && !d.in.Glance, d.view.Done.All()
	d.out.Wake, d.out.Deferred = wakeAt(d), d.answers.deferred
	d.out.MayLag = d.out.Changed && mayLag(d)
	return d.out
}

// reportAll derives conditions, and the events that go with them.
func reportAll(d *draft) {
	r := report.New(&d.in, d.run, &d.st, &d.plan, d.items, report.Found{
		Events: d.out.Events,
		End:    d.ended, Rejected: d.rejected, DeadLetters: newDeadLetters(d),
		Deferred: d.answers.deferred, Lacking: d.answers.lacking, OutputsLack: d.outputsLack, Assembling: d.assembling,
	})
	switch {
	case d.ends() || d.in.Lock.State == LockHeld:
		stamp(d)
		r.Written()
		d.out.Told = len(d.in.DeadLetters) > 0
	case d.in.Lock.State == LockUnavailable:
		sayWaits(d, r, v1alpha1.ReasonLockStoreUnavailable, report.StoreMessage(&d.in.Lock))
	case d.in.Lock.Overdue: // a holder that is gone says nothing; one that is there takes this back
		sayWaits(d, r, v1alpha1.ReasonLockBusy, d.in.Lock.Message)
	default:
		leaveAlone(d, r)
	}
	d.out.Events = r.Events
}

// stamp records who writes. A forced end, or the beginning of one, without the lock, takes the next
// fence with a lease of its own.
func stamp(d *draft) {
	d.st.ObservedGeneration = d.run.Generation
	d.st.Policy = d.in.Policy.DeepCopy()
	fence := d.in.Lock.Fence
	if d.in.Lock.State != LockHeld {
		fence = nextFence(d.st.Fence)
	}
	d.st.Fence = &fence
	d.st.Lock = &v1alpha1.RunLockStatus{
		LeaseID: d.in.Lock.LeaseID, Holder: d.in.Lock.Holder, ConsecutiveRenewalFailures: max(0, d.in.Lock.RenewalFailures),
	}
	if !d.in.Lock.AcquiredAt.IsZero() {
		d.st.Lock.AcquiredAt = bounds.Second(d.in.Lock.AcquiredAt)
	}
	d.st.Progress = report.Progress(d.st.Steps, len(d.plan.Steps))
}

func nextFence(fence *int64) int64 {
	if fence == nil || *fence < 0 || *fence+1 < 0 {
		return 1
	}
	return *fence + 1
}

func stored(run *v1alpha1.WorkflowRun) v1alpha1.WorkflowRunStatus {
	if run.Status == nil {
		return v1alpha1.WorkflowRunStatus{}
	}
	return *run.Status.DeepCopy()
}

// durable is the part of a status of which every change is worth a write of its own. Fence, lock,
// policy, checkpoint and version describe the last writer, and ride along with writes that happen
// anyway: a renewal or a policy edit must not cost one write per run. Of the conditions of the run
// lock only transitions are worth a write: see lockChanged.
func durable(st v1alpha1.WorkflowRunStatus) v1alpha1.WorkflowRunStatus {
	st.Fence, st.Lock, st.Policy, st.Checkpoint, st.MinWriterVersion = nil, nil, nil, nil, 0
	var conditions []metav1.Condition
	for _, c := range st.Conditions {
		if c.Type != v1alpha1.ConditionRunLockRenewed && c.Type != v1alpha1.ConditionRunLockAbandoned {
			conditions = append(conditions, c)
		}
	}
	st.Conditions = conditions
	return st
}

// lockChanged says whether the conditions of the run lock changed so that it is worth a write
// of its own: once per transition. How many renewals failed, and why the last one, rides along
// with other writes.
func lockChanged(d *draft) bool {
	before := &v1alpha1.WorkflowRunStatus{}
	if d.run.Status != nil {
		before = d.run.Status
	}
	was, is := status.ReasonOf(before, v1alpha1.ConditionRunLockRenewed), status.ReasonOf(&d.st, v1alpha1.ConditionRunLockRenewed)
	return lockHealth(was) != lockHealth(is) ||
		// A lease that is kept for the run shows that it is renewed; for a short one that would be
		// a write per renewal.
		(d.in.Lock.ForRun && was == v1alpha1.ReasonLockHeld && is == v1alpha1.ReasonLockRenewed) ||
		report.Abandoned(before) != report.Abandoned(&d.st)
}

// lockHealth groups the reasons of RunLockRenewed: a transition between two groups is news.
func lockHealth(reason string) string {
	switch reason {
	case "", v1alpha1.ReasonRenewalFailing, v1alpha1.ReasonContinuingUnlocked, v1alpha1.ReasonLockStoreUnavailable:
		return reason
	default:
		return "healthy"
	}
}

// leaveAlone keeps what is stored. A run that was never written has no conditions yet; its first
// write tells of a lease that was lost.
func leaveAlone(d *draft, r *report.Report) {
	d.st = stored(d.run)
	if d.in.Lock.Lost != "" && !d.run.Unwritten() {
		r.LeaseLost()
	}
}

// sayWaits says that the lock cannot be taken. It is written without the lock, so it touches
// neither fence nor lock nor steps; and once only, whatever the cause is called the next time. Of a
// run that never had its lock it says the policy, which pins the run's arm: a rollout is to count
// those that wait. A run that nobody has seen yet, or that was suspended before its admission and
// is not any more, starts its queue clock here: with the store down that is the only trace of the
// moment. An older operator may have said that the first waits, and started none.
func sayWaits(d *draft, r *report.Report, reason, message string) {
	leaveAlone(d, r)
	first := d.st.Admission == nil && !d.run.Spec.Suspend
	if r.SaysWaits(reason, message) && !first {
		return
	}
	if first {
		d.st.Admission = &v1alpha1.AdmissionStatus{QueuedAt: bounds.Second(d.now)}
	}
	if d.st.Fence == nil {
		d.st.Policy = d.in.Policy.DeepCopy()
	}
	if d.run.Unwritten() {
		d.st.Progress = report.Progress(nil, len(d.plan.Steps))
	}
	d.st.ObservedGeneration = d.run.Generation
	if !status.Admitted(&d.st) {
		if d.st.Phase != v1alpha1.RunQueued {
			d.st.Phase = v1alpha1.RunPending
		}
		if d.run.Spec.Suspend {
			d.st.Phase, d.st.Admission = v1alpha1.RunSuspended, nil
		}
	}
	r.Waits(reason, message)
}
