// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// lateLooks are those of somebody who looks at a run late, with the lock and without.
func lateLooks() map[string]Lock {
	return map[string]Lock{"held": held(2), "busy": busy(), "away": unavailable()}
}

func bounded(run *v1alpha1.WorkflowRun, seconds int32) *v1alpha1.WorkflowRun {
	run.Spec.ActiveDeadlineSeconds = &seconds
	return run
}

func approvalWithin(seconds int32, onTimeout v1alpha1.ApprovalDecision) stepOption {
	return approval(func(a *v1alpha1.Approval) { a.TimeoutSeconds, a.OnTimeout = &seconds, onTimeout })
}

// A step that waits is over when its time comes, and not when somebody looks: a run whose last one
// was over before its deadline is not out of time, though nobody could look between the two.
//
// mutations: no endWaitsInTime in Decide, or none in decideUnlocked; one before shutDown; one that
// ends what was over after the deadline, or not what was over with it, each fail a case.
func TestARunWhoseLastWaitWasOverInTimeIsNotOutOfTime(t *testing.T) {
	t.Parallel()
	wait := func(is stepOption, deadline int32, more ...v1alpha1.Step) *v1alpha1.WorkflowRun {
		return bounded(newRun(append([]v1alpha1.Step{newStep("deploy"), newStep("soak", after("deploy"), is)}, more...)...), deadline)
	}
	cancelled, cleans := wait(delay(600), 900), wait(delay(600), 900)
	cancelled.Spec.Shutdown = v1alpha1.ShutdownCancel
	cleans.Spec.Finally, cleans.Spec.FinallyTimeoutSeconds = []v1alpha1.Step{newStep("tidy")}, 60
	for name, c := range map[string]struct {
		run  *v1alpha1.WorkflowRun
		want string
		step v1alpha1.StepPhase // of the second one
	}{
		"a delay":                                  {wait(delay(600), 900), "Succeeded/Succeeded", v1alpha1.StepSucceeded},
		"a delay that ends with its run":           {wait(delay(600), 720), "Succeeded/Succeeded", v1alpha1.StepSucceeded},
		"a delay that ends after its run":          {wait(delay(600), 719), "TimedOut/DeadlineExceeded", v1alpha1.StepCancelled},
		"a delay in a run that was cancelled, too": {cancelled, "Cancelled/Cancelled", v1alpha1.StepCancelled},
		"an approval that is one by time":          {wait(approvalWithin(600, v1alpha1.Approve), 900), "Succeeded/Succeeded", v1alpha1.StepSucceeded},
		"an approval that is none by time":         {wait(approvalWithin(600, v1alpha1.Reject), 900), "Failed/StepFailed", v1alpha1.StepFailed},
		"a delay with another step after it":       {wait(delay(600), 900, newStep("more", after("soak"), delay(1))), "TimedOut/DeadlineExceeded", v1alpha1.StepSucceeded},
		"a delay with clean-up after it":           {cleans, "Running", v1alpha1.StepSucceeded},
	} {
		for lockIs, lock := range lateLooks() {
			t.Run(name+", lock "+lockIs, func(t *testing.T) {
				run := c.run.DeepCopy()
				run.Spec.Shutdown = ""
				advance(t, run, epoch)
				advance(t, run, epoch.Add(2*time.Minute), succeeded("deploy", 1, `1`))
				run.Spec.Shutdown = c.run.Spec.Shutdown
				out := decideAt(run, epoch.Add(16*time.Minute), lock)
				if got := out.Status.Steps[1].Phase; !strings.HasPrefix(outcomeOf(&out.Status), c.want) || got != c.step {
					t.Errorf("it is %s, the step %s; want %s, %s", outcomeOf(&out.Status), got, c.want, c.step)
				}
				if e := out.Status.Ending; (e != nil) != (run.Spec.Finally != nil) || e != nil && e.Phase != v1alpha1.RunSucceeded {
					t.Errorf("its clean-up follows %+v", e)
				}
			})
		}
	}
}

// mutation: an endWaitsInTime that asks for activeDeadlineSeconds only makes this fail.
func TestACleanUpWhoseLastWaitWasOverInTimeIsNotOutOfTime(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int32]string{60: "Succeeded/Succeeded", 120: "Succeeded/Succeeded", 121: "Failed/FinallyTimeout"} {
		for lockIs, lock := range lateLooks() {
			run := newRun(newStep("a"))
			run.Spec.Finally, run.Spec.FinallyTimeoutSeconds = []v1alpha1.Step{newStep("f", delay(seconds))}, 120
			advance(t, run, epoch)
			advance(t, run, epoch, succeeded("a", 1, `1`))
			if out := decideAt(run, epoch.Add(time.Hour), lock); outcomeOf(&out.Status) != want {
				t.Errorf("a delay of %d s, lock %s: it is %s, not %s", seconds, lockIs, outcomeOf(&out.Status), want)
			}
		}
	}
}

