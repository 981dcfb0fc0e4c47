// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutation: a bound that is told as a count, or a count of the topic as that of a job, makes
// a row fail.
func TestWhatNATSTellsOfAJob(t *testing.T) {
	for want, s := range map[string]JobSight{
		"":                                     {Unanswered: 1, Again: 1, Span: 3},
		"its job was not delivered to any yet": {Stored: true, Queued: 3},
		"its job was delivered once and not answered":         {Stored: true, Unanswered: 1, Span: 4},
		"its job was delivered twice and not answered":        {Stored: true, Unanswered: 1, Again: 1, Span: 2},
		"its job was delivered 2 to 7 times and not answered": {Stored: true, Unanswered: 1, Again: 1, Span: 7},
		"its job was delivered and not answered; jobs of the topic: 3 delivered and not answered (2 more than once)": {
			Stored: true, Unanswered: 3, Again: 2, Span: 9,
		},
		"whether its job was delivered is not known; jobs of the topic: 4 not delivered, 1 delivered and not answered (0 more than once)": {
			Stored: true, Queued: 4, Unanswered: 1,
		},
	} {
		if got := s.text(); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}

// mutation: a job that is told missing right after its dispatch, where a dead letter answers it, or
// twice where NATS is away or has no room for it, makes this fail.
func TestAJobThatIsNotInNATS(t *testing.T) {
	old, fresh := now.Add(-patience-time.Second), now.Add(-patience)
	j := Job{Step: "sent", Topic: "t", Attempt: 2}
	for name, c := range map[string]struct {
		reason  string
		since   *time.Time
		letters []PutAside
		want    bool
	}{
		"it was dispatched long ago":         {since: &old, want: true},
		"it was just dispatched":             {since: &fresh},
		"nobody knows when":                  {},
		"a letter answers it":                {since: &old, letters: []PutAside{{Step: "sent", Attempt: 2}}},
		"a letter answers the one before it": {since: &old, letters: []PutAside{{Step: "sent", Attempt: 1}}, want: true},
		"the operator has no NATS":           {since: &old, reason: v1alpha1.ReasonWaitingForNATS},
		"NATS has no room for it":            {since: &old, reason: v1alpha1.ReasonWaitingForRoom},
	} {
		a := Answer{Reason: c.reason, Facts: []Fact{{About: "step sent", Text: "waits", Since: c.since}}}
		a.Missing(j, c.letters, now)
		if got := strings.Contains(a.Facts[0].Text, "waits; its job is not"); got != c.want {
			t.Errorf("%s: %q", name, a.Facts[0].Text)
		}
	}
}

// jobsRun has a step of each sort that may wait for an answer.
func jobsRun() *v1alpha1.WorkflowRun {
	step := func(name string) v1alpha1.Step {
		return v1alpha1.Step{Name: name, Job: &v1alpha1.Job{Topic: "t." + name}}
	}
	run := &v1alpha1.WorkflowRun{}
	run.Spec.Steps = []v1alpha1.Step{step("sent"), step("begun"), step("each"), step("over"), {Name: "child", Run: &v1alpha1.ChildRun{}}}
	run.Spec.Steps[2].ForEach = &v1alpha1.ForEach{}
	run.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{
		{Name: "sent", Phase: v1alpha1.StepDispatched, Attempt: 2},
		{Name: "begun", Phase: v1alpha1.StepRunning, Attempt: 1},
		{Name: "each", Phase: v1alpha1.StepRunning, ForEach: &v1alpha1.ForEachStatus{Total: 3}},
		{Name: "over", Phase: v1alpha1.StepSucceeded, Attempt: 1},
		{Name: "child", Phase: v1alpha1.StepRunning, ChildRun: &v1alpha1.ChildRunStatus{Name: "c"}},
	}}
	return run
}

// mutation: child runs, or steps that are over, asked about make this fail.
func TestTheJobsThatARunWaitsFor(t *testing.T) {
	run := jobsRun()
	want := []Job{{"sent", "t.sent", 2, false}, {"begun", "t.begun", 1, true}, {"each", "t.each", 0, true}}
	if diff := cmp.Diff(want, Jobs(run)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	run.Status.CompletedAt = &metav1.Time{Time: now}
	if got := Jobs(run); got != nil {
		t.Errorf("of a run that ended: %v", got)
	}
}

// mutation: letters of attempts before, or all letters of a step told one by one, make this fail.
func TestTheLettersThatAreAnswers(t *testing.T) {
	run := jobsRun()
	letter := func(n uint64, step, item string, attempt int32) PutAside {
		return PutAside{
			Sequence: n, StoredAt: created.Add(time.Duration(n) * time.Minute), Step: step, Item: item, Attempt: attempt, Reason: "rejected", Cause: "no\n token",
		}
	}
	a := Answer{Facts: []Fact{{About: "step sent"}, {About: "help", Text: "last"}}}
	a.Aside(Jobs(run), []PutAside{
		letter(1, "sent", "-", 1), letter(2, "sent", "-", 2), letter(3, "each", "7", 1), letter(4, "sent", "-", 9), letter(5, "over", "-", 1), letter(6, "elsewhere", "-", 1),
	})
	var got []string
	for _, f := range a.Facts {
		got = append(got, f.About+": "+f.Text)
	}
	want := []string{
		"step sent: ", "step sent: an answer of attempt 9 was put aside: dead letter 4, rejected; no token (and 1 older)",
		"step each: an answer of item 7 (attempt 1) was put aside: dead letter 3, rejected; no token", "help: last",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
