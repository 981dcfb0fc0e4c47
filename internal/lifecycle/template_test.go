// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

var report1 = &v1alpha1.WorkflowRevision{Name: "report", Revision: "abc"}

// decideTemplate decides about a run that follows a Workflow.
func decideTemplate(run *v1alpha1.WorkflowRun, now time.Time, t Template) Decision {
	return Decide(letIn(Input{Run: run, Now: now, Lock: held(7), Template: t}))
}

func TestTemplate_WhatBecomesOfARunThatFollowsAWorkflow(t *testing.T) {
	bare := newRun()
	pinned := newRun(newStep("a"))
	pinned.Status = &v1alpha1.WorkflowRunStatus{Workflow: &v1alpha1.WorkflowRevision{Name: "report", Revision: "first"}}
	late := epoch.Add(facts.TemplatePatience)
	// its revision had a finally step, which is under way
	cleaning := WithoutTemplate(&v1alpha1.WorkflowRun{ObjectMeta: bare.ObjectMeta, Status: &v1alpha1.WorkflowRunStatus{
		Workflow: pinned.Status.Workflow, Admission: &v1alpha1.AdmissionStatus{AdmittedAt: bounds.Second(epoch)},
		Steps: []v1alpha1.StepStatus{
			{Name: "a", Phase: v1alpha1.StepSucceeded}, {Name: "f", Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: bounds.Micro(epoch)},
		},
		Ending: &v1alpha1.EndingStatus{Phase: v1alpha1.RunSucceeded, Reason: v1alpha1.ReasonSucceeded, AnnouncedAt: *bounds.Micro(epoch)},
	}})
	cancelled := *cleaning
	cancelled.Status = cleaning.Status.DeepCopy()
	cancelled.Status.Ending.Phase, cancelled.Status.Ending.Reason = v1alpha1.RunCancelled, v1alpha1.ReasonCancelled
	for name, c := range map[string]struct {
		run    *v1alpha1.WorkflowRun
		now    time.Time
		t      Template
		phase  v1alpha1.RunPhase
		reason string // of Succeeded, or Admitted while it waits
		pin    string
	}{
		"found":                                  {newRun(newStep("a")), epoch, Template{Revision: report1}, v1alpha1.RunRunning, v1alpha1.ReasonRunning, "abc"},
		"pinned before":                          {pinned, epoch, Template{Revision: report1}, v1alpha1.RunRunning, v1alpha1.ReasonRunning, "first"},
		"wrong inputs":                           {newRun(newStep("a")), epoch, Template{Revision: report1, Problems: []string{"spec.inputs.x: no"}}, v1alpha1.RunFailed, v1alpha1.ReasonInvalidSpec, "abc"},
		"not there":                              {bare, epoch, Template{Missing: "it is not"}, v1alpha1.RunQueued, v1alpha1.ReasonWaitingForWorkflow, ""},
		"not there in time":                      {bare, late, Template{Missing: "it is not"}, v1alpha1.RunFailed, v1alpha1.ReasonWorkflowNotFound, ""},
		"gone after it was pinned":               {pinned, epoch, Template{Missing: "it is gone"}, v1alpha1.RunFailed, v1alpha1.ReasonWorkflowNotFound, "first"},
		"gone while it cleans up":                {cleaning, epoch, Template{Missing: "it is gone"}, v1alpha1.RunFailed, v1alpha1.ReasonWorkflowNotFound, "first"},
		"gone while it cleans up after a cancel": {&cancelled, epoch, Template{Missing: "it is gone"}, v1alpha1.RunCancelled, v1alpha1.ReasonCancelled, "first"},
		"there late, which is in time":           {newRun(newStep("a")), late, Template{Revision: report1}, v1alpha1.RunRunning, v1alpha1.ReasonRunning, "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			d := decideTemplate(c.run, c.now, c.t)
			reason := status.ReasonOf(&d.Status, v1alpha1.ConditionSucceeded)
			if c.reason == v1alpha1.ReasonWaitingForWorkflow {
				reason = status.ReasonOf(&d.Status, v1alpha1.ConditionAdmitted)
				if !d.Wake.Equal(late) || d.Needs.Admission || status.Admitted(&d.Status) {
					t.Errorf("it wakes at %s, asks for a slot: %v, has %v", d.Wake, d.Needs.Admission, d.Status.Admission)
				}
			}
			if d.Status.Phase != c.phase || reason != c.reason {
				t.Errorf("%s/%s, want %s/%s", d.Status.Phase, reason, c.phase, c.reason)
			}
			if (c.phase == v1alpha1.RunRunning) != (len(d.Dispatch) == 1) {
				t.Errorf("%d jobs", len(d.Dispatch))
			}
			var pin string
			if d.Status.Workflow != nil {
				pin = d.Status.Workflow.Revision
			}
			if pin != c.pin || (pin != "") != (d.Status.MinWriterVersion == v1alpha1.WorkflowVersion) {
				t.Errorf("pinned to %q, version %d", pin, d.Status.MinWriterVersion)
			}
		})
	}
}