// Without the lock a wait that is over is written with the end of its run, or not at all; then
// nothing is told of it.
//
// mutation: endWaitsInTime among the stages of forced makes this fail.
func TestNothingIsToldOfAWaitInTimeBeforeItIsWritten(t *testing.T) {
	t.Parallel()
	run := bounded(newRun(newStep("soak", delay(60))), 120)
	run.Spec.Outputs = raw(`{"x":` + text(5<<10) + `}`)
	advance(t, run, epoch)
	out := Decide(letIn(Input{Run: run, Now: epoch.Add(time.Hour), Lock: busy()}))
	if out.Changed || len(out.Events) > 0 || !out.Needs.Outputs() || !out.Deferred {
		t.Errorf("changed %t, events %v, needs outputs %t, deferred %t", out.Changed, out.Events, out.Needs.Outputs(), out.Deferred)
	}
	if out := decideAt(run, epoch.Add(time.Hour), busy()); outcomeOf(&out.Status) != "Succeeded/Succeeded" {
		t.Errorf("with an object store it is %s", outcomeOf(&out.Status))
	}
}

// What is over while the deadline waits for an answer of a worker was over in time, or is not.
//
// mutation: a timeOut that ends waits of a run that is out of time makes this fail.
func TestAWaitThatIsOverAfterTheDeadlineIsNotOverWhileThatWaits(t *testing.T) {
	t.Parallel()
	run := bounded(newRun(newStep("a"), newStep("early", delay(119)), newStep("late", delay(121)), newStep("ask", approvalWithin(121, v1alpha1.Approve))), 120)
	advance(t, run, epoch)
	out := Decide(unasked(run, epoch.Add(10*time.Minute)))
	phases := [...]v1alpha1.StepPhase{out.Status.Steps[1].Phase, out.Status.Steps[2].Phase, out.Status.Steps[3].Phase}
	if want := [...]v1alpha1.StepPhase{v1alpha1.StepSucceeded, v1alpha1.StepDelayed, v1alpha1.StepWaiting}; !out.Deferred || phases != want {
		t.Errorf("deferred %t, the steps are %v; want %v", out.Deferred, phases, want)
	}
}

// An approval without a time of its own has until the deadline of its run. Nobody is said to have
// been silent by then before it was asked what was said: what the shell has heard may be late.
//
// mutations: a runTimedOut that asks nobody, asks where somebody decided, or waits for ever; a
// signalFor that knows no deadline; and a stepEnds that wakes for what lacks an answer fail a case.
func TestADeadlineEndsAnApprovalOnceItIsKnownThatNobodyDecided(t *testing.T) {
	t.Parallel()
	const end = time.Minute
	said := func(after time.Duration) []Signal {
		return []Signal{{Name: "x", Step: "a", Decision: v1alpha1.Approve, Approver: "ann", At: epoch.Add(after)}}
	}
	const waits, over, fine = "Running/WaitingForApproval", "TimedOut/DeadlineExceeded", "Succeeded/Succeeded"
	never, hour := approval(func(*v1alpha1.Approval) {}), approvalWithin(3600, v1alpha1.Approve)
	for name, c := range map[string]struct {
		step stepOption
		asOf time.Duration // after the beginning
		said []Signal
		asks bool
		want string
	}{
		"nobody asked":                            {never, -time.Hour, nil, true, waits},
		"somebody asked before the end":           {never, end - 1, nil, true, waits},
		"nobody had decided by the end":           {never, end, nil, false, over},
		"somebody had":                            {never, end, said(end), false, fine},
		"somebody had, and nobody needs to ask":   {never, -time.Hour, said(end - 1), false, fine},
		"somebody did after it, and nobody asked": {never, -time.Hour, said(end + 1), true, waits},
		"somebody did after it":                   {never, time.Hour, said(end + 1), false, over},
		"within an hour, and nobody asked":        {hour, -time.Hour, nil, true, waits},
		"within an hour, and somebody did late":   {hour, time.Hour, said(end + 1), false, over},
		"a delay":                                 {delay(3600), -time.Hour, nil, false, over},
	} {
		for lockIs, lock := range lateLooks() {
			t.Run(name+", lock "+lockIs, func(t *testing.T) {
				run := bounded(newRun(newStep("a", c.step)), 60)
				advance(t, run, epoch)
				in := letIn(Input{Run: run, Now: epoch.Add(time.Hour), Lock: lock, Signals: c.said})
				in.SignalsAsOf = epoch.Add(c.asOf)
				out := Decide(in)
				got := outcomeOf(&out.Status)
				if out.Needs.Signals != c.asks || out.Needs.Any() != c.asks || out.Deferred != c.asks || (out.Status.CompletedAt == nil) != c.asks {
					t.Fatalf("it is %s, needs %+v, deferred %t", got, out.Needs, out.Deferred)
				}
				if got != c.want && lock.State != LockUnavailable {
					t.Errorf("it is %s, not %s", got, c.want)
				}
				if c.asks && !out.Wake.IsZero() {
					t.Errorf("it wakes %s after a decision that lacks an answer", out.Wake.Sub(in.Now))
				}
			})
		}
	}
}

