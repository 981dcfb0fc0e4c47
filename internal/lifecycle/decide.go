package lifecycle

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Decide decides what happens to a run. See the package's documentation for its contract.
func Decide(in Input) Decision {
	switch {
	case in.Run == nil:
		return Decision{Verdicts: verdicts(in.Results, Ahead)}
	case in.newer() > 0:
		return decideNewer(in)
	case Finished(in.Run):
		return decideFinished(in)
	case in.early():
		return decideEarly(in)
	}
	d := newDecider(in)
	if in.Lock.State == LockHeld {
		d.through(d.results, d.deadLetters, d.approvals, d.children, d.parent, d.shutdown, d.deadlines, d.noRoom, d.firstSight, d.timeouts, d.admit, d.phase, d.starts)
	} else {
		d = decideUnlocked(in)
	}
	return d.decision()
}

// decideUnlocked ends the run, or announces its end, if it has to end now. Results count in a write that happens anyway, since after
// it they would have no effect; for them alone nothing is written.
func decideUnlocked(in Input) *decider {
	d := newDecider(in)
	d.out.Verdicts = verdicts(in.Results, Waiting)
	forced := []func(*decider){(*decider).parent, (*decider).shutdown, (*decider).deadlines, (*decider).queueDeadline}
	d.throughAll(forced)
	if (!d.over && !d.begun) || len(in.Results) == 0 {
		return d
	}
	with := newDecider(in)
	with.throughAll(append([]func(*decider){(*decider).results}, forced...))
	if with.over || with.begun {
		return with
	}
	// A result at hand waits for the object store, and the deadline for it.
	none := newDecider(in)
	none.out.Verdicts = verdicts(in.Results, Waiting)
	none.out.Needs, none.deferred = with.out.Needs, true
	return none
}

// Finished says whether the run ended, in whichever way.
func Finished(run *v1alpha1.WorkflowRun) bool {
	return run != nil && run.Status != nil && run.Status.CompletedAt != nil
}

// Admitted says whether the run was let in by its tenant's gate.
func Admitted(run *v1alpha1.WorkflowRun) bool {
	return run != nil && run.Status != nil && status.Admitted(run.Status)
}

// decider is the state of one decision.
type decider struct {
	in   Input
	run  *v1alpha1.WorkflowRun
	now  time.Time
	st   v1alpha1.WorkflowRunStatus // becomes Decision.Status; shares nothing with in
	plan dag.Plan
	view *view
	out  Decision

	seen        bool     // the persisted status knows the steps: the spec was validated
	failure     *failure // the first step that failed in this decision, if that ends the run
	asked       bool     // spec.outputs were evaluated in this decision
	outputsLack bool     // and lack something of the object store
	begun       bool     // the finally steps were let in by this decision
	over        bool     // the run ended in this decision
	outcome     outcome  // how, if it did
	outputBytes int      // of all outputs in status
	errorBytes  int      // of all error messages
	saidBytes   int      // of all that approvers said
	postponed   bool     // something waits for the next decision, which can load what it reads, or has room for it
	again       bool     // a step ended in the middle of starts: others may start by that
	assembling  bool     // the output of a step with forEach waits for the object store
	deferred    bool     // a time-out that is due waits for answers
	outOfTime   bool     // it is a deadline of the run: nothing begins any more

	unsettled map[protocol.JobID]bool // attempts whose answers at hand wait for the object store

	parts      map[string]bool // objects with outputs of items, by name
	partsAsked int64           // bytes of those that this decision reads
	items      []*items        // by step: of those with forEach that are under way

	progressed int  // steps and items that begin, or end as they do, with this decision
	left       bool // an expression is left for the next decision
}

// failure is a failed step as the reason for the end of its run.
type failure struct {
	step   int
	reason string
}

func newDecider(in Input) *decider {
	d := &decider{in: in, run: adopted(&in), now: in.Now, plan: dag.Of(in.Run)}
	if in.Run.Status != nil {
		in.Run.Status.DeepCopyInto(&d.st)
	}
	d.seen = len(d.st.Steps) > 0 && status.Aligned(d.plan.Steps, d.st.Steps)
	if !d.seen {
		d.st.Steps = status.Align(d.plan.Steps, d.st.Steps)
	}
	d.outputBytes = len(bounds.Raw(d.st.Outputs))
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		d.outputBytes += len(bounds.Raw(s.Output))
		if status.IsForEach(s) && s.ForEach.Outputs != nil {
			d.outputBytes += len(s.ForEach.Outputs.Raw)
		}
		if s.Error != nil {
			d.errorBytes += bounds.StoredBytes(s.Error.Message)
		}
		if a := s.Approval; a != nil {
			d.saidBytes += bounds.StoredBytes(a.Approver) + bounds.StoredBytes(a.Name) + bounds.StoredBytes(a.Comment)
		}
	}
	d.claimParent()
	if d.st.Tenant == "" {
		d.st.Tenant = d.in.Tenant.Name
	}
	d.view = newView(in.Run, &d.st, &d.plan, in.Payloads)
	d.view.done = &evaluations{known: in.Evaluated, glance: in.Glance, quick: in.Quick, more: d.may}
	d.items = make([]*items, len(d.st.Steps))
	d.readItems()
	return d
}

