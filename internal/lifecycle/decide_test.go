// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func decideAt(run *v1alpha1.WorkflowRun, now time.Time, lock Lock, results ...Result) Decision {
	return objects{}.decide(letIn(Input{Run: run, Now: now, Lock: lock, Results: results}))
}

// letIn is an input for a run that its namespace and its tenant's gate let in, and about which the
// stream was asked.
func letIn(in Input) Input {
	in.Tenant, in.Permits = Tenant{Name: "team-a", Allowed: true}, Permits{AnyClass: true, AnyTopic: true}
	in.Gate = Gate{State: GateOpen}
	in.Answers, in.SignalsAsOf = Answers{AsOf: in.Now}, in.Now
	return in
}

// advance decides under the lock and persists.
func advance(t *testing.T, run *v1alpha1.WorkflowRun, now time.Time, results ...Result) Decision {
	t.Helper()
	out := decideAt(run, now, held(1), results...)
	if out.Changed {
		run.Status = persisted(t, &out.Status)
	}
	return out
}

// outcomeOf is phase and reason of an ended run.
func outcomeOf(st *v1alpha1.WorkflowRunStatus) string {
	return string(st.Phase) + "/" + status.ReasonOf(st, v1alpha1.ConditionSucceeded)
}

// mutation: deadlines before results in Decide makes "the answer wins" fail; shutdown before
// results makes "the last result wins over cancel" fail.
func TestOrderWithinADecision(t *testing.T) {
	tests := map[string]struct {
		change  func(*v1alpha1.WorkflowRun)
		pass    time.Duration
		results []Result
		want    string
	}{
		"the last result wins over cancel": {
			change:  func(r *v1alpha1.WorkflowRun) { r.Spec.Shutdown = v1alpha1.ShutdownCancel },
			results: []Result{succeeded("a", 1, `1`), succeeded("b", 1, `2`)}, want: "Succeeded/Succeeded",
		},
		"cancel wins while work is left": {
			change:  func(r *v1alpha1.WorkflowRun) { r.Spec.Shutdown = v1alpha1.ShutdownCancel },
			results: []Result{succeeded("a", 1, `1`)}, want: "Cancelled/Cancelled",
		},
		"terminate has its own reason": {
			change: func(r *v1alpha1.WorkflowRun) { r.Spec.Shutdown = v1alpha1.ShutdownTerminate }, want: "Cancelled/Terminated",
		},
		"cancel wins over the deadline": {
			change: func(r *v1alpha1.WorkflowRun) { r.Spec.Shutdown = v1alpha1.ShutdownCancel },
			pass:   time.Hour, want: "Cancelled/Cancelled",
		},
		"the answer wins over the deadline": {
			pass: time.Hour, results: []Result{succeeded("a", 1, `1`), succeeded("b", 1, `2`)}, want: "Succeeded/Succeeded",
		},
		"the deadline wins over attempt time-outs": {pass: time.Hour, want: "TimedOut/DeadlineExceeded"},
		"a final failure ends the run whatever else arrives": {
			results: []Result{finalFailure("a", 1), succeeded("b", 1, `2`)}, want: "Failed/StepFailed",
		},
		"too large an output fails its step and the run": {
			results: []Result{referring("a", 1, protocol.MaxPayloadBytes+1)}, want: "Failed/OutputTooLarge",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"), newStep("b"))
			run.Spec.ActiveDeadlineSeconds = new(int32(3600))
			advance(t, run, epoch)
			if tt.change != nil {
				tt.change(run)
			}
			out := advance(t, run, epoch.Add(tt.pass), tt.results...)
			if diff := cmp.Diff(tt.want, outcomeOf(&out.Status)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			for i, v := range out.Verdicts {
				if v != Applied {
					t.Errorf("result %d: %s, want Applied", i, v)
				}
			}
		})
	}
}

