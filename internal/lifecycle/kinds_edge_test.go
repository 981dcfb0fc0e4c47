// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func names(jobs []Job) []string {
	var all []string
	for _, j := range jobs {
		all = append(all, j.ID.Step)
	}
	return all
}

// One failed expression must not keep the other finally steps from starting: nothing would wake the
// run before their time is over.
func TestFinallyStepsStartThoughTheExpressionOfOneFails(t *testing.T) {
	broken := input(`{"x": "${inputs.nothing}"}`)
	for name, c := range map[string]struct {
		step    v1alpha1.Step
		results []Result
	}{
		"after a step failed by its result":     {newStep("a", maxFailures(1)), []Result{failed("a", 1, "E", "no")}},
		"after a step failed by its expression": {newStep("a", broken), nil},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(c.step)
			run.Spec.Finally = []v1alpha1.Step{newStep("f0"), newStep("f1", broken), newStep("f2")}
			s := newStory(t, run)
			out := s.decide(0, "applied")
			if c.results != nil {
				out = s.decide(time.Second, "it fails", c.results...)
			}
			if diff := cmp.Diff([]string{"f0", "f2"}, names(out.Dispatch)); diff != "" {
				t.Errorf("dispatched (-want +got):\n%s\n%s", diff, s.out.String())
			}
			if again := s.decide(0, "nothing new"); again.Changed {
				t.Error("a second decision without a new fact changes the run, and nothing wakes it for that")
			}
		})
	}
}

// A step that is rejected when it asks ends the run: nothing is dispatched in the same decision,
// not even to be withdrawn at once.
func TestNothingIsDispatchedByTheDecisionThatEndsTheRun(t *testing.T) {
	for name, finally := range map[string][]v1alpha1.Step{"at once": nil, "after its clean-up": {newStep("f")}} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("work"), newStep("veto", approval(func(*v1alpha1.Approval) {})), newStep("more"))
			run.Spec.Finally = finally
			s := newStory(t, run)
			s.said = []Signal{{Name: "x", Step: "veto", Decision: v1alpha1.Reject, Approver: "ann", At: epoch}}
			out := s.decide(0, "applied; the rejection is here already")
			for _, j := range out.Dispatch {
				if j.ID.Step != "f" {
					t.Errorf("%s is dispatched", j.ID.Step)
				}
			}
			if len(out.Withdraw) > 0 {
				t.Errorf("withdrawn: %v", out.Withdraw)
			}
		})
	}
}

// endsAtOnce is x, of which no item can be made: it is over as it begins, and lets others begin.
func endsAtOnce(onItemFailure v1alpha1.ItemFailureAction) v1alpha1.Step {
	return newStep("x", forEach("${[1, 2]}", 2, onItemFailure), input(`{"v":"${item.none}"}`), continues)
}

// An expression may fail only after others were ready to go out: that of y, which reads x. What was
// ready was not dispatched or created, and its step never began.
//
// mutations: startAll that commits after each startSome, dropItems that withdraws what did not go
// out, and commitAll after a failure, each make a case fail.
func TestNothingThatWasReadyIsDispatchedIfTheRunEndsAfterAll(t *testing.T) {
	for _, onItemFailure := range []v1alpha1.ItemFailureAction{v1alpha1.Collect, v1alpha1.FailStep} {
		for end, finally := range map[string][]v1alpha1.Step{"at once": nil, "after its clean-up": {newStep("f")}} {
			t.Run(fmt.Sprintf("%s, %s", onItemFailure, end), func(t *testing.T) {
				run := newRun(endsAtOnce(onItemFailure), newStep("b", withStepLocks(mutexOf("m"))), newStep("c", childRun(oneJob, "")),
					newStep("i", forEach("${[1, 2]}", 1, "")), newStep("y", after("x"), input(`{"id":"${steps.x.output[0].id}"}`)))
				run.Spec.Finally = finally
				out := decideLocked(t, run, epoch, map[string]LocksAnswer{"b": heldWith(7)})
				if got := names(out.Dispatch); len(got) != len(finally) || len(out.Withdraw)+len(out.Create) > 0 {
					t.Errorf("dispatched %v, withdrawn %v, created %v", got, out.Withdraw, out.Create)
				}
				if run.Status.Steps[4].Phase != v1alpha1.StepFailed {
					t.Errorf("y is %s", run.Status.Steps[4].Phase)
				}
				for _, s := range run.Status.Steps[1:3] {
					if s.Phase != v1alpha1.StepCancelled || s.Attempt != 0 || s.DispatchedAt != nil || s.ChildRun != nil || s.Locks != nil {
						t.Errorf("%s has begun: %+v", s.Name, s)
					}
				}
			})
		}
	}
}

