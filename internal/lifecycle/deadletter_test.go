// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// givenUp decides about results that are to be put aside.
func givenUp(run *v1alpha1.WorkflowRun, now time.Time, dead ...DeadLetter) Decision {
	return Decide(letIn(Input{Run: run, Now: now, Lock: held(1), DeadLetters: dead}))
}

// mutation: Decide without the stage noteDeadLetters, commitJob that leaves the field,
// forgetDeadLetters that does nothing, or noteDeadLetters that takes Started for an answer makes
// this fail.
func TestStatusSaysThatAnAnswerIsPutAside(t *testing.T) {
	run := dispatched(t)
	id := job("a", 1)
	if out := givenUp(run, epoch, DeadLetter{ID: id, Started: true, Failures: 1, Cause: "no"}); !out.Told || out.Status.Steps[0].DeadLetter != "" {
		t.Errorf("Started: told %t, %+v", out.Told, out.Status.Steps[0])
	}
	dead := DeadLetter{ID: id, Failures: 3, Cause: "no"}
	out := givenUp(run, epoch, dead)
	if !out.Told || !out.Changed || out.Status.Steps[0].DeadLetter != v1alpha1.DeadLetterExhausted {
		t.Fatalf("told %t, changed %t, %+v", out.Told, out.Changed, out.Status.Steps[0])
	}
	run.Status = persisted(t, &out.Status)
	if diff := cmp.Diff([]protocol.JobID{id}, InFlight(run)); diff != "" || len(Unanswered(run)) != 0 {
		t.Errorf("in flight (-want +got):\n%s\nunanswered %v", diff, Unanswered(run))
	}
	dead.Failures = 4 // it came again, as the dead letter could not be stored
	if out = givenUp(run, epoch, dead); !out.Told || out.Changed || len(out.Events) != 0 {
		t.Errorf("again: told %t, changed %t, %+v", out.Told, out.Changed, out.Events)
	}
	redriven := decideAt(run, epoch, held(1), succeeded("a", 1, "1"))
	if s := redriven.Status.Steps[0]; s.Phase != v1alpha1.StepSucceeded || s.DeadLetter != "" {
		t.Errorf("redriven: %+v", s)
	}
	advance(t, run, epoch.Add(time.Hour+time.Second))
	if s := run.Status.Steps[0]; s.Phase != v1alpha1.StepBackingOff || s.DeadLetter != "" {
		t.Errorf("timed out: %+v", s)
	}
	advance(t, run, epoch.Add(2*time.Hour))
	if diff := cmp.Diff([]protocol.JobID{job("a", 2)}, Unanswered(run)); diff != "" || CountUnanswered(run) != 1 {
		t.Errorf("the next attempt (-want +got):\n%s", diff)
	}
}