// mutations: a wait for what was sent without a bound, or words that tell of workers
// make this fail.
func TestADeadlineWaitsAMinuteForWhatSomebodyDecided(t *testing.T) {
	t.Parallel()
	const why = "whether somebody decided in time cannot be found out since "
	for lockIs, lock := range lateLooks() {
		run := bounded(newRun(newStep("a", approval(func(*v1alpha1.Approval) {}))), 60)
		advance(t, run, epoch)
		in := letIn(Input{Run: run, Now: epoch.Add(2 * time.Minute), Lock: lock})
		in.SignalsAsOf, in.Answers = time.Time{}, facts.Answers{MissingSince: epoch.Add(2 * time.Minute), Cause: "forbidden"}
		out := Decide(in)
		if c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded); out.Status.CompletedAt != nil || !out.Deferred || lock.State == LockHeld && !strings.Contains(c.Message, why) {
			t.Errorf("lock %s: while it waits: deferred %t: %s", lockIs, out.Deferred, c.Message)
		}
		if end := in.Now.Add(time.Minute); !out.Wake.Equal(end) {
			t.Errorf("lock %s: looked at again at %s, not %s", lockIs, out.Wake, end)
		}
		in.Now = in.Now.Add(time.Minute)
		out = Decide(in)
		if c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded); outcomeOf(&out.Status) != "TimedOut/DeadlineExceeded" ||
			!strings.Contains(c.Message, why) || !strings.Contains(c.Message, "forbidden") || !out.Needs.Signals {
			t.Errorf("lock %s: after a minute it is %s, asks %t: %s", lockIs, outcomeOf(&out.Status), out.Needs.Signals, c.Message)
		}
	}
}

// What docs/workflows.md says of child runs: a deadline sees the waits of its own run alone. That
// of the parent asks nobody, and a child knows of its own only.
//
// mutation: a runTimedOut of the parent that waits for a child which is there makes this fail, and
// the page has to be changed with it.
func TestADeadlineDoesNotSeeWaitsInChildRuns(t *testing.T) {
	t.Parallel()
	const asks = `{"steps":[{"name":"ask","approval":{}}]}`
	for lockIs, lock := range lateLooks() {
		run := bounded(newRun(newStep("sub", childRun(asks, ""))), 60)
		advance(t, run, epoch)
		run.Status.Steps[0].ChildRun.UID = "u-c"
		decide := func(c Child) Decision {
			in := letIn(Input{Run: run, Now: epoch.Add(5 * time.Minute), Lock: lock})
			in.SignalsAsOf, in.Answers = time.Time{}, Answers{}
			in.Children = map[string]Child{run.Status.Steps[0].ChildRun.Name: c}
			return objects{}.decide(in)
		}
		if out := decide(Child{State: ChildThere, UID: "u-c"}); outcomeOf(&out.Status) != "TimedOut/DeadlineExceeded" || out.Needs.Any() || out.Deferred {
			t.Errorf("lock %s, looked at before its child: it is %s, needs %+v", lockIs, outcomeOf(&out.Status), out.Needs)
		}
		if out := decide(Child{State: ChildThere, UID: "u-c", Finished: true, Phase: v1alpha1.RunSucceeded}); outcomeOf(&out.Status) != "Succeeded/Succeeded" {
			t.Errorf("lock %s, looked at after its child: it is %s", lockIs, outcomeOf(&out.Status))
		}
	}
}