// mutations: startSome that does not leave out what is ready, or does not count it, makes this
// fail.
func TestWhatIsReadyTakesAPlaceAndIsDispatchedOnce(t *testing.T) {
	run := newRun(endsAtOnce(v1alpha1.Collect), newStep("b"), newStep("d"), newStep("y", after("x")))
	run.Spec.MaxParallelSteps = 2
	out := advance(t, run, epoch)
	if diff := cmp.Diff([]string{"b", "d"}, names(out.Dispatch)); diff != "" || run.Status.Steps[1].Attempt != 1 {
		t.Errorf("dispatched (-want +got):\n%s", diff)
	}
}

// A step with forEach may fail after some of its items were ready: y has room for the second item
// only once the locked items of x are over, and the locks of that one cannot be evaluated.
//
// mutation: dropItems that withdraws what did not go out, or that leaves it to be dispatched, makes
// this fail.
func TestNoItemOfAStepThatFailsIsDispatched(t *testing.T) {
	others := bounds.MaxLockedItems - 1
	x := newStep("x", forEach("${inputs.list}", int32(others), v1alpha1.Collect))
	x.ForEach.Locks = []v1alpha1.LockRequest{mutexOf("m-${item}")}
	y := newStep("y", forEach("${[{'k': 'a'}, {}]}", 2, v1alpha1.FailStep), initialMillis(1000), continues)
	y.ForEach.Locks = []v1alpha1.LockRequest{mutexOf("k-${item.k}")}
	run := newRun(x, y, newStep("b"))
	run.Spec.Inputs = raw(`{"list":` + numbers(others) + `}`)
	locks := map[string]LocksAnswer{v1alpha1.ItemLocks{Item: 0}.Part("y"): heldWith(7)}
	for i := range others {
		locks[v1alpha1.ItemLocks{Item: int32(i)}.Part("x")] = LocksAnswer{State: LocksWaiting, Lock: "m"}
	}
	decideLocked(t, run, epoch, locks)
	decideLocked(t, run, epoch, locks, ofItem(0, failed("y", 1, "E", "no")))
	for i := range others {
		locks[v1alpha1.ItemLocks{Item: int32(i)}.Part("x")] = LocksAnswer{State: LocksRefused, Reason: v1alpha1.ReasonLocksBusy, Lock: "m"}
	}
	out := decideLocked(t, run, epoch.Add(time.Minute), locks)
	if x, y := &run.Status.Steps[0], &run.Status.Steps[1]; x.Phase != v1alpha1.StepSucceeded || y.Phase != v1alpha1.StepFailed {
		t.Fatalf("x is %s, y %s", x.Phase, y.Phase)
	}
	if len(out.Dispatch)+len(out.Withdraw) > 0 {
		t.Errorf("dispatched %v, withdrawn %v", names(out.Dispatch), out.Withdraw)
	}
}

// Approvals and delays take no place of maxParallelSteps, so they need none either.
func TestApprovalsAndDelaysStartWithoutAPlace(t *testing.T) {
	run := newRun(
		newStep("work"), newStep("sign-off", approval(func(*v1alpha1.Approval) {})), newStep("cool-down", delay(30)), newStep("more"),
	)
	run.Spec.MaxParallelSteps = 1
	s := newStory(t, run)
	out := s.decide(0, "applied")
	if diff := cmp.Diff([]string{"work"}, names(out.Dispatch)); diff != "" {
		t.Errorf("dispatched (-want +got):\n%s", diff)
	}
	want := []v1alpha1.StepPhase{v1alpha1.StepDispatched, v1alpha1.StepWaiting, v1alpha1.StepDelayed, v1alpha1.StepPending}
	for i, phase := range want {
		if got := s.run.Status.Steps[i].Phase; got != phase {
			t.Errorf("step %s is %s, want %s", s.run.Status.Steps[i].Name, got, phase)
		}
	}
}