// throughAll is through for stages of any decider.
func (d *decider) throughAll(stages []func(*decider)) {
	for _, stage := range stages {
		if stage(d); d.over {
			return
		}
	}
}

// through runs stages in order until one ends the run.
func (d *decider) through(stages ...func()) {
	for _, stage := range stages {
		if stage(); d.over {
			return
		}
	}
}

// decision completes the status and compares it with the persisted one.
func (d *decider) decision() Decision {
	d.forgetLetters()
	d.storeItems()
	d.st.MinWriterVersion = v1alpha1.WriterVersion
	switch {
	case d.over:
		d.writer()
		d.endConditions()
		d.cutToForm()
	case d.in.Lock.State == LockHeld:
		d.writer()
		d.progressConditions()
	case d.begun:
		d.forcedBeginning()
	case d.in.Lock.State == LockUnavailable:
		d.waitForStore()
	default:
		d.waitForLock()
	}
	d.out.Status = d.st
	d.out.Changed = d.lockNews() || !equality.Semantic.DeepEqual(durable(stored(d.run)), durable(d.st))
	d.out.Changed = d.out.Changed || d.in.Glance && d.left
	d.out.Cut, d.out.Evaluated = d.left && !d.in.Glance, d.view.done.all()
	d.out.Wake, d.out.Deferred = d.wake(), d.deferred
	return d.out
}

// writer records who writes. A forced end, or the beginning of one, without the lock, takes the next fence with a lease of its own.
func (d *decider) writer() {
	d.st.ObservedGeneration = d.run.Generation
	d.st.Policy = d.in.Policy.DeepCopy()
	fence := d.in.Lock.Fence
	if d.in.Lock.State != LockHeld {
		fence = nextFence(d.st.Fence)
	}
	d.admittedCondition()
	if d.over || d.in.Lock.State == LockHeld {
		d.lockConditions()
	} else if d.in.Lock.Lost != "" {
		d.abandon()
	}
	d.st.Fence = &fence
	d.st.Lock = &v1alpha1.RunLockStatus{
		LeaseID: d.in.Lock.LeaseID, Holder: d.in.Lock.Holder, ConsecutiveRenewalFailures: max(0, d.in.Lock.RenewalFailures),
	}
	if !d.in.Lock.AcquiredAt.IsZero() {
		d.st.Lock.AcquiredAt = bounds.Second(d.in.Lock.AcquiredAt)
	}
	d.st.Progress = progress(d.st.Steps, len(d.plan.Steps))
}

func nextFence(fence *int64) int64 {
	if fence == nil || *fence < 0 || *fence+1 < 0 {
		return 1
	}
	return *fence + 1
}

// phase is that of a run that goes on.
func (d *decider) phase() {
	was := d.st.Phase
	d.st.Phase = v1alpha1.RunRunning
	switch {
	case d.run.Spec.Suspend:
		d.st.Phase = v1alpha1.RunSuspended
	case d.queued():
		d.st.Phase = v1alpha1.RunQueued
	}
	switch {
	case was != d.st.Phase && d.st.Phase == v1alpha1.RunSuspended:
		d.event(EventNormal, v1alpha1.ReasonSuspended, "No new jobs while "+d.suspension().is)
	case was == v1alpha1.RunSuspended && d.st.Phase != was:
		d.event(EventNormal, "Resumed", "New jobs may start")
	}
}

func (d *decider) event(kind, reason, message string) {
	d.out.Events = append(d.out.Events, Event{Type: kind, Reason: reason, Message: bounds.CutBytes(bounds.Printable(message), bounds.MaxEventBytes)})
}

func stored(run *v1alpha1.WorkflowRun) v1alpha1.WorkflowRunStatus {
	if run.Status == nil {
		return v1alpha1.WorkflowRunStatus{}
	}
	return *run.Status.DeepCopy()
}

// durable is the part of a status of which every change is worth a write of its own. Fence, lock, policy and version describe the last
// writer, and ride along with writes that happen anyway: a renewal or a policy edit must not cost one write per run. Of the
// conditions of the run lock only transitions are worth a write: see lockNews.
func durable(st v1alpha1.WorkflowRunStatus) v1alpha1.WorkflowRunStatus {
	st.Fence, st.Lock, st.Policy, st.MinWriterVersion = nil, nil, nil, 0
	var conditions []metav1.Condition
	for _, c := range st.Conditions {
		if c.Type != v1alpha1.ConditionRunLockRenewed && c.Type != v1alpha1.ConditionRunLockAbandoned {
			conditions = append(conditions, c)
		}
	}
	st.Conditions = conditions
	return st
}

func verdicts(results []Result, v Verdict) []Verdict {
	all := make([]Verdict, len(results))
	for i := range all {
		all[i] = v
	}
	return all
}
