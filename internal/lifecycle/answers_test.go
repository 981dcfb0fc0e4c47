// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// overdueRun is a run whose step a was dispatched at epoch and times out after a minute, and whose
// step b may take longer.
func overdueRun(t *testing.T) *v1alpha1.WorkflowRun {
	t.Helper()
	a := newStep("a", maxFailures(1))
	a.TimeoutSeconds, a.StartTimeoutSeconds = 60, 60
	run := newRun(a, newStep("b", maxFailures(1)), newStep("c", after("b"), maxFailures(1)))
	advance(t, run, epoch)
	return run
}

func unasked(run *v1alpha1.WorkflowRun, now time.Time, results ...Result) Input {
	in := letIn(Input{Run: run, Now: now, Lock: held(1), Results: results})
	in.Answers = Answers{}
	return in
}

// mutation: timedOut that forgets Needs, or AsOf, or compares AsOf with nothing, fails
// one of these.
func TestATimeOutWaitsForWhatTheStreamHasStoredByThen(t *testing.T) {
	t.Parallel()
	due := epoch.Add(time.Minute)
	for name, c := range map[string]struct {
		asOf time.Time
		want v1alpha1.StepPhase
		asks bool
	}{
		"nobody asked":            {time.Time{}, v1alpha1.StepDispatched, true},
		"asked before it was due": {due.Add(-time.Microsecond), v1alpha1.StepDispatched, true},
		"asked when it was due":   {due, v1alpha1.StepFailed, false},
		"asked after that":        {due.Add(time.Second), v1alpha1.StepFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := unasked(overdueRun(t), due.Add(time.Second))
			in.Answers.AsOf = c.asOf
			out := Decide(in)
			if got := out.Status.Steps[0].Phase; got != c.want || out.Needs.Answers != c.asks || out.Deferred != c.asks {
				t.Errorf("a is %s, asks %t, deferred %t; want %s, %t", got, out.Needs.Answers, out.Deferred, c.want, c.asks)
			}
		})
	}
}

// mutation: a question while nothing is due, or for what has no worker, fails one of these.
func TestNothingIsAskedWhileNoAttemptTimesOut(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]Input{
		"an attempt in flight, in time": unasked(overdueRun(t), epoch.Add(59*time.Second)),
		"a delay that is over": func() Input {
			run := newRun(newStep("d", delay(30)))
			advance(t, run, epoch)
			return unasked(run, epoch.Add(time.Hour))
		}(),
		"a deadline while nothing is with workers": func() Input {
			run := newRun(newStep("ok", approval(func(*v1alpha1.Approval) {})))
			run.Spec.ActiveDeadlineSeconds = new(int32(60))
			advance(t, run, epoch)
			return unasked(run, epoch.Add(time.Hour))
		}(),
		"a cancel at the time of a deadline": func() Input {
			run := overdueRun(t)
			run.Spec.ActiveDeadlineSeconds, run.Spec.Shutdown = new(int32(60)), v1alpha1.ShutdownCancel
			return unasked(run, epoch.Add(time.Hour))
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			if out := Decide(in); out.Needs.Answers || out.Deferred {
				t.Errorf("asks; the run is %s", out.Status.Phase)
			}
		})
	}
}

// mutation: a decision that leaves the rest undone while a time-out waits makes this fail.
func TestTheRestOfARunGoesOnWhileATimeOutWaits(t *testing.T) {
	t.Parallel()
	run := overdueRun(t)
	out := Decide(unasked(run, epoch.Add(2*time.Minute), Result{ID: job("b", 1), Result: protocol.Result{Status: protocol.StatusSucceeded}}))
	if len(out.Dispatch) != 1 || out.Dispatch[0].ID != job("c", 1) || out.Status.Steps[0].Phase != v1alpha1.StepDispatched {
		t.Errorf("dispatched %v, a is %s", out.Dispatch, out.Status.Steps[0].Phase)
	}
}