func bigOutputs(t *testing.T, size int64) Input {
	t.Helper()
	run := newRun(newStep("a"))
	run.Spec.Outputs = raw(`{"a": "${steps.a.output.x}"}`)
	advance(t, run, epoch)
	ref := protocol.OutputRef{Name: "u-1/a/-/1/" + strings.Repeat("a", 64), Digest: "sha256:" + strings.Repeat("a", 64), Size: size}
	r := result("a", 1, protocol.StatusSucceeded)
	r.Result.OutputRef = &ref
	return letIn(Input{
		Run: run, Now: epoch.Add(time.Second), Lock: held(1), Results: []Result{r}, Payloads: Payloads{ref.Name: {}},
	})
}

// While the object store is down, outputs that have to be read wake nobody: the shell tries again
// when it is worth while.
func TestOutputsThatCannotBeReadDoNotMakeTheRunSpin(t *testing.T) {
	out := Decide(bigOutputs(t, 5<<20))
	if len(out.Needs.Load) != 1 {
		t.Errorf("to be loaded: %v", out.Needs.Load)
	}
	if !out.Wake.IsZero() {
		t.Errorf("wakes %s after the decision, and so on as long as the store is down", out.Wake.Sub(epoch.Add(time.Second)))
	}
}

// What is to be stored is named once.
func TestLargeOutputsOfARunAreStoredOnce(t *testing.T) {
	run := newRun(newStep("a"))
	run.Spec.Outputs = raw(fmt.Sprintf(`{"a": "%s${steps.a.output.x}"}`, strings.Repeat("x", 5000)))
	advance(t, run, epoch)
	in := letIn(Input{Run: run, Now: epoch.Add(time.Second), Lock: held(1), Results: []Result{succeeded("a", 1, `{"x":1}`)}})
	out := Decide(in)
	if n := len(out.Needs.Store); n != 1 {
		t.Errorf("%d outputs are to be stored, want 1", n)
	}
	if out.Status.CompletedAt != nil || out.Status.OutputsRef != nil {
		t.Errorf("it ended, or refers to them, before they are stored: %v", out.Status)
	}
	in.Payloads = Payloads{out.Needs.Store[0].Ref.Name: {}}
	if out = Decide(in); out.Status.Phase != v1alpha1.RunSucceeded || out.Status.OutputsRef == nil {
		t.Errorf("got %s, %v", out.Status.Phase, out.Status.OutputsRef)
	}
	in.Payloads = Payloads{only(in.Payloads): {Problem: "it is gone"}}
	if out = Decide(in); status.ReasonOf(&out.Status, v1alpha1.ConditionSucceeded) != v1alpha1.ReasonOutputsFailed {
		t.Errorf("got %s", status.ReasonOf(&out.Status, v1alpha1.ConditionSucceeded))
	}
}

func only(p Payloads) string {
	for name := range p {
		return name
	}
	return ""
}

// A run that is about to end waits for spec.suspend to go: its message must say both.
func TestASuspendedRunThatIsAboutToEndSaysSo(t *testing.T) {
	s := newStory(t, cleaned())
	s.decide(0, "applied")
	s.run.Spec.Suspend = true
	s.decide(time.Second, "suspended")
	s.run.Spec.Shutdown = v1alpha1.ShutdownCancel
	out := s.decide(time.Second, "cancelled")
	c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
	if len(out.Dispatch) > 0 {
		t.Errorf("dispatched: %v", names(out.Dispatch))
	}
	if !strings.Contains(c.Message, "finally") || !strings.Contains(c.Message, "suspend") {
		t.Errorf("message %q", c.Message)
	}
	if want := s.now.Add(30 * time.Second); !out.Wake.Equal(want) {
		t.Errorf("wake at %s, want %s", out.Wake, want)
	}
}