// mutations: problemsOf without the inputs of the template, and a version without parameters that
// may read any, make this fail: the run does its steps and fails then.
func TestTemplate_ARunReadsTheParametersOnly(t *testing.T) {
	for name, c := range map[string]struct {
		inputs []string
		want   string // in the message; "": it runs
	}{
		"a parameter":       {[]string{"name"}, ""},
		"none of them":      {[]string{"named"}, `inputs has no field "name"; it has named`},
		"there are none":    {[]string{}, `inputs has no field "name"; it has none`},
		"it is not limited": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := decideTemplate(newRun(newStep("a", input(`{"x": "${inputs.name}"}`))), epoch, Template{Revision: report1, Inputs: c.inputs})
			got := status.Condition(&d.Status, v1alpha1.ConditionSucceeded)
			if refused := got.Reason == v1alpha1.ReasonInvalidSpec; refused != (c.want != "") || !strings.Contains(got.Message, c.want) {
				t.Errorf("%s: %s", got.Reason, got.Message)
			}
		})
	}
}

// mutation: an admit that starts no clock while the run waits for its Workflow.
func TestTemplate_AQueueTimeoutEndsTheWaitForAWorkflow(t *testing.T) {
	run := newRun()
	run.Spec.QueueTimeoutSeconds = new(int32(5))
	waits := Template{Missing: "it cannot be kept", Patient: true}
	d := decideTemplate(run, epoch, waits)
	if d.Status.Phase != v1alpha1.RunQueued || !d.Wake.Equal(epoch.Add(5*time.Second)) {
		t.Errorf("at first it is %s, and wakes at %s", d.Status.Phase, d.Wake)
	}
	run.Status = persisted(t, &d.Status)
	d = decideTemplate(run, d.Wake, waits)
	if c := status.Condition(&d.Status, v1alpha1.ConditionSucceeded); outcomeOf(&d.Status) != "TimedOut/QueueTimeout" || !strings.Contains(c.Message, waits.Missing) {
		t.Errorf("in the end it is %s: %s", outcomeOf(&d.Status), c.Message)
	}
}

// A revision that is about to be deleted, or that cannot be kept, is no Workflow that
// does not exist.
//
// mutations: missTemplate, templateWait and templateText that do not look whether the
// run is patient.
func TestTemplate_APatientRunWaitsUntilItIsCancelled(t *testing.T) {
	run := newRun()
	waits := Template{Missing: "it cannot be kept", Patient: true}
	for _, now := range []time.Time{epoch, epoch.Add(facts.TemplatePatience), epoch.Add(time.Hour)} {
		d := decideTemplate(run, now, waits)
		c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionAdmitted)
		if d.Status.Phase != v1alpha1.RunQueued || c == nil || c.Reason != v1alpha1.ReasonWaitingForWorkflow || c.Message != waits.Missing {
			t.Errorf("%s: %s, %+v", now, d.Status.Phase, c)
		}
		if !d.Wake.IsZero() || d.Needs.Admission {
			t.Errorf("%s: it wakes at %s, asks for a slot: %v", now, d.Wake, d.Needs.Admission)
		}
	}
	run.Spec.Shutdown = v1alpha1.ShutdownCancel
	if d := decideTemplate(run, epoch.Add(time.Hour), waits); d.Status.Phase != v1alpha1.RunCancelled {
		t.Errorf("cancelled: %s", d.Status.Phase)
	}
}