// A run that is being deleted runs nothing, whatever keeps its object: no clean-up, and that its
// child run goes first is no failure.
//
// mutations: no endDeleted in Decide, or none in forced, or one after applyChildren, make
// this fail.
func TestARunThatIsBeingDeletedEndsAtOnce(t *testing.T) {
	there, gone := Child{State: ChildThere, UID: "u-c"}, Child{State: ChildGone}
	for name, c := range map[string]struct {
		lock              Lock
		child             Child
		finally, cleaning bool
	}{
		"without clean-up":       {held(1), there, false, false},
		"its child run is gone":  {held(1), gone, false, false},
		"with clean-up":          {held(1), there, true, false},
		"at its clean-up":        {held(1), there, true, true},
		"while the lock is busy": {busy(), there, true, false},
		"while Redis is down":    {unavailable(), there, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("sub", childRun(oneJob, "")), newStep("a"))
			if c.finally {
				run.Spec.Finally = []v1alpha1.Step{newStep("f")}
			}
			advance(t, run, epoch)
			run.Status.Steps[0].ChildRun.UID = "u-c"
			if c.cleaning {
				run.Spec.Shutdown = v1alpha1.ShutdownCancel
				advance(t, run, epoch)
			}
			run.DeletionTimestamp = &metav1.Time{Time: epoch}
			out := decideWith(run, c.lock, c.child)
			if got := outcomeOf(&out.Status); got != "Cancelled/Terminated" || len(out.Dispatch) > 0 || len(out.Withdraw) != 1 {
				t.Errorf("%s, dispatched %v, withdrawn %v", got, names(out.Dispatch), out.Withdraw)
			}
			if got := status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message; !strings.Contains(got, "is being deleted") {
				t.Errorf("message %q", got)
			}
		})
	}
}

func finalFailure(step string, attempt int32) Result {
	r := failed(step, attempt, "E", "no")
	r.Result.Final = true
	return r
}

// mutation: judging by the step alone (no attempt) makes "older attempt" fail.
func TestVerdicts(t *testing.T) {
	tests := map[string]struct {
		result Result
		want   Verdict
	}{
		"the attempt in flight":              {succeeded("a", 2, `1`), Applied},
		"that the attempt was begun, twice":  {result("d", 1, protocol.StatusStarted), Duplicate},
		"an older attempt":                   {succeeded("a", 1, `1`), Stale},
		"an attempt that status has not yet": {succeeded("a", 3, `1`), Ahead},
		"a step that has not started":        {succeeded("b", 1, `1`), Ahead},
		"a step that does not exist":         {succeeded("nowhere", 1, `1`), Ahead},
		"a backing-off step's last attempt":  {succeeded("c", 1, `1`), Duplicate},
		"another run":                        {Result{ID: protocol.JobID{RunUID: "u-2", Step: "a", Item: "-", Attempt: 2}}, Ahead},
		"an item of a step without items":    {Result{ID: protocol.JobID{RunUID: "u-1", Step: "a", Item: "3", Attempt: 2}}, Ahead},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a", initialMillis(0)), newStep("b", after("a")), newStep("c"), newStep("d"))
			advance(t, run, epoch)
			advance(t, run, epoch, failed("a", 1, "E", ""), failed("c", 1, "E", ""), result("d", 1, protocol.StatusStarted))
			if got := decideAt(run, epoch, held(1), tt.result).Verdicts[0]; got != tt.want {
				t.Errorf("verdict %s, want %s", got, tt.want)
			}
			for _, lock := range []Lock{busy(), unavailable()} {
				if got := decideAt(run, epoch, lock, tt.result).Verdicts[0]; got != Waiting {
					t.Errorf("verdict %s without the lock, want Waiting", got)
				}
			}
		})
	}
}

// mutation: taking wake from steps while the run is suspended, or while there is no place,
// makes this fail.
func TestNoWakeForWhatTakesAFact(t *testing.T) {
	run := newRun(newStep("a"), newStep("b"))
	run.Spec.MaxParallelSteps = 1
	advance(t, run, epoch)
	advance(t, run, epoch, failed("a", 1, "E", ""))
	late := epoch.Add(time.Minute)
	run.Spec.Suspend = true
	if out := advance(t, run, late); !out.Wake.Equal(epoch.Add(600 * time.Second)) {
		t.Errorf("suspended: wake at %s, want b's start time-out", out.Wake)
	}
	run.Spec.Suspend = false
	if out := advance(t, run, late); out.Changed && len(out.Dispatch) > 0 || !out.Wake.Equal(epoch.Add(600*time.Second)) {
		t.Errorf("no place: wake at %s, dispatch %v", out.Wake, out.Dispatch)
	}
}

// mutation: bounds.Micro or bounds.Second that leaves a time as it is makes persisted fail.
func TestStatusSurvivesARoundTrip(t *testing.T) {
	run := newRun(newStep("a"), newStep("b", after("a")))
	odd := epoch.Add(123456789 * time.Nanosecond).In(time.FixedZone("odd", 3600))
	advance(t, run, odd)
	advance(t, run, odd.Add(time.Second), result("a", 1, protocol.StatusStarted))
	out := advance(t, run, odd.Add(2*time.Second), succeeded("a", 1, `{"z": 1.0, "a": -0.0, "big": 12345678901234567890, "html": "<&>", "x": [1e3, null]}`))
	// What is decided again on the status read back is what was written.
	if again := decideAt(run, odd.Add(2*time.Second), held(1)); again.Changed {
		t.Errorf("the status read back leads to another one:\n%s", cmp.Diff(out.Status, again.Status))
	}
}