// mutation: no outOfTime makes this fail: c starts in a run whose time is over.
func TestNothingBeginsWhileADeadlineWaits(t *testing.T) {
	t.Parallel()
	run := overdueRun(t)
	run.Spec.ActiveDeadlineSeconds = new(int32(60))
	out := Decide(unasked(run, epoch.Add(2*time.Minute), Result{ID: job("b", 1), Result: protocol.Result{Status: protocol.StatusSucceeded}}))
	if !out.Needs.Answers || len(out.Dispatch) > 0 || out.Status.CompletedAt != nil || out.Status.Steps[1].Phase != v1alpha1.StepSucceeded {
		t.Errorf("asks %t, dispatches %v, run %s", out.Needs.Answers, out.Dispatch, out.Status.Phase)
	}
}

// mutations: no bound; a wake at what waits; words that change from decision to
// decision; timedOut that asks nothing once answers were given up; unheardText that does not look
// at what was heard since, each fail.
func TestWhenTheStreamCannotBeAskedATimeOutWaitsForAMinute(t *testing.T) {
	t.Parallel()
	run := overdueRun(t)
	since := epoch.Add(2 * time.Minute)
	in := unasked(run, since)
	in.Answers = Answers{MissingSince: since, Cause: "NATS is unreachable"}
	out := Decide(in)
	message := status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message
	for _, want := range []string{"time-outs wait until " + since.Add(time.Minute).Format(time.RFC3339), "NATS is unreachable", since.Format(time.RFC3339)} {
		if !strings.Contains(message, want) {
			t.Errorf("message %q does not say %q", message, want)
		}
	}
	if !out.Changed || len(out.Events) != 1 || out.Events[0].Reason != "TimeoutWaits" || !out.Wake.Equal(since.Add(time.Minute)) {
		t.Errorf("changed %t, wake %s, events %v", out.Changed, out.Wake, out.Events)
	}
	run.Status = persisted(t, &out.Status)
	in.Now = since.Add(time.Minute - time.Millisecond)
	if out = Decide(in); out.Changed || len(out.Events) > 0 || !out.Deferred {
		t.Errorf("told again: %v", out.Events)
	}
	in.Now = since.Add(time.Minute)
	out = Decide(in)
	s := out.Status.Steps[0]
	if s.Phase != v1alpha1.StepFailed || s.Error.Code != facts.CodeStartTimeout || !strings.Contains(s.Error.Message, "NATS is unreachable") || out.Deferred || !out.Needs.Answers {
		t.Errorf("after a minute: %s, %+v, deferred %t, asks %t", s.Phase, s.Error, out.Deferred, out.Needs.Answers)
	}
	in.Answers.AsOf = in.Now
	out = Decide(in)
	if s := out.Status.Steps[0]; s.Phase != v1alpha1.StepFailed || strings.Contains(s.Error.Message, "NATS is unreachable") || out.Needs.Answers {
		t.Errorf("after a minute, and an answer: %s, %+v, asks %t", s.Phase, s.Error, out.Needs.Answers)
	}
}