// A run that cleans up, and cannot have its revision for now, does not know how long that may take.
// It ended after the 300 seconds of a template that says nothing of it.
//
// mutation: stepsEnd that does not look whether the revision is there.
func TestTemplate_ACleanUpWithoutItsRevisionHasItsTime(t *testing.T) {
	at := epoch.Add(400 * time.Second)
	for name, c := range map[string]struct {
		t     Template
		adapt func(*v1alpha1.WorkflowRun)
		in    Input
		want  string
	}{
		"it is there":               {want: "Cancelled/Cancelled"},
		"it is refused":             {t: Template{Missing: "it cannot be had", Patient: true}},
		"it is gone":                {t: Template{Missing: "it was deleted"}},
		"it is gone, with the lock": {t: Template{Missing: "it was deleted"}, in: Input{Lock: held(1)}, want: "Cancelled/Cancelled"},
		"it is refused, and it is cancelled": {
			t: Template{Missing: "it cannot be had", Patient: true}, adapt: func(run *v1alpha1.WorkflowRun) { run.Spec.Shutdown = v1alpha1.ShutdownCancel },
		},
		"it is refused, and it is terminated": {
			t: Template{Missing: "it cannot be had", Patient: true}, adapt: func(run *v1alpha1.WorkflowRun) { run.Spec.Shutdown = v1alpha1.ShutdownTerminate }, want: "Cancelled/Terminated",
		},
		"it is refused, and it is deleted": {
			t: Template{Missing: "it cannot be had", Patient: true}, adapt: func(run *v1alpha1.WorkflowRun) { run.DeletionTimestamp = &metav1.Time{Time: at} }, want: "Cancelled/Terminated",
		},
		"it is refused, and its parent is terminated": {
			t: Template{Missing: "it cannot be had", Patient: true}, in: Input{Parent: &Parent{Terminated: true}}, want: "Cancelled/Terminated",
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			run.Spec.Finally = []v1alpha1.Step{newStep("tidy")}
			advance(t, run, epoch)
			run.Spec.Shutdown = v1alpha1.ShutdownCancel
			advance(t, run, epoch)
			if run.Status.Ending == nil {
				t.Fatalf("it does not clean up: %+v", run.Status)
			}
			if run.Spec.Shutdown = ""; c.adapt != nil {
				c.adapt(run)
			}
			if c.t.Missing != "" {
				run.Spec.WorkflowRef, run.Status.Workflow = &v1alpha1.WorkflowReference{Name: "report"}, report1
				run = WithoutTemplate(run)
			}
			if c.in.Run, c.in.Now, c.in.Template = run, at, c.t; c.in.Lock == (Lock{}) {
				c.in.Lock.State = LockBusy
			}
			d := Decide(letIn(c.in))
			got := ""
			if Finished(&v1alpha1.WorkflowRun{Status: &d.Status}) {
				got = outcomeOf(&d.Status)
			}
			if got != c.want || c.want == "" && d.Changed {
				t.Errorf("got %q, want %q; changed: %v", got, c.want, d.Changed)
			}
		})
	}
}

func TestTemplate_TheFirstWriteIsNeverLate(t *testing.T) {
	for name, c := range map[string]struct {
		t    Template
		lags bool
	}{"steps of its own": {Template{}, true}, "a template": {Template{Revision: report1}, false}} {
		run := newRun(newStep("a"))
		d := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(7), Template: c.t, Checkpoint: Checkpoint{Coalesced: true, Begins: true}}))
		if d.MayLag != c.lags {
			t.Errorf("%s: the write may lag: %v", name, d.MayLag)
		}
	}
}

