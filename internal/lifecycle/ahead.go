// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// noteCheckpoint notes in status that the run may be ahead of it. It is never taken back: whoever
// takes the run over later has to look for what was dispatched ahead.
func noteCheckpoint(d *draft) {
	c := &d.in.Checkpoint
	switch {
	case c.Coalesced:
		d.st.Checkpoint = &v1alpha1.CheckpointStatus{Mode: v1alpha1.CheckpointCoalesced}
	case d.st.Checkpoint != nil:
		d.st.Checkpoint = &v1alpha1.CheckpointStatus{Mode: v1alpha1.CheckpointEveryStep}
	default:
		return
	}
	if !c.Since.IsZero() {
		d.st.Checkpoint.LagMillis = max(0, d.now.Sub(c.Since).Milliseconds())
	}
	d.st.MinWriterVersion = v1alpha1.AheadVersion
}

// mayLag says whether what a decision dispatches may go out before its status is written: whoever
// has the same results decides the same again, in whatever order they come. A run with locks never
// does: a lock is in status before what it protects is dispatched, and nobody replays who got it.
func mayLag(d *draft) bool {
	return d.in.Checkpoint.Coalesced && !d.run.HasLocks() && lockIsQuiet(d) && nothingFromOutside(d) && mayBeAhead(d) && goesForward(d) && hasRoomForAll(d)
}

// lockIsQuiet says whether nothing is to be told of the lock. Whoever goes on without it writes
// first: only the API server can say that no other does, too.
func lockIsQuiet(d *draft) bool {
	l := &d.in.Lock
	return l.Lost == "" && l.UnlockedSince.IsZero() && (d.run.Unwritten() || !lockChanged(d))
}

// nothingFromOutside says whether a decision follows from results alone, and needs nothing but its
// jobs to be published.
func nothingFromOutside(d *draft) bool {
	return len(d.out.Withdraw)+len(d.out.Rejected)+len(d.in.DeadLetters) == 0 && d.in.NATSDown.IsZero() && d.in.NoRoom.IsZero() && !d.run.Spec.Suspend
}

// mayBeAhead says whether the run is in a state in which it may be ahead of its status: it was let
// in before, or needs nobody to let it in, and it does not end.
func mayBeAhead(d *draft) bool {
	if d.ends() || d.endsNext || d.st.Ending != nil || !status.Admitted(&d.st) {
		return false
	}
	if !d.run.Unwritten() {
		return Admitted(d.run)
	}
	if d.st.Workflow != nil {
		return false // which revision it follows is stored before anything is dispatched
	}
	return d.in.Checkpoint.Begins && d.in.Parent == nil && d.run.Spec.IdempotencyKey == ""
}

// goesForward says whether each step stays as it is, or makes a move that every replay of the same
// results makes.
func goesForward(d *draft) bool {
	pending := v1alpha1.StepStatus{Phase: v1alpha1.StepPending}
	for i := range d.st.Steps {
		was := &pending
		if d.initialized {
			was = &d.run.Status.Steps[i]
		}
		if !stepGoesForward(was, &d.st.Steps[i]) {
			return false
		}
	}
	return true
}

// stepGoesForward says whether a step stays as it is, began, was skipped, or was answered. A
// failure that ends the run, or is tried again, is none of these: see mayBeAhead.
func stepGoesForward(was, is *v1alpha1.StepStatus) bool {
	if was.Phase == is.Phase && was.Attempt == is.Attempt {
		return is.ForEach == nil || status.Ended(is.Phase)
	}
	switch is.Phase {
	case v1alpha1.StepDispatched, v1alpha1.StepSkipped:
		return was.Phase == v1alpha1.StepPending
	case v1alpha1.StepRunning, v1alpha1.StepFailed:
		return status.WithWorker(was)
	case v1alpha1.StepSucceeded:
		return status.WithWorker(was) && is.OutputRef == nil
	case v1alpha1.StepPending, v1alpha1.StepBackingOff, v1alpha1.StepWaiting, v1alpha1.StepDelayed, v1alpha1.StepCancelled:
	}
	return false
}

// hasRoomForAll says whether no step ever waits for a place of maxParallelSteps. Where one may, the
// order in which results come decides which step it is, and two replays could start too many.
func hasRoomForAll(d *draft) bool {
	places := dag.Parallel(d.run)
	return d.plan.Main <= places || d.plan.Width() <= places
}

// NeverBegun are the first attempts of steps that a write cancels and that never began, as far as
// status knew. Another process that was ahead of that status may have dispatched them.
func NeverBegun(was, is *v1alpha1.WorkflowRun) (all []Job) {
	p := dag.Of(is)
	before := status.Align(p.Steps, stored(was).Steps)
	outline := render.New(is, nil, nil)
	for i := range is.Status.Steps {
		s := &is.Status.Steps[i]
		if s.Phase == v1alpha1.StepCancelled && s.Attempt == 0 && before[i].Phase == v1alpha1.StepPending && p.Steps[i].Job != nil && !dag.FansOut(&p.Steps[i]) {
			all = append(all, outline.Outline(status.JobID(is, s.Name, 1), i, s.CompletedAt.Time))
		}
	}
	return all
}