// mutations: answered that is always false; the deadline, or the forced one, that does not look at
// unsettled; the acknowledgement of results that no write has, each fail.
func TestAnAnswerThatWaitsForTheObjectStoreIsNoTimeOut(t *testing.T) {
	t.Parallel()
	big := objects{}.put("a", 1, strings.Repeat("x", 100_000))
	small := Result{ID: job("b", 1), Result: protocol.Result{Status: protocol.StatusSucceeded}}
	for name, c := range map[string]struct {
		deadline *int32
		lock     Lock
	}{
		"an attempt":                        {nil, held(1)},
		"a run":                             {new(int32(60)), held(1)},
		"a run whose lock is not to be had": {new(int32(60)), unavailable()},
	} {
		t.Run(name, func(t *testing.T) {
			run := overdueRun(t)
			run.Spec.ActiveDeadlineSeconds = c.deadline
			now := epoch.Add(2 * time.Minute)
			in := letIn(Input{Run: run, Now: now, Lock: c.lock, Results: []Result{big, small}})
			out := Decide(in)
			if !out.Needs.Outputs() || !out.Deferred || out.Status.Steps[0].Phase != v1alpha1.StepDispatched || out.Verdicts[0] != Waiting {
				t.Errorf("needs %+v, deferred %t, a is %s, verdicts %v", out.Needs, out.Deferred, out.Status.Steps[0].Phase, out.Verdicts)
			}
			if applied := out.Verdicts[1] == Applied; applied != (c.lock.State == LockHeld) {
				t.Errorf("verdict on b: %s", out.Verdicts[1])
			}
			in.Answers.MissingSince, in.Answers.Cause = now.Add(-time.Minute), "no quorum"
			if out = Decide(in); out.Status.Steps[0].Phase == v1alpha1.StepDispatched || out.Deferred {
				t.Errorf("after a minute a is %s", out.Status.Steps[0].Phase)
			}
		})
	}
}

// mutation: an unlocked decision that leaves results out, or applies them to a run that does not
// end, makes this fail.
func TestResultsAtHandCountInAnEndWithoutTheLock(t *testing.T) {
	t.Parallel()
	run := newRun(newStep("a", maxFailures(1)), newStep("b", maxFailures(1)))
	run.Spec.ActiveDeadlineSeconds = new(int32(60))
	advance(t, run, epoch)
	a := Result{ID: job("a", 1), Result: protocol.Result{Status: protocol.StatusSucceeded}}
	b := Result{ID: job("b", 1), Result: protocol.Result{Status: protocol.StatusSucceeded}}
	if out := decideAt(run, epoch.Add(time.Second), busy(), a); out.Changed || out.Verdicts[0] != Waiting {
		t.Errorf("in time: changed %t, verdicts %v", out.Changed, out.Verdicts)
	}
	out := decideAt(run, epoch.Add(time.Minute), busy(), a)
	if out.Status.Phase != v1alpha1.RunTimedOut || out.Status.Steps[0].Phase != v1alpha1.StepSucceeded || len(out.Withdraw) != 1 {
		t.Errorf("with one result: %s, a %s, withdrawn %v", out.Status.Phase, out.Status.Steps[0].Phase, out.Withdraw)
	}
	out = decideAt(run, epoch.Add(time.Minute), busy(), a, b)
	if diff := cmp.Diff([]Verdict{Applied, Applied}, out.Verdicts); diff != "" || out.Status.Phase != v1alpha1.RunSucceeded {
		t.Errorf("with both: %s %s", out.Status.Phase, diff)
	}
	if got, was := *out.Status.Fence, *run.Status.Fence; got != was+1 {
		t.Errorf("fence %d after %d", got, was)
	}
}

// mutation: anyInFlight that does not look at items makes this fail.
func TestADeadlineWaitsForAnswersOfItems(t *testing.T) {
	t.Parallel()
	run := newRun(newStep("a", forEach("${[1, 2]}", 2, v1alpha1.Collect)))
	run.Spec.ActiveDeadlineSeconds = new(int32(60))
	advance(t, run, epoch)
	if out := Decide(unasked(run, epoch.Add(time.Minute))); !out.Needs.Answers || out.Status.Phase != v1alpha1.RunRunning {
		t.Errorf("asks %t, the run is %s", out.Needs.Answers, out.Status.Phase)
	}
	advance(t, run, epoch.Add(time.Second), ofItem(0, failed("a", 1, "x", "")), ofItem(1, failed("a", 1, "x", "")))
	if out := Decide(unasked(run, epoch.Add(time.Minute))); out.Needs.Answers || out.Status.Phase != v1alpha1.RunTimedOut {
		t.Errorf("with no item in flight it asks %t, the run is %s", out.Needs.Answers, out.Status.Phase)
	}
}

