// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

var epoch = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)

// examples are a step of each kind.
func examples() map[string]*v1alpha1.Step {
	return map[string]*v1alpha1.Step{
		"approval": {Name: "s", Approval: &v1alpha1.Approval{Message: "may it?", TimeoutSeconds: new(int32(60))}},
		"delay":    {Name: "s", Delay: &v1alpha1.Delay{Seconds: new(int32(60))}},
	}
}

// Each row is complete, and no two kinds are taken for each other.
//
// mutation: a row without End, one with the phase or the reason of another, and a kind that is left
// out of All make this fail.
func TestKind_RowsAreCompleteAndDiffer(t *testing.T) {
	phases, reasons := map[v1alpha1.StepPhase]bool{}, map[string]bool{}
	for _, k := range All {
		if phases[k.Phase] || reasons[k.Reason] {
			t.Errorf("%s has the phase or the reason of another kind", k.Field)
		}
		phases[k.Phase], reasons[k.Reason] = true, true
		step := examples()[k.Field]
		if step == nil {
			t.Fatalf("there is no example of %s", k.Field)
		}
		if Of(step) != k || In(k.Phase) != k || For(k.Reason) != k {
			t.Errorf("%s is not found by step, phase or reason", k.Field)
		}
		if at, problem := k.Problem(step, metav1.Time{Time: epoch}); problem != "" {
			t.Errorf("%s: %s %s", k.Field, at, problem)
		}
		s := &v1alpha1.StepStatus{Name: "s", Phase: k.Phase, StartedAt: bounds.Micro(epoch)}
		if k.Begin != nil {
			k.Begin(step, s, epoch)
		}
		end := k.End(step, s)
		if !end.Equal(epoch.Add(time.Minute)) || !StepEnd(step, s).Equal(end) {
			t.Errorf("%s ends at %s", k.Field, end)
		}
		if o := k.TimeOut(step, s, end); o.Error == nil && o.Event.Reason == "" {
			t.Errorf("%s: its time-out says nothing", k.Field)
		}
		if k.Began(step, s).Message == "" || k.Text(s, bounds.TimeText) == "" || k.Means == "" || k.Doing == "" || k.Then(step) == "" || k.Over(step) == "" || k.Bytes(step) < 0 {
			t.Errorf("%s lacks a text", k.Field)
		}
		if !k.End(&v1alpha1.Step{}, &v1alpha1.StepStatus{}).IsZero() {
			t.Errorf("%s: a step that is none of it ends", k.Field)
		}
	}
	if len(All) != len(examples()) {
		t.Errorf("%d kinds, %d examples", len(All), len(examples()))
	}
}

func TestKind_WhatDoesNotWaitHasNone(t *testing.T) {
	for name, step := range map[string]*v1alpha1.Step{
		"a job": {Job: &v1alpha1.Job{Topic: "t"}}, "a child run": {Run: &v1alpha1.ChildRun{}}, "a kind of a later version": {Name: "s"},
	} {
		if k := Of(step); k != nil {
			t.Errorf("%s is taken for %s", name, k.Field)
		}
	}
	if In(v1alpha1.StepRunning) != nil || In("Odd") != nil || For(v1alpha1.ReasonRunning) != nil {
		t.Error("a phase or reason of work is taken for that of a wait")
	}
}

func TestFields_OfFinallyStepsAreThoseThatNobodyHasToAnswer(t *testing.T) {
	all, finally := Fields(false), Fields(true)
	if !slices.Equal(all[:2], []string{"approval", "delay"}) || len(all) != len(All) {
		t.Errorf("steps: %v", all)
	}
	if !slices.Equal(finally, []string{"delay"}) {
		t.Errorf("finally steps: %v", finally)
	}
}

func TestFirst_OfWhatNeedsSomebodyAndOfWhatDoesNot(t *testing.T) {
	in := map[v1alpha1.StepPhase]int{v1alpha1.StepDelayed: 2}
	if k := First(in, true); k != nil {
		t.Errorf("%s waits for somebody", k.Field)
	}
	if k := First(in, false); k == nil || k.Field != "delay" {
		t.Errorf("%+v", k)
	}
}

// A decision has the texts as they are given: whoever applies it cuts them first.
func TestApproval_ADecisionIsItsOutcome(t *testing.T) {
	s := &v1alpha1.StepStatus{Name: "s"}
	yes := decided(s, facts.Signal{Step: "s", Decision: v1alpha1.Approve, Approver: "ann", Comment: "fine", Output: []byte(`{"n":1}`), At: epoch})
	if yes.Error != nil || string(yes.Output) != `{"n":1}` || yes.Event.Message != "Step s: approved by ann: fine" || yes.Approval.Approver != "ann" {
		t.Errorf("%+v", yes)
	}
	no := decided(s, facts.Signal{Step: "s", Decision: v1alpha1.Reject, Approver: "ann", At: epoch})
	if no.Error == nil || no.Error.Code != facts.CodeRejected || no.Error.Message != "rejected by ann" || no.Approval.Decision != v1alpha1.Reject {
		t.Errorf("%+v", no)
	}
}

func TestApproval_WhatTimeAloneBrings(t *testing.T) {
	for on, want := range map[v1alpha1.ApprovalDecision][2]string{
		"":               {"if nobody decides, it is rejected", "s is rejected, as nobody decided"},
		v1alpha1.Approve: {"if nobody decides, it is approved", "s is approved, as nobody decided"},
	} {
		step := examples()["approval"]
		step.Approval.OnTimeout = on
		if k := Of(step); k.Then(step) != want[0] || k.Over(step) != want[1] {
			t.Errorf("%q: %s; %s", on, k.Then(step), k.Over(step))
		}
		s := &v1alpha1.StepStatus{Name: "s", StartedAt: bounds.Micro(epoch)}
		if o := Of(step).TimeOut(step, s, epoch); (o.Error == nil) != (on == v1alpha1.Approve) || o.Approval == nil {
			t.Errorf("%q: %+v", on, o)
		}
	}
}

// mutations: untilProblem without YearProblem, or without the creation, and Begin without Writable
// make this fail.
func TestDelay_UntilATimeThatCannotBeWritten(t *testing.T) {
	late := time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -12*60*60))
	for want, until := range map[string]time.Time{
		"":                              epoch.Add(time.Hour),
		"is not in the years":           late,
		"is before the creation of the": epoch.Add(-time.Second),
	} {
		step := &v1alpha1.Step{Name: "s", Delay: &v1alpha1.Delay{Until: &metav1.Time{Time: until}}}
		at, problem := delay.Problem(step, metav1.Time{Time: epoch})
		if !strings.Contains(problem, want) || (problem == "") != (want == "") || problem != "" && at != ".until" {
			t.Errorf("%s: %q %q, want %q", until, at, problem, want)
		}
		s := &v1alpha1.StepStatus{Name: "s"}
		delay.Begin(step, s, epoch)
		if fine := bounds.Writable(until).UTC(); !s.DelayedUntil.Time.Equal(fine) {
			t.Errorf("%s: waits until %s, want %s", until, s.DelayedUntil, fine)
		}
	}
}