// A run without spec.steps cannot be run, also if it has finally steps. (The schema refuses it;
// objects may not have passed it.)
func TestARunWithFinallyStepsOnlyIsRefused(t *testing.T) {
	run := newRun()
	run.Spec.Finally = []v1alpha1.Step{newStep("f")}
	s := newStory(t, run)
	out := s.decide(0, "applied")
	if got := status.ReasonOf(&out.Status, v1alpha1.ConditionSucceeded); got != v1alpha1.ReasonInvalidSpec {
		t.Errorf("reason %s, want InvalidSpec", got)
	}
}

// status stays below 256 KiB whatever approvers write.
func TestStatusIsBoundedWithManyApprovals(t *testing.T) {
	wide := func(n int) string { return strings.Repeat("é", n) }
	for name, c := range map[string]struct {
		decision v1alpha1.ApprovalDecision
		comment  string
		output   string
	}{
		"approved with long comments and outputs": {v1alpha1.Approve, strings.Repeat("c", 1024), `{"x":"` + strings.Repeat("o", 560) + `"}`},
		"approved with wide names":                {v1alpha1.Approve, wide(1024), ""},
		"rejected with long comments":             {v1alpha1.Reject, strings.Repeat("<", 1024), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var steps []v1alpha1.Step
			var said []Signal
			for i := range bounds.MaxSteps {
				step := fmt.Sprintf("%s-%d", strings.Repeat("s", 35), i)
				steps = append(steps, newStep(step, approval(func(a *v1alpha1.Approval) { a.Message = strings.Repeat("m", 1024) }), continues))
				a := Signal{Name: wide(253), Step: step, Decision: c.decision, Approver: wide(512), Comment: c.comment, At: epoch}
				if c.output != "" {
					a.Output = []byte(c.output)
				}
				said = append(said, a)
			}
			steps[0].Approval, steps[0].Job = nil, &v1alpha1.Job{Topic: "t"}
			run := newRun(steps...)
			in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Signals: said})
			out := Decide(in)
			if n := len(mustJSON(t, out.Status)); n > 256<<10 {
				t.Errorf("status has %d bytes", n)
			}
		})
	}
}

// A worker's failure without a code has the code Unspecified, in status and so for retry.onCodes.
func TestRetryOnCodesMatchesTheCodeInStatus(t *testing.T) {
	s := newStory(t, newRun(newStep("a", retryOn(facts.CodeUnspecified))))
	s.decide(0, "")
	s.decide(time.Second, "", failed("a", 1, "", "no code"))
	if got := s.run.Status.Steps[0]; got.Phase != v1alpha1.StepBackingOff {
		t.Errorf("step is %s with code %s", got.Phase, got.Error.Code)
	}
}

// A decision that was made after the time was over does not count, however late the operator looks.
func TestAnApprovalAfterItsTimeDoesNotCount(t *testing.T) {
	wait := int32(60)
	s := newStory(t, newRun(newStep("a", approval(func(a *v1alpha1.Approval) { a.TimeoutSeconds = &wait }))))
	s.decide(0, "asked")
	s.said = []Signal{{Name: "x", Step: "a", Decision: v1alpha1.Approve, Approver: "ann", At: epoch.Add(10 * time.Minute)}}
	s.decide(20*time.Minute, "the operator was away; somebody approved ten minutes after the start")
	if got := s.run.Status.Steps[0]; got.Phase != v1alpha1.StepFailed || got.Error.Code != facts.CodeApprovalTimeout {
		t.Errorf("step is %s, %v", got.Phase, got.Approval)
	}
}