// mutation: same or bound that does not look at deadLetter makes this fail.
func TestAnItemWhoseAnswerIsPutAsideIsInAGroupOfItsOwn(t *testing.T) {
	run := newRun(newStep("a", forEach("${[1, 2, 3]}", 3, "")))
	advance(t, run, epoch)
	id := ofItem(1, result("a", 1, protocol.StatusStarted)).ID
	out := givenUp(run, epoch, DeadLetter{ID: id, Failures: 1, Cause: "no"})
	run.Status = persisted(t, &out.Status)
	groups := map[string]v1alpha1.DeadLetterReason{}
	for _, g := range run.Status.Steps[0].ForEach.Groups {
		groups[g.Items] = g.DeadLetter
	}
	if diff := cmp.Diff(map[string]v1alpha1.DeadLetterReason{"0,2": "", "1": v1alpha1.DeadLetterExhausted}, groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if len(InFlight(run)) != 3 || len(Unanswered(run)) != 2 || CountUnanswered(run) != 2 {
		t.Errorf("in flight %v, unanswered %v, which are %d", InFlight(run), Unanswered(run), CountUnanswered(run))
	}
	advance(t, run, epoch, ofItem(0, succeeded("a", 1, "1")), ofItem(1, succeeded("a", 1, "1")), ofItem(2, succeeded("a", 1, "1")))
	if run.Status.Steps[0].Phase != v1alpha1.StepSucceeded {
		t.Errorf("step %+v", run.Status.Steps[0])
	}
}

// mutation: decideFinished that never says Told makes this fail: such a result would stay for ever.
func TestAResultOfAFinishedRunMayBePutAside(t *testing.T) {
	run := dispatched(t)
	run.Spec.Shutdown = v1alpha1.ShutdownCancel
	advance(t, run, epoch)
	if out := givenUp(run, epoch, DeadLetter{ID: job("a", 1), Failures: 1, Cause: "no"}); !out.Told || out.Changed {
		t.Errorf("told %t, changed %t", out.Told, out.Changed)
	}
}

// A result was rejected, and its process died before it was put aside: whatever became of its
// attempt meanwhile, it is put aside when it comes again, and not acknowledged away.
//
// mutation: rejectAgain for Duplicate only, or without unusable, makes cases fail.
func TestARejectedResultIsPutAsideAfterItsAttemptIsOver(t *testing.T) {
	bad := succeeded("a", 1, "1e999")
	for name, c := range map[string]struct {
		run *v1alpha1.WorkflowRun
		bad Result
	}{
		"a step":  {newRun(newStep("a", maxFailures(3))), bad},
		"an item": {newRun(newStep("a", forEach("${[1]}", 1, ""), maxFailures(3))), ofItem(0, bad)},
	} {
		t.Run(name, func(t *testing.T) {
			advance(t, c.run, epoch)
			first := advance(t, c.run, epoch, c.bad)
			if first.Rejected[0] == "" || first.Verdicts[0] != Applied {
				t.Fatalf("at first: %v, %v", first.Rejected, first.Verdicts)
			}
			for i, at := range []time.Duration{0, time.Minute} {
				if i > 0 {
					advance(t, c.run, epoch.Add(at)) // the next attempt
				}
				again := decideAt(c.run, epoch.Add(at), held(1), c.bad)
				if again.Rejected[0] != first.Rejected[0] || again.Verdicts[0] != []Verdict{Duplicate, Stale}[i] {
					t.Errorf("again: %v, %v", again.Rejected, again.Verdicts)
				}
			}
			c.run.Spec.Shutdown = v1alpha1.ShutdownCancel
			advance(t, c.run, epoch.Add(time.Minute))
			if again := decideAt(c.run, epoch.Add(time.Minute), held(1), c.bad); again.Rejected[0] != first.Rejected[0] {
				t.Errorf("after the end: %v", again.Rejected)
			}
		})
	}
}

// mutation: items.deadLetter that does not look at the verdict makes this fail: the attempt of now
// would be marked.
func TestADeadLetterOfAnItemsEarlierAttemptMarksNothing(t *testing.T) {
	run := newRun(newStep("a", forEach("${[1, 2]}", 2, "")))
	advance(t, run, epoch)
	advance(t, run, epoch, ofItem(0, failed("a", 1, "x", "")))
	advance(t, run, epoch.Add(time.Hour-time.Minute))
	id := ofItem(0, result("a", 1, protocol.StatusStarted)).ID
	out := givenUp(run, epoch.Add(time.Hour-time.Minute), DeadLetter{ID: id, Failures: 1, Cause: "no"})
	for _, g := range out.Status.Steps[0].ForEach.Groups {
		if g.DeadLetter != "" {
			t.Errorf("group %+v", g)
		}
	}
}

// mutation: unusable that does not look at references makes this fail: the result would
// be acknowledged away.
func TestAResultWithAReferenceOfAnotherJobIsPutAsideAgain(t *testing.T) {
	run := dispatched(t)
	advance(t, run, epoch, failed("a", 1, "x", ""))
	foreign := referring("a", 1, 5000)
	foreign.Result.OutputRef.Name = referring("b", 1, 5000).Result.OutputRef.Name
	if out := decideAt(run, epoch, held(1), foreign); out.Verdicts[0] != Duplicate || out.Rejected[0] == "" {
		t.Errorf("verdict %s, rejected %q", out.Verdicts[0], out.Rejected[0])
	}
	own := referring("a", 1, 5000)
	if out := decideAt(run, epoch, held(1), own); out.Verdicts[0] != Duplicate || out.Rejected[0] != "" {
		t.Errorf("a good one: verdict %s, rejected %q", out.Verdicts[0], out.Rejected[0])
	}
}

// mutation: Outlines that leaves something out of what a job is known by makes this fail.
func TestAnOutlineIsTheJobWithoutItsInput(t *testing.T) {
	run := newRun(newStep("a", input(`{"x":1}`)), newStep("e", forEach("${[1, 2]}", 2, "")))
	jobs := advance(t, run, epoch).Dispatch
	for i := range jobs {
		jobs[i].Input = nil
	}
	if diff := cmp.Diff(jobs, Outlines(run)); diff != "" {
		t.Errorf("outlines (-want +got):\n%s", diff)
	}
}

// An attempt has one answer, and a bad one is an answer. A good result that follows comes too late,
// and is a duplicate as any other; it is not put aside for what was wrong with the one before.
//
// mutation: rejectAgain that goes by the error of the step alone makes this fail.
func TestAGoodResultIsNotPutAsideForABadOneBefore(t *testing.T) {
	bad := result("a", 1, "")
	bad.Rejected = "no result: invalid character 'x'"
	good := map[string]Result{
		"Succeeded": succeeded("a", 1, "7"), "without output": result("a", 1, protocol.StatusSucceeded), "by reference": referring("a", 1, 5000),
		"Failed": failed("a", 1, "x", ""), "Retry": result("a", 1, protocol.StatusRetry), "Started": result("a", 1, protocol.StatusStarted),
	}
	for failures, when := range map[int32]string{3: "while its step backs off", 1: "after its step failed"} {
		for what, r := range good {
			t.Run(what+" "+when, func(t *testing.T) {
				run := newRun(newStep("a", maxFailures(failures)))
				advance(t, run, epoch)
				if first := advance(t, run, epoch, bad); first.Rejected[0] != bad.Rejected {
					t.Fatalf("rejected %v", first.Rejected)
				}
				if out := decideAt(run, epoch, held(1), r, bad); out.Verdicts[0] != Duplicate || out.Rejected[0] != "" || out.Rejected[1] != bad.Rejected {
					t.Errorf("verdict %s, rejected %v", out.Verdicts[0], out.Rejected)
				}
			})
		}
	}
}