// outOfTime is a run whose step a and what belongs to it are decided on when its minute is over.
func outOfTime(t *testing.T, a v1alpha1.Step) Input {
	t.Helper()
	run := newRun(a)
	run.Spec.ActiveDeadlineSeconds = new(int32(60))
	advance(t, run, epoch)
	return letIn(Input{Run: run, Now: epoch.Add(61 * time.Second), Lock: held(1)})
}

// childInTime is a run whose child succeeded in time with some outputs.
func childInTime(t *testing.T, c Child) Input {
	t.Helper()
	in := outOfTime(t, newStep("a", childRun(oneJob, "")))
	in.Run.Status.Steps[0].ChildRun.UID = "u-c"
	c.State, c.UID, c.Finished, c.Phase = ChildThere, "u-c", true, v1alpha1.RunSucceeded
	in.Children = map[string]Child{in.Run.Status.Steps[0].ChildRun.Name: c}
	return in
}

// overInTime is a run whose only step succeeded in time, and whose outputs are for
// the object store.
func overInTime(t *testing.T, lock Lock) Input {
	t.Helper()
	in := outOfTime(t, newStep("a"))
	in.Run.Spec.Outputs, in.Lock = raw(`{"x":`+text(5<<10)+`}`), lock
	out := Decide(letIn(Input{Run: in.Run, Now: epoch.Add(59 * time.Second), Lock: held(1), Results: []Result{succeeded("a", 1, `1`)}}))
	in.Run.Status = persisted(t, &out.Status)
	return in
}

// What was over in time, and lacks the object store only, is not out of time.
//
// mutations: each await of a step or of spec.outputs that is left out makes a case fail, and so
// does an end without the lock that does not look at them.
func TestADeadlineWaitsForOutputsOnTheirWay(t *testing.T) {
	t.Parallel()
	large := []byte(`{"x":` + text(5<<10) + `}`)
	collect := newStep("a", forEach("${[1,2]}", 2, v1alpha1.Collect), maxFailures(1))
	for name, in := range map[string]Input{
		"outputs of the run":                      overInTime(t, held(1)),
		"outputs of the run, and nobody may look": overInTime(t, busy()),
		"outputs of the run, read by a glance": func() Input {
			in := overInTime(t, held(1))
			in.Glance = true
			return in
		}(),
		"outputs of a child that are to be read": childInTime(t, Child{OutputRef: reference(protocol.NewOutputRef(job("x", 1), large))}),
		"outputs of a child that are to be kept": childInTime(t, Child{Output: large}),
		"the output of an approval": func() Input {
			in := outOfTime(t, newStep("a", approval(func(*v1alpha1.Approval) {})))
			in.Signals = []Signal{{Name: "x", Step: "a", Decision: v1alpha1.Approve, Approver: "ann", At: epoch.Add(59 * time.Second), Output: large}}
			return in
		}(),
		"the outputs of items, the last of which failed": func() Input {
			in, o := outOfTime(t, collect), objects{}
			o.advance(t, in.Run, epoch, ofItem(0, succeeded("a", 1, text(40<<10))))
			out := Decide(letIn(Input{Run: in.Run, Now: epoch.Add(59 * time.Second), Lock: held(1), Results: []Result{ofItem(1, failed("a", 1, "x", ""))}}))
			in.Run.Status = persisted(t, &out.Status)
			return in
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			out := Decide(in)
			if out.Status.CompletedAt != nil || !out.Deferred || !in.Glance && !out.Needs.Outputs() || in.Glance && !out.Changed {
				t.Errorf("needs outputs: %t, deferred %t, the run is %s", out.Needs.Outputs(), out.Deferred, outcomeOf(&out.Status))
			}
			in.Answers.MissingSince, in.Answers.Cause = in.Now.Add(-time.Second), "no quorum"
			const why = "outputs of what is over cannot be read or stored since "
			out = Decide(in)
			if c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded); in.Lock.State == LockHeld && (!strings.Contains(c.Message, why) || out.Events[0].Reason != "TimeoutWaits") {
				t.Errorf("while it waits: %s; events %v", c.Message, out.Events)
			}
			in.Answers.MissingSince = in.Now.Add(-time.Minute)
			out = Decide(in)
			c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
			if outcomeOf(&out.Status) != "TimedOut/DeadlineExceeded" || !strings.Contains(c.Message, why) || !strings.Contains(c.Message, "no quorum") {
				t.Errorf("after a minute it is %s: %s", outcomeOf(&out.Status), c.Message)
			}
		})
	}
}