// Nobody is said to be silent before it was asked what was said by the end: what the shell has
// heard may be late.
//
// mutations: a timeOutWait that does not ask, or asks for delays, too, or for what was asked for;
// and a stepEnds that wakes for what lacks an answer make this fail.
func TestAnApprovalTimesOutOnceItIsKnownThatNobodyDecided(t *testing.T) {
	said := func(after time.Duration) []Signal {
		return []Signal{{Name: "x", Step: "a", Decision: v1alpha1.Approve, Approver: "ann", At: epoch.Add(after)}}
	}
	ask := newStep("a", approval(func(a *v1alpha1.Approval) { a.TimeoutSeconds = new(int32(60)) }))
	for name, c := range map[string]struct {
		step v1alpha1.Step
		asOf time.Duration // after the beginning
		said []Signal
		asks bool
		want v1alpha1.StepPhase
	}{
		"nobody asked":                            {ask, -time.Hour, nil, true, v1alpha1.StepWaiting},
		"somebody asked before the end":           {ask, time.Minute - 1, nil, true, v1alpha1.StepWaiting},
		"nobody had decided by the end":           {ask, time.Minute, nil, false, v1alpha1.StepFailed},
		"somebody had":                            {ask, time.Minute, said(59 * time.Second), false, v1alpha1.StepSucceeded},
		"somebody had, and nobody needs to ask":   {ask, -time.Hour, said(59 * time.Second), false, v1alpha1.StepSucceeded},
		"somebody did after it, and nobody asked": {ask, -time.Hour, said(61 * time.Second), true, v1alpha1.StepWaiting},
		"somebody did after it":                   {ask, time.Hour, said(61 * time.Second), false, v1alpha1.StepFailed},
		"a delay":                                 {newStep("a", delay(60)), -time.Hour, nil, false, v1alpha1.StepSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(c.step)
			advance(t, run, epoch)
			in := letIn(Input{Run: run, Now: epoch.Add(time.Hour), Lock: held(1), Signals: c.said})
			in.SignalsAsOf = epoch.Add(c.asOf)
			out := Decide(in)
			if got := out.Status.Steps[0].Phase; got != c.want || out.Needs.Signals != c.asks || out.Needs.Any() != c.asks {
				t.Errorf("it is %s, needs %+v; want %s, asks %t", got, out.Needs, c.want, c.asks)
			}
			if c.asks && !out.Wake.IsZero() {
				t.Errorf("it wakes %s after a decision that lacks an answer", out.Wake.Sub(in.Now))
			}
		})
	}
}

// Who decided in time is not overruled by the time-out while the output is on its way to
// the object store.
func TestAnApprovalInTimeCountsThoughItsOutputHasToBeStored(t *testing.T) {
	wait := int32(60)
	s := newStory(t, newRun(newStep("a", approval(func(a *v1alpha1.Approval) { a.TimeoutSeconds = &wait }))))
	s.decide(0, "asked")
	s.said = []Signal{{
		Name: "x", Step: "a", Decision: v1alpha1.Approve, Approver: "ann", At: epoch.Add(59 * time.Second),
		Output: []byte(`{"x":"` + strings.Repeat("o", 5000) + `"}`),
	}}
	out := s.decide(61*time.Second, "the object store is down")
	if len(out.Needs.Store) != 1 {
		t.Errorf("to be stored: %d", len(out.Needs.Store))
	}
	if got := s.run.Status.Steps[0]; got.Phase != v1alpha1.StepWaiting {
		t.Errorf("step is %s: %v", got.Phase, got.Error)
	}
}

// A clean-up that failed is told also if the run has a long story already.
func TestAFailedCleanUpIsToldAfterALongMessage(t *testing.T) {
	run := cleaned()
	for i := range 20 {
		run.Spec.Steps = append(run.Spec.Steps, newStep(fmt.Sprintf("step-with-a-long-name-%d", i)))
	}
	s := newStory(t, run)
	s.decide(0, "")
	s.run.Spec.Shutdown = v1alpha1.ShutdownCancel
	s.decide(time.Second, "")
	s.decide(time.Second, "", failed("release", 1, "E", "no route"), succeeded("log", 1, `{}`))
	if got := status.Condition(s.run.Status, v1alpha1.ConditionSucceeded).Message; !strings.Contains(got, "step release failed") {
		t.Errorf("message %q", got)
	}
}

// While outputs of the run are on their way, its message says what it waits for.
func TestARunWhoseOutputsCannotBeStoredSaysSo(t *testing.T) {
	out := Decide(bigOutputs(t, 100))
	if got := status.Condition(&out.Status, v1alpha1.ConditionSucceeded); !strings.Contains(got.Message, "outputs") {
		t.Errorf("%s: %q", got.Reason, got.Message)
	}
}

