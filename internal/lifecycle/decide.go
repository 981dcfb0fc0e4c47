// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// Decide decides what happens to a run. See the package's documentation for its contract.
func Decide(in Input) Decision {
	switch {
	case in.Run == nil:
		return Decision{Verdicts: verdicts(in.Results, Ahead)}
	case newer(&in) > 0:
		return decideNewer(in)
	case Finished(in.Run):
		return decideFinished(in)
	case awaitsParent(&in):
		return awaitParent(in)
	}
	if in.Lock.State != LockHeld {
		return complete(decideUnlocked(in))
	}
	d := newDraft(in)
	runStages(d,
		applyResults,    // what workers said: all of it counts before any of it ends the run
		noteDeadLetters, // attempts whose answers are about to be put aside
		applySignals,    // what came from outside for steps that wait: approvals
		endDeleted,      // a run that is being deleted: that its child runs go first is no failure
		applyChildren,   // what became of child runs
		followParent,    // a parent that is terminated, or does not wait for this run any more
		shutDown,        // spec.shutdown
		endWaitsInTime,  // delays and approvals that were over before the deadline that is over
		passDeadlines,   // activeDeadlineSeconds, finallyTimeoutSeconds, queueTimeoutSeconds
		endWithoutRoom,  // an object that has no room for its status
		missTemplate,    // a Workflow, or a revision, that does not exist
		initialize,      // at first sight: what the namespace permits, and whether the spec can be run
		boundWaits,      // waits that a wrong clock made too long
		endLost,         // attempts that are nowhere, and cannot be published again
		timeOut,         // attempts, delays and approvals whose time is over
		admit,           // the idempotency key, and the tenant's quota or the parent
		setPhase,        // Queued, Running or Suspended
		startSteps,      // steps and items that may begin, as far as there are places
	)
	if d.unread {
		return decideUnread(in)
	}
	return complete(d)
}

// A stage takes one kind of fact into the state and the outcome. It ends the run by endRun,
// or by finish.
type stage func(*draft)

// runStages runs stages in order until one ends the run, or finds that nothing can be decided yet.
func runStages(d *draft, stages ...stage) {
	for _, stage := range stages {
		if stage(d); d.ended != nil || d.unread {
			return
		}
	}
}

// forced are the stages that end a run also without the lock.
func forced(d *draft) {
	runStages(d, endDeleted, followParent, shutDown, passDeadlines)
}

// decideUnlocked ends the run, or announces its end, if it has to end now. What is at hand counts
// in a write that happens anyway, since after it that would have no effect: results, signals, ends
// of child runs, and waits that were over in time. So do steps that are all over. For them alone
// nothing is written.
func decideUnlocked(in Input) *draft {
	d := newDraft(in)
	d.out.Verdicts = verdicts(in.Results, Waiting)
	forced(d)
	if !d.ends() {
		return d
	}
	with := newDraft(in)
	runStages(with, applyResults, applySignals, endDeleted, applyChildren, // in Decide's order
		followParent, shutDown, endWaitsInTime, passDeadlines)
	if with.ends() {
		return with
	}
	// What is at hand waits for the object store, or outputs of the run do, and the
	// deadline for it.
	none := newDraft(in)
	none.out.Verdicts = verdicts(in.Results, Waiting)
	none.out.Needs, none.left, none.store.postponed, none.answers.deferred = with.out.Needs, with.left, with.store.postponed, true
	return none
}

func newDraft(in Input) *draft {
	in.Tenant = tenantOf(&in)
	d := &draft{given: given{in: in, run: asParentWants(&in), now: in.Now, plan: dag.Of(in.Run)}}
	if in.Run.Status != nil {
		in.Run.Status.DeepCopyInto(&d.st)
	}
	d.initialized = len(d.st.Steps) > 0 && status.Aligned(d.plan.Steps, d.st.Steps)
	if !d.initialized {
		d.st.Steps = status.Align(d.plan.Steps, append(d.st.Steps, d.in.Origin.Steps...))
	}
	used := len(bounds.Raw(d.st.Outputs))
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		used += len(bounds.Raw(s.Output))
		if status.IsForEach(s) && s.ForEach.Outputs != nil {
			used += len(s.ForEach.Outputs.Raw)
		}
		d.texts.count(s)
	}
	d.store = storeOf(in.Payloads, &d.out.Needs, used, d.plan.Steps[:len(d.st.Steps)])
	d.store.pause = in.Pause
	d.answers = questions{known: &d.in.Answers, needs: &d.out.Needs, now: d.now}
	claimParent(d)
	if d.st.Tenant == "" {
		d.st.Tenant = d.in.Tenant.Name
	}
	if d.st.Workflow == nil {
		d.st.Workflow = d.in.Template.Revision.DeepCopy()
	}
	d.view = render.NewView(in.Run, &d.st, &d.plan, in.Payloads)
	d.view.Done = &render.Evaluations{Known: in.Evaluated, Glance: in.Glance, Quick: in.Quick, Pause: in.Pause, More: func() bool { return mayGoOn(d) }}
	d.items = make([]*fanout.Items, len(d.st.Steps))
	readItems(d)
	return d
}

// newer is the version that this core lacks to decide about a run, or to read what its parent says
// of it; 0: it lacks none.
func newer(in *Input) int32 {
	if in.Parent == nil {
		return in.Run.NeedsNewer()
	}
	return max(in.Run.NeedsNewer(), in.Parent.NeedsNewer)
}

// decideNewer leaves a run alone: whatever this core made of its status could be wrong, and a write
// would drop what it does not know.
func decideNewer(in Input) Decision {
	return Decision{Status: stored(in.Run), Verdicts: verdicts(in.Results, Waiting), NeedsNewer: newer(&in)}
}