// mutation: words about a clean-up that is over which do not look at what was lacking
// make this fail.
func TestACleanUpThatIsOutOfTimeSaysWhatItCouldNotHave(t *testing.T) {
	in := outOfTime(t, newStep("a"))
	in.Run.Spec.ActiveDeadlineSeconds, in.Run.Spec.FinallyTimeoutSeconds = nil, 60
	in.Run.Spec.Finally = []v1alpha1.Step{newStep("f")}
	in.Run.Status = nil
	advance(t, in.Run, epoch)
	advance(t, in.Run, epoch, succeeded("a", 1, `1`))
	in.Answers = Answers{MissingSince: in.Now.Add(-time.Minute), Cause: "no quorum"}
	for name, results := range map[string][]Result{
		"whether workers answered in time cannot be found out since ": nil,
		"outputs of what is over cannot be read or stored since ":     {objects{}.put("f", 1, text(100_000))},
	} {
		in.Results = results
		out := Decide(in)
		c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
		if outcomeOf(&out.Status) != "Failed/FinallyTimeout" || !strings.Contains(c.Message, name) || !strings.Contains(c.Message, "no quorum") {
			t.Errorf("%s: %s: %s", name, outcomeOf(&out.Status), c.Message)
		}
	}
	in.Results, in.Answers.AsOf = nil, in.Now
	out := Decide(in)
	if c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded); strings.Contains(c.Message, "no quorum") {
		t.Errorf("with an answer: %s", c.Message)
	}
}

// mutations: decideUnlocked without the signals, without child runs, or with these before the
// deletion of the run, fails a case.
func TestWhatIsAtHandCountsInAnEndWithoutTheLock(t *testing.T) {
	child := childInTime(t, Child{Output: []byte(`{"x":1}`)})
	deleted := childInTime(t, Child{})
	deleted.Run.DeletionTimestamp = &metav1.Time{Time: epoch}
	for name, c := range deleted.Children {
		c.State = ChildGone
		deleted.Children[name] = c
	}
	approved := outOfTime(t, newStep("a", approval(func(*v1alpha1.Approval) {})))
	approved.Signals = []Signal{{Name: "x", Step: "a", Decision: v1alpha1.Approve, Approver: "ann", At: epoch.Add(59 * time.Second)}}
	for name, c := range map[string]struct {
		in   Input
		want string
	}{
		"a child run that succeeded":           {child, "Succeeded/Succeeded"},
		"an approval":                          {approved, "Succeeded/Succeeded"},
		"a child run that goes before the run": {deleted, "Cancelled/Terminated"},
	} {
		for _, lock := range []Lock{held(1), busy(), unavailable()} {
			c.in.Lock = lock
			if out := Decide(c.in); outcomeOf(&out.Status) != c.want {
				t.Errorf("%s, lock %v: %s, not %s", name, lock.State, outcomeOf(&out.Status), c.want)
			}
		}
		c.in.Lock, c.in.Now, c.in.Run.DeletionTimestamp = busy(), epoch.Add(59*time.Second), nil
		if out := Decide(c.in); out.Changed {
			t.Errorf("%s, in time: it is %s", name, outcomeOf(&out.Status))
		}
	}
}