// Jobs of finally steps are rendered again byte for byte, also if the run was told more in between.
func TestJobsOfFinallyStepsAreExact(t *testing.T) {
	run := cleaned()
	run.Spec.Steps = append(run.Spec.Steps, newStep("c", maxFailures(1)))
	s := newStory(t, run)
	s.decide(0, "")
	out := s.decide(time.Second, "", failed("a", 1, "E\x00<é", "a\n\"b\"\xff"), failed("c", 1, "E", "\u2028<&>"+strings.Repeat("é", 600)))
	jobs := out.Dispatch
	if len(jobs) == 0 {
		out = s.decide(0, "", failed("a", 2, "E", ""))
		jobs = out.Dispatch
	}
	s.run.Spec.Shutdown = v1alpha1.ShutdownCancel
	s.decide(time.Second, "cancelled", succeeded("log", 1, `{}`), succeeded("c", 1, `{"late":1}`))
	s.lock = unavailable()
	s.decide(time.Second, "Redis is down")
	s.lock = held(9)
	s.decide(time.Second, "and back")
	for _, j := range jobs {
		if j.ID.Step != "release" {
			continue
		}
		again, err := JobOf(s.run, j.ID, nil)
		if err != nil || !cmp.Equal(j, again) {
			t.Errorf("%v\n%s", err, cmp.Diff(j, again))
		}
	}
}

// Odd statuses and specs lead to a decision, never to a panic.
func TestOddKindsAreSurvived(t *testing.T) {
	zero := int32(0)
	at := metav1.MicroTime{Time: epoch}
	steps := []v1alpha1.Step{
		{Name: "none"},
		{Name: "delay", Delay: &v1alpha1.Delay{}},
		{Name: "approval", Approval: &v1alpha1.Approval{TimeoutSeconds: &zero}},
		{Name: "job", Job: &v1alpha1.Job{}},
	}
	for _, phase := range []v1alpha1.StepPhase{
		v1alpha1.StepDispatched, v1alpha1.StepRunning, v1alpha1.StepBackingOff, v1alpha1.StepWaiting, v1alpha1.StepDelayed, "Odd", "",
	} {
		for _, when := range []*metav1.MicroTime{nil, &at, {}} {
			run := newRun(steps...)
			run.Spec.Finally = []v1alpha1.Step{{Name: "f", Approval: &v1alpha1.Approval{}}, newStep("g", after("f"))}
			status := v1alpha1.WorkflowRunStatus{Admission: &v1alpha1.AdmissionStatus{AdmittedAt: &metav1.Time{Time: epoch}}, Tenant: "team-a"}
			for _, step := range dag.Steps(run) {
				status.Steps = append(status.Steps, v1alpha1.StepStatus{
					Name: step.Name, Phase: phase, Attempt: 1, DispatchedAt: when, StartedAt: when, DelayedUntil: when, NextAttemptAt: when,
				})
			}
			for _, ending := range []bool{false, true} {
				if ending {
					status.Ending = &v1alpha1.EndingStatus{}
				}
				run.Status = status.DeepCopy()
				for _, lock := range []Lock{held(1), busy(), unavailable()} {
					for _, now := range []time.Time{epoch.Add(-1000 * time.Hour), epoch, epoch.AddDate(200, 0, 0), {}} {
						in := letIn(Input{Run: run, Now: now, Lock: lock, Results: []Result{succeeded("delay", 1, `{}`), failed("approval", 1, "", "")}})
						in.Signals = []Signal{{Step: "job", Decision: v1alpha1.Approve}, {Step: "approval"}}
						out := Decide(in)
						WaitedFor(run)
						if !out.Wake.IsZero() && !out.Wake.After(now) {
							t.Errorf("%s: wake at %s, now %s", phase, out.Wake, now)
						}
					}
				}
			}
		}
	}
}

