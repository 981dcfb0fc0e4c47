// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
)

func bytesOf(t *testing.T, st *v1alpha1.WorkflowRunStatus) int {
	t.Helper()
	text, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

// The smallest statuses of runs under way, and every way to end: what could be written once leaves
// room for the end.
//
// mutation: bare that keeps the steps, the holder, or generations of conditions makes a case fail.
func TestABareEndFitsWhereTheLastWriteDid(t *testing.T) {
	ends := map[string]func(*v1alpha1.WorkflowRun){
		"no room":    func(*v1alpha1.WorkflowRun) {},
		"cancelled":  func(run *v1alpha1.WorkflowRun) { run.Spec.Shutdown = v1alpha1.ShutdownCancel },
		"terminated": func(run *v1alpha1.WorkflowRun) { run.Spec.Shutdown = v1alpha1.ShutdownTerminate },
		"timed out": func(run *v1alpha1.WorkflowRun) {
			run.Spec.ActiveDeadlineSeconds, run.Spec.QueueTimeoutSeconds = new(int32(60)), new(int32(60))
		},
	}
	last := held(9)
	for name, end := range ends {
		for _, lock := range []Lock{last, {State: LockBusy, LeaseID: "01234567-89ab-cdef-0123-456789abcdef", Holder: "operator-1"}} {
			for gate, state := range map[string]GateState{"let in": GateOpen, "queued": GateFull} {
				t.Run(name+", "+gate, func(t *testing.T) {
					run := newRun(newStep("a"))
					in := letIn(Input{Run: run, Now: epoch, Lock: last})
					in.Lock.LeaseID, in.Gate.State = "01234567-89ab-cdef-0123-456789abcdef", state
					out := Decide(in)
					run.Status = persisted(t, &out.Status)
					end(run)
					in.Run, in.Now, in.Lock, in.Form = run, epoch.Add(time.Hour), lock, FormBare
					in.Answers = Answers{AsOf: in.Now}
					out = Decide(in)
					if lock.State == LockBusy && name == "no room" {
						if out.Status.CompletedAt != nil {
							t.Error("ended by who has not the lock, though the holder may have room")
						}
						return
					}
					if out.Status.CompletedAt == nil || out.Status.Steps != nil {
						t.Fatalf("%+v", out.Status)
					}
					if was, now := bytesOf(t, run.Status), bytesOf(t, &out.Status); now > was {
						t.Errorf("%d bytes, more than %d", now, was)
					}
				})
			}
		}
	}
}

// What reads the outputs of a run that succeeded must find them: without room for them it failed.
//
// mutation: end without its look at the form makes this fail.
func TestARunWhoseOutputsDoNotFitHasNotSucceeded(t *testing.T) {
	for form, want := range map[Form]string{FormShort: "Succeeded/Succeeded", FormBare: "Failed/ObjectTooLarge"} {
		run := newRun(newStep("a"))
		run.Spec.Outputs = &runtime.RawExtension{Raw: []byte(`{"n":"${steps.a.output}"}`)}
		advance(t, run, epoch)
		out := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Form: form, Results: []Result{succeeded("a", 1, "7")}}))
		if got := outcomeOf(&out.Status); got != want || out.Verdicts[0] != Applied {
			t.Errorf("%v: %s, %v", form, got, out.Verdicts)
		}
		if form == FormShort && (string(bounds.Raw(out.Status.Outputs)) != `{"n":7}` || out.Status.Steps[0].Output != nil) {
			t.Errorf("outputs %s, step %+v", bounds.Raw(out.Status.Outputs), out.Status.Steps[0])
		}
	}
}

// mutation: report.Short that keeps anything which it is to leave out makes this fail.
func TestAShortEndLeavesOutWhatIsLong(t *testing.T) {
	run := newRun(newStep("a", maxFailures(1)), newStep("b"))
	run.Spec.Finally = []v1alpha1.Step{newStep("f")}
	advance(t, run, epoch)
	long := make([]byte, 3000)
	for i := range long {
		long[i] = 'x'
	}
	r := failed("a", 1, "E", string(long))
	advance(t, run, epoch, succeeded("b", 1, `"`+string(long)+`"`))
	full := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{r}}))
	out := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{r}, Form: FormShort}))
	if full.Status.Ending == nil || out.Status.Ending != nil || outcomeOf(&out.Status) != "Failed/StepFailed" {
		t.Fatalf("ending %+v, then %+v, %s", full.Status.Ending, out.Status.Ending, outcomeOf(&out.Status))
	}
	if n := bytesOf(t, &out.Status); n > 3000 {
		t.Errorf("%d bytes", n)
	}
	if s := out.Status.Steps[0]; s.Phase != v1alpha1.StepFailed || s.Error.Code != "E" {
		t.Errorf("%+v", s)
	}
}

// mutation: endWithoutRoom that does not look at the announced end makes this fail.
func TestAnAnnouncedEndStandsWhereThereIsNoRoom(t *testing.T) {
	for want, r := range map[string]Result{
		"Failed/ObjectTooLarge": succeeded("a", 1, "7"),
		"Failed/StepFailed":     failed("a", 1, "E", "no"),
	} {
		run := newRun(newStep("a", maxFailures(1)))
		run.Spec.Finally = []v1alpha1.Step{newStep("f")}
		advance(t, run, epoch)
		advance(t, run, epoch, r)
		out := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Form: FormShort}))
		if got := outcomeOf(&out.Status); got != want || out.Status.Ending == nil || out.Status.Ending.Message != "" {
			t.Errorf("%s, want %s; ending %+v", got, want, out.Status.Ending)
		}
		if len(out.Withdraw) != 1 {
			t.Errorf("withdrawn %v", out.Withdraw)
		}
	}
}

// mutation: report.Short that keeps what approvers said, which items failed, or when a child run
// began makes this fail.
func TestAShortEndOfEachKindOfStep(t *testing.T) {
	begun, over := bounds.Micro(epoch), bounds.Micro(epoch.Add(time.Minute))
	st := &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{
		{Name: "ok", StartedAt: begun, CompletedAt: over, Approval: &v1alpha1.ApprovalStatus{Comment: "well done"}},
		{Name: "all", StartedAt: begun, CompletedAt: over, ForEach: &v1alpha1.ForEachStatus{Total: 3, FailedItems: "1-2"}},
		{Name: "sub", StartedAt: begun, CompletedAt: over, ChildRun: &v1alpha1.ChildRunStatus{Name: "x"}},
	}}
	report.Short(st)
	if s := st.Steps; s[0].Approval.Comment != "" || s[1].ForEach.FailedItems != "" || s[0].StartedAt != nil || !s[2].StartedAt.Equal(over) {
		t.Errorf("%+v", st.Steps)
	}
}