// mutation: storing the worker's bytes as they are makes this fail: 1.0 is a double before the
// write and an int after it.
func TestJobOfRendersTheSameBytes(t *testing.T) {
	run := newRun(
		newStep("a"), newStep("other"),
		newStep("b", after("a"), input(`{"half": "${steps.a.output.n / 2}", "all": "${steps}", "raw": "${steps.a.output}"}`)),
	)
	advance(t, run, epoch)
	out := advance(t, run, epoch.Add(time.Second), succeeded("a", 1, `{"n": 7.0, "m": -0.0, "l": 1e2}`))
	if len(out.Dispatch) != 1 {
		t.Fatalf("dispatch %v, status %v", out.Dispatch, out.Status)
	}
	// Other steps ending later must not show.
	advance(t, run, epoch.Add(2*time.Second), succeeded("other", 1, `"late"`), result("b", 1, protocol.StatusStarted))
	again, err := JobOf(run, job("b", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(out.Dispatch[0], again); diff != "" {
		t.Errorf("the job differs (-first +again):\n%s", diff)
	}
	for _, id := range []protocol.JobID{job("b", 2), job("a", 1), job("nowhere", 1), {}} {
		if _, err := JobOf(run, id, nil); err == nil {
			t.Errorf("JobOf(%s): no error, though it is not in flight", id)
		}
	}
	run.Spec.Steps[2].Job.Input = raw(`{"x":"${"}`) // which nobody validated
	if _, err := JobOf(run, job("b", 1), nil); err == nil || InputOutputs(run, job("b", 1)) != nil {
		t.Errorf("an input that is no template: %v", err)
	}
}

// mutation: leaving out bounds.MaxErrorsBytes or bounds.MaxOutputsBytes makes this fail.
func TestStatusIsBounded(t *testing.T) {
	steps := make([]v1alpha1.Step, bounds.MaxSteps)
	for i := range steps {
		steps[i] = newStep(fmt.Sprintf("%040d", i))
	}
	run := newRun(steps...)
	run.UID = "01234567-89ab-cdef-0123-456789abcdef"
	run.Spec.MaxParallelSteps = bounds.MaxSteps
	advance(t, run, epoch)
	nasty := strings.Repeat("\x01<é\u2028", 2000)
	var results []Result
	for i := range steps {
		r := failed(steps[i].Name, 1, nasty, nasty)
		if i%2 == 0 { // some of them in status, until there is only room for references
			r = succeeded(steps[i].Name, 1, fmt.Sprintf("%q", strings.Repeat("x", bounds.MaxOutputBytes-2)))
		}
		r.ID.RunUID = string(run.UID)
		results = append(results, r)
	}
	out := advance(t, run, epoch.Add(1234567*time.Microsecond), results...)
	if n := len(mustJSON(t, out.Status)); n > 256<<10 {
		t.Errorf("status has %d bytes", n)
	}
	if got := status.ReasonOf(&out.Status, v1alpha1.ConditionSucceeded); got != v1alpha1.ReasonBackingOff {
		t.Errorf("reason %s", got)
	}
	for _, c := range out.Status.Conditions {
		if n := len([]rune(c.Message)); n > bounds.MaxMessageChars {
			t.Errorf("message of %s has %d characters", c.Type, n)
		}
	}
}

// mutation: `s.Failures >=` as `>` in fail makes "no retry" fail; a fraction of the time-out makes
// the others fail.
func TestExpressionsAndInputs(t *testing.T) {
	tests := map[string]struct {
		step v1alpha1.Step
		code string
	}{
		"when that cannot be evaluated":  {newStep("b", after("a"), when("steps.a.output.missing == 1")), facts.CodeExpressionError},
		"input that cannot be evaluated": {newStep("b", after("a"), input(`{"x":"${steps.a.output.missing}"}`)), facts.CodeExpressionError},
		"a step on which it does not depend is not visible, whatever its name is computed from": {
			newStep("b", after("a"), input(`{"x":"${steps['c' + ''].phase}"}`)), facts.CodeExpressionError,
		},
		"input that grows too large": {
			newStep("b", after("a"), input(`{"x":["${inputs.big}","${inputs.big}","${inputs.big}","${inputs.big}","${inputs.big}"]}`)), facts.CodeInputTooLarge,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"), tt.step, newStep("c"))
			run.Spec.Inputs = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"big":%q}`, strings.Repeat("x", 60<<10))}
			advance(t, run, epoch)
			out := advance(t, run, epoch.Add(time.Second), succeeded("a", 1, `{}`))
			if got := outcomeOf(&out.Status); got != "Failed/StepFailed" {
				t.Fatalf("outcome %s", got)
			}
			if e := out.Status.Steps[1].Error; e == nil || e.Code != tt.code {
				t.Errorf("error %v, want code %s", e, tt.code)
			}
			if len(out.Dispatch) != 0 {
				t.Errorf("dispatched %v by a run that ends", out.Dispatch)
			}
			if len(out.Withdraw) != 1 || out.Withdraw[0].ID != job("c", 1) {
				t.Errorf("withdrawn %v, want c", out.Withdraw)
			}
		})
	}
}

func TestTenantNotAllowed(t *testing.T) {
	run := newRun(newStep("a"))
	in := Input{Run: run, Now: epoch, Lock: held(1), Tenant: Tenant{Name: "other"}}
	out := Decide(in)
	if got := outcomeOf(&out.Status); got != "Failed/TenantNotAllowed" || out.Status.Tenant != "other" || len(out.Dispatch) > 0 {
		t.Errorf("outcome %s, tenant %s", got, out.Status.Tenant)
	}
	in.Lock = unavailable()
	if out := Decide(in); out.Status.CompletedAt != nil || out.Status.Tenant != "" {
		t.Errorf("without the lock the run ended or its tenant was pinned: %v", out.Status)
	}
}

// mutation: clamping Started only at one end makes this fail.
func TestStartedIsBelievedBetweenDispatchAndNow(t *testing.T) {
	now := epoch.Add(10 * time.Second)
	tests := map[string]struct{ published, want time.Time }{
		"between":                           {epoch.Add(4 * time.Second), epoch.Add(4 * time.Second)},
		"before dispatch, by another clock": {epoch.Add(-time.Hour), epoch},
		"in the future, by another clock":   {epoch.Add(time.Hour), now},
		"never":                             {time.Time{}, epoch},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			advance(t, run, epoch)
			r := result("a", 1, protocol.StatusStarted)
			r.PublishedAt = tt.published
			out := advance(t, run, now, r)
			if got := out.Status.Steps[0].StartedAt; got == nil || !got.Time.Equal(tt.want) {
				t.Errorf("startedAt %v, want %v", got, tt.want)
			}
		})
	}
}

// mutation: deciding about a finished run as about any other makes this fail.
func TestFinishedRunNeverChanges(t *testing.T) {
	run := newRun(newStep("a"))
	advance(t, run, epoch)
	advance(t, run, epoch, succeeded("a", 1, `{}`))
	run.Spec.Shutdown, run.Spec.Suspend, run.Generation = v1alpha1.ShutdownTerminate, true, 7
	run.Spec.ActiveDeadlineSeconds = new(int32(1))
	for _, lock := range []Lock{held(9), busy(), unavailable()} {
		out := decideAt(run, epoch.Add(time.Hour), lock, succeeded("a", 1, `{}`), succeeded("a", 2, `{}`))
		if out.Changed || !cmp.Equal(out.Status, *run.Status) {
			t.Errorf("changed: %s", cmp.Diff(*run.Status, out.Status))
		}
		if diff := cmp.Diff([]Verdict{Duplicate, Stale}, out.Verdicts); diff != "" {
			t.Error(diff)
		}
	}
}

// mutation: a queue clock that runs from creation makes this fail.
func TestQueueClockOfASuspendedRunStartsWhenItIsResumed(t *testing.T) {
	run := newRun(newStep("a"))
	run.Spec.Suspend, run.Spec.QueueTimeoutSeconds = true, new(int32(60))
	late := epoch.Add(time.Hour)
	advance(t, run, epoch)
	run.Spec.Suspend = false
	if out := decideAt(run, late, busy()); out.Changed || !out.Wake.IsZero() {
		t.Errorf("lock busy: %v", out.Status)
	}
	out := decideAt(run, late, unavailable())
	if got := out.Status.Admission; out.Status.CompletedAt != nil || got == nil || !got.QueuedAt.Time.Equal(late) {
		t.Fatalf("store down: %v", out.Status)
	}
	if want := late.Add(time.Minute); !out.Wake.Equal(want) {
		t.Errorf("wake at %s, want %s", out.Wake, want)
	}
	run.Status = persisted(t, &out.Status)
	if out := decideAt(run, late.Add(time.Minute), unavailable()); outcomeOf(&out.Status) != "TimedOut/QueueTimeout" {
		t.Errorf("outcome %s", outcomeOf(&out.Status))
	}
}

// Runs are created while no operator is there, and the first that comes has no Redis for a moment:
// to all of them it is the first sight.
//
// mutations: a queue clock that runs from creation, sayWaits that starts none, starts one while the
// run is suspended, or none where an older operator has said that it waits.
func TestQueueClockOfARunThatNobodySawStartsAtFirstSight(t *testing.T) {
	late := epoch.Add(10 * time.Minute)
	for name, lock := range map[string]Lock{"Redis is away": unavailable(), "another has the lock": overdue("Held by operator-1")} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			run.Spec.QueueTimeoutSeconds = new(int32(60))
			if out := decideAt(run, late, busy()); out.Changed || !out.Wake.IsZero() {
				t.Errorf("at first: %v", out.Status)
			}
			run.Spec.Suspend = true
			if out := decideAt(run, late, lock); out.Status.Admission != nil {
				t.Errorf("while it is suspended: %+v", out.Status.Admission)
			}
			run.Spec.Suspend = false // also where it was created so
			out := decideAt(run, late, lock)
			if got := out.Status.Admission; out.Status.CompletedAt != nil || got == nil || !got.QueuedAt.Time.Equal(late) {
				t.Fatalf("without the lock: %v", out.Status)
			}
			if want := late.Add(time.Minute); !out.Wake.Equal(want) {
				t.Errorf("wake at %s, want %s", out.Wake, want)
			}
			run.Status = persisted(t, &out.Status)
			if out := decideAt(run, late.Add(time.Second), lock); out.Changed {
				t.Errorf("written twice: %v", out.Status)
			}
			old := run.DeepCopy()
			old.Status.Admission = nil
			if out := decideAt(old, late, lock); !out.Changed || !out.Status.Admission.QueuedAt.Time.Equal(late) || out.Status.CompletedAt != nil {
				t.Errorf("written by an older operator: changed %t, %+v", out.Changed, out.Status.Admission)
			}
			in := run.DeepCopy()
			advance(t, in, late.Add(59*time.Second))
			if in.Status.Phase != v1alpha1.RunRunning || !in.Status.Admission.QueuedAt.Time.Equal(late) {
				t.Errorf("once it is had: %s, %+v", in.Status.Phase, in.Status.Admission)
			}
			if out := decideAt(run, late.Add(time.Minute), lock); outcomeOf(&out.Status) != "TimedOut/QueueTimeout" {
				t.Errorf("after a minute: %s", outcomeOf(&out.Status))
			}
		})
	}
}

func TestConditionsAreComplete(t *testing.T) {
	want := []string{
		v1alpha1.ConditionAdmitted, v1alpha1.ConditionRunLockRenewed, v1alpha1.ConditionRunLockAbandoned, v1alpha1.ConditionDeadLettered,
		v1alpha1.ConditionFinished, v1alpha1.ConditionSucceeded, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled,
	}
	cancelled := newRun(newStep("a"))
	cancelled.Spec.Shutdown = v1alpha1.ShutdownCancel
	for name, out := range map[string]Decision{
		"first decision":            decideAt(newRun(newStep("a")), epoch, held(1)),
		"invalid":                   decideAt(newRun(), epoch, held(1)),
		"store down at first sight": decideAt(newRun(newStep("a")), epoch, unavailable()),
		"cancelled at first sight":  decideAt(cancelled, epoch, busy()),
	} {
		for _, kind := range want {
			c := status.Condition(&out.Status, kind)
			if c == nil || c.Reason == "" || c.ObservedGeneration != 1 || c.LastTransitionTime != (metav1.Time{Time: epoch}) {
				t.Errorf("%s: condition %s is %v", name, kind, c)
			}
		}
		if len(out.Status.Conditions) != len(want) {
			t.Errorf("%s: %d conditions", name, len(out.Status.Conditions))
		}
	}
}

func TestNothingIsInFlightInWhatDoesNotExist(t *testing.T) {
	if InFlight(newRun(newStep("a"))) != nil || InFlight(nil) != nil || Finished(nil) {
		t.Error("something is in flight or finished")
	}
}