// A step without an output reads as null, as the documentation says.
func TestAStepWithoutAnOutputReadsAsNull(t *testing.T) {
	run := cleaned()
	run.Spec.Finally = []v1alpha1.Step{newStep("f", input(`{"b": "${steps.b.output}", "none": "${steps.b.output == null}"}`))}
	s := newStory(t, run)
	s.decide(0, "")
	s.run.Spec.Shutdown = v1alpha1.ShutdownCancel
	out := s.decide(time.Second, "cancelled before b started")
	if len(out.Dispatch) != 1 {
		t.Fatalf("dispatched: %v", names(out.Dispatch))
	}
	if got, want := string(out.Dispatch[0].Input), `{"b":null,"none":true}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The name of an approver must not cut or colour lines either.
func TestEventsOfApprovalsArePrintable(t *testing.T) {
	s := newStory(t, newRun(newStep("a", approval(func(*v1alpha1.Approval) {}))))
	s.said = []Signal{{Name: "x", Step: "a", Decision: v1alpha1.Approve, Approver: "ann\x1b[31m\n", At: epoch}}
	for _, e := range s.decide(0, "").Events {
		if strings.ContainsAny(e.Message, "\x1b\n") {
			t.Errorf("event %q", e.Message)
		}
	}
}

// An operator that starts anew knows nothing of the workers for a while: what was said of them
// stands, instead of two writes a run.
func TestUnknownWorkersAreNoNews(t *testing.T) {
	run := newRun(newStep("a"))
	decide := func(state WorkersState) Decision {
		in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Workers: map[string]Workers{"t.a": {State: state, Since: epoch}}})
		out := Decide(in)
		if out.Changed {
			run.Status = persisted(t, &out.Status)
		}
		return out
	}
	decide(WorkersUnknown)
	if !decide(WorkersAbsent).Changed || status.ReasonOf(run.Status, v1alpha1.ConditionSucceeded) != v1alpha1.ReasonWaitingForWorkers {
		t.Error("not told that nobody pulls")
	}
	if decide(WorkersUnknown).Changed {
		t.Error("a write, though nothing is known")
	}
	if message := func() string { return status.Condition(run.Status, v1alpha1.ConditionSucceeded).Message }; !decide(WorkersStuck).Changed ||
		!strings.Contains(message(), "the workers of topic t.a get nothing done since") {
		t.Errorf("not told that they get nothing done: %s", message())
	}
	if message := func() string { return status.Condition(run.Status, v1alpha1.ConditionSucceeded).Message }; !decide(WorkersFull).Changed ||
		!strings.Contains(message(), "as many jobs of topic t.a are with workers as may be (--nats-max-ack-pending) since") {
		t.Errorf("not told that as many are with workers as may be: %s", message())
	}
	if message := func() string { return status.Condition(run.Status, v1alpha1.ConditionSucceeded).Message }; !decide(WorkersBarred).Changed ||
		!strings.Contains(message(), "topic t.a has no consumer in NATS, without which workers get no jobs of it, since") {
		t.Errorf("not told that the topic has no consumer: %s", message())
	}
	if decide(WorkersUnknown).Changed {
		t.Error("a write, though nothing is known any more")
	}
	if !decide(WorkersPull).Changed || status.ReasonOf(run.Status, v1alpha1.ConditionSucceeded) != v1alpha1.ReasonRunning {
		t.Error("not told that they get on again")
	}
}

func TestWaitedForNamesTopicsOnce(t *testing.T) {
	run := newRun(newStep("a"), newStep("b"), newStep("c", after("a")), newStep("d", delay(1)), newStep("e", forEach("${[1]}", 1, "")))
	run.Spec.Steps[1].Job.Topic = "t.a"
	if got := WaitedFor(run); got != nil {
		t.Errorf("before it was seen: %v", got)
	}
	advance(t, run, epoch)
	if diff := cmp.Diff([]string{"t.a", "t.e"}, WaitedFor(run)); diff != "" {
		t.Error(diff)
	}
	advance(t, run, epoch, ofItem(0, result("e", 1, protocol.StatusStarted)))
	if diff := cmp.Diff([]string{"t.a"}, WaitedFor(run)); diff != "" {
		t.Errorf("the only item was begun: %s", diff)
	}
	run.Status.Steps = run.Status.Steps[:2]
	if got := WaitedFor(run); got != nil {
		t.Errorf("steps of another spec: %v", got)
	}
}

// What the schema refuses is refused here too.
func TestRefusedKinds(t *testing.T) {
	early, seconds := metav1.Time{Time: epoch.Add(-time.Second)}, int32(-1)
	for want, step := range map[string]v1alpha1.Step{
		"exactly one of job, approval, delay and run":               {Name: "a"},
		"a delay needs exactly one of seconds and until":            {Name: "a", Delay: &v1alpha1.Delay{}},
		"spec.steps[0].delay.seconds: -1 is not positive":           {Name: "a", Delay: &v1alpha1.Delay{Seconds: &seconds}},
		"is before the creation of the run":                         {Name: "a", Delay: &v1alpha1.Delay{Until: &early}},
		"spec.steps[0].approval.timeoutSeconds: -1 is not positive": {Name: "a", Approval: &v1alpha1.Approval{TimeoutSeconds: &seconds}},
		"spec.finally[0]: a finally step needs exactly one of job":  newStep("a", approval(func(*v1alpha1.Approval) {})),
		"f is a finally step: those begin when all others are over": newStep("a", after("f")),
		"spec.outputs: 65545 bytes, more than 65536":                newStep("a", input(`{"outputs":1}`)),
	} {
		t.Run(want, func(t *testing.T) {
			run := newRun(step)
			run.Spec.Finally = []v1alpha1.Step{newStep("f")}
			switch {
			case strings.HasPrefix(want, "spec.finally"):
				step.Name = "f"
				run.Spec.Steps, run.Spec.Finally = []v1alpha1.Step{newStep("a")}, []v1alpha1.Step{step}
			case strings.HasPrefix(want, "spec.outputs"):
				run.Spec.Outputs = raw(`{"a": "` + strings.Repeat("x", 64<<10) + `"}`)
			}
			out := decideAt(run, epoch, held(1))
			c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
			if got := strings.ReplaceAll(c.Message, `"`, ""); c.Reason != v1alpha1.ReasonInvalidSpec || !strings.Contains(got, want) {
				t.Errorf("%s: %s", c.Reason, got)
			}
		})
	}
}