func TestTemplate_TheLevelOfARunBoundsWhatIsBelowIt(t *testing.T) {
	for level, valid := range map[int32]bool{0: true, 2: true, 4: true, 5: false} {
		run := ownedRun(newStep("sub", childRun(`{"workflowRef":{"name":"report"}}`, "")))
		parent := facts.SeenParent(run, aParent())
		parent.Claim.Level = level
		d := Decide(letIn(Input{Run: run, Now: epoch.Add(time.Minute), Lock: held(7), Parent: parent, Template: Template{Revision: report1}}))
		if refused := status.ReasonOf(&d.Status, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonInvalidSpec; refused == valid {
			t.Errorf("level %d: refused %v: %s", level, refused, status.Condition(&d.Status, v1alpha1.ConditionSucceeded).Message)
		}
	}
}

// A child that follows a Workflow says nothing that is the Workflow's.
func TestTemplate_ChildrenNameAWorkflowOrHaveSteps(t *testing.T) {
	for spec, valid := range map[string]bool{
		`{"workflowRef":{"name":"report"}}`:                             true,
		`{"workflowRef":{"name":"report"},"workloadClass":"b"}`:         true,
		`{"workflowRef":{"name":"report"},"maxParallelSteps":2}`:        false,
		`{"workflowRef":{"name":"report"},"outputs":{"a":1}}`:           false,
		`{"workflowRef":{"name":"report"},"activeDeadlineSeconds":1}`:   false,
		`{"workflowRef":{"name":"report"},"finallyTimeoutSeconds":1}`:   false,
		`{"workflowRef":{"name":"report"},"steps":[{"name":"a"}]}`:      false,
		`{"workflowRef":{"name":"report"},"finally":[{"name":"a"}]}`:    false,
		`{"workflowRef":{"name":"report"},"inputs":{"given":"beside"}}`: false,
	} {
		d := decideTemplate(newRun(newStep("sub", childRun(spec, ""))), epoch, Template{})
		if refused := status.ReasonOf(&d.Status, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonInvalidSpec; refused == valid {
			t.Errorf("%s: refused %v", spec, refused)
		}
	}
}

// What is left of a run without its revision is enough to end it, and keeps its steps.
func TestTemplate_ARunWithoutItsRevisionKeepsItsSteps(t *testing.T) {
	run := newRun(newStep("a"), newStep("b"))
	d := decideTemplate(run, epoch, Template{Revision: report1})
	run.Status = &d.Status
	lean := *run
	lean.Spec.Steps = nil
	if jobs := InFlightJobs(&lean); len(jobs) != 0 {
		t.Errorf("jobs without steps: %v", jobs)
	}
	if Over(&lean, d.Dispatch[0].ID) {
		t.Error("an attempt in flight is over")
	}
	end := decideTemplate(WithoutTemplate(&lean), epoch.Add(time.Second), Template{Missing: "status.workflow: it is gone"}).Status
	var phases []string
	for _, s := range end.Steps {
		phases = append(phases, s.Name+" "+string(s.Phase))
	}
	if diff := cmp.Diff([]string{"a Cancelled", "b Cancelled"}, phases); diff != "" {
		t.Error(diff)
	}
	if c := status.Condition(&end, v1alpha1.ConditionSucceeded); c.Reason != v1alpha1.ReasonWorkflowNotFound || !strings.Contains(c.Message, "it is gone") {
		t.Errorf("%+v", c)
	}
	lean.Status = &end
	if n := len(WithoutTemplate(&lean).Spec.Steps); n != 0 || !Over(&lean, d.Dispatch[0].ID) {
		t.Errorf("a run that ended has %d steps", n)
	}
	lean.Status = nil
	if n := len(WithoutTemplate(&lean).Spec.Steps); n != 0 {
		t.Errorf("a run without status has %d steps", n)
	}
}