func TestApprovalsOfARun(t *testing.T) {
	run := newRun(newStep("a", approval(func(*v1alpha1.Approval) {})))
	if facts.AsksForApproval(nil) || !facts.AsksForApproval(run) || facts.AsksForApproval(newRun(newStep("a"))) {
		t.Error("wrong runs ask for approval")
	}
	a := v1alpha1.StepApproval{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "team-a", CreationTimestamp: metav1.Time{Time: epoch.Add(time.Second)}},
		Spec:       v1alpha1.StepApprovalSpec{Run: "report", Step: "a", Decision: v1alpha1.Approve, Approver: "ann", Output: raw(`{"x":`)},
	}
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Signals: facts.Approvals(run, []v1alpha1.StepApproval{a})})
	out := Decide(in)
	if s := out.Status.Steps[0]; s.Phase != v1alpha1.StepFailed || s.Error.Code != facts.CodeResultRejected {
		t.Errorf("an output that is no JSON: %s, %v", s.Phase, s.Error)
	}
	run.Status = &out.Status
	if facts.AsksForApproval(run) {
		t.Error("a run that ended asks for approval")
	}
}

// mutation: Precedes turned round in Counting, or Means not asked, makes this fail.
func TestOfEachStepTheOldestApprovalCounts(t *testing.T) {
	said := func(name, step, run string, after time.Duration) v1alpha1.StepApproval {
		return v1alpha1.StepApproval{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team-a", CreationTimestamp: metav1.Time{Time: epoch.Add(after)}},
			Spec:       v1alpha1.StepApprovalSpec{Run: run, Step: step},
		}
	}
	ask := approval(func(*v1alpha1.Approval) {})
	var got []string
	for _, a := range facts.Approvals(newRun(newStep("a", ask), newStep("b", ask), newStep("c", ask), newStep("job")), []v1alpha1.StepApproval{
		said("late", "a", "report", 3*time.Second), said("y", "b", "report", 2*time.Second), said("x", "c", "report", 2*time.Second),
		said("foreign", "a", "other", 0), said("first", "a", "report", time.Second), said("z", "b", "report", 2*time.Second),
		said("nobody asks", "job", "report", time.Second), said("no step", "d", "report", time.Second),
	}) {
		got = append(got, a.Name)
	}
	if diff := cmp.Diff([]string{"first", "y", "x"}, got); diff != "" {
		t.Error(diff)
	}
}
