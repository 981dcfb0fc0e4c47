// SPDX-License-Identifier: Apache-2.0

package views

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// Run is the page of a run.
type Run struct {
	Namespace, Name, UID string
	Phase, Mark, Tone    string
	Progress             string
	Deleting             bool
	Details              []Detail
	Why                  Why
	Graph                Graph
	Timeline             Timeline
	Steps                []StepRow
	Asked                []StepRow // the approvals that wait
	Inputs, Outputs      Value
	Conditions           []Condition
	Events               []Event
	NoEvents             string   // why there are none; "": there are
	EventsNote           string   // what is not shown of them; "": all are
	Missing              []string // what could not be read of it, and is not on the page
	Can                  Can
}

// Detail is a fact about the run as a whole.
type Detail struct {
	Name, Text string
	Path       string // a page that says more; "": none
	Moment     Moment
}

// Why says what the run waits for, or how it ended.
type Why struct {
	Summary, Reason string
	Since           Moment
	Facts           []Fact
	Next            string
}

// Fact is one thing that has to do with it.
type Fact struct {
	About, Text string
	Step        string // the step that it is about; "": none
}

// Can is what may be asked of the run now. Whether the user has the right, the API server says.
type Can struct {
	Cancel, Terminate, Suspend, Resume, Rerun bool
	EndChildren                               bool // terminate it for its child runs: it has ended
}

// Condition is one of status.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         Moment
}

// Event is one of the API server.
type Event struct {
	Warning              bool
	Reason, Message, Who string
	Last                 Moment
	Count                int32
}

// RunOf makes the page of a run.
func RunOf(r *facts.Run, now time.Time) Run {
	run := r.Run
	st := run.Status
	if st == nil {
		st = &v1alpha1.WorkflowRunStatus{}
	}
	tree := runview.TreeOf(run, now, r.Children...)
	answer := runview.Why(run, r.Policies, now, r.Children...)
	seeOthers(&answer, r, now)
	if !answer.Ended {
		answer.Owned(r.Owner, string(run.UID), now)
	}
	page := Run{
		Namespace: run.Namespace, Name: run.Name, UID: string(run.UID), Phase: string(tree.Phase), Mark: Mark(string(tree.Phase)),
		Tone: Tone(string(tree.Phase)), Progress: tree.Progress, Deleting: run.DeletionTimestamp != nil, Why: whyOf(answer, now),
		Graph: GraphOf(run, tree), Timeline: TimelineOf(run, tree, now), Inputs: valueOf(run.Spec.Inputs, nil), Outputs: valueOf(st.Outputs, st.OutputsRef),
	}
	page.Details = details(run, st, tree, now)
	page.Steps = stepRows(run, st, tree)
	for _, s := range page.Steps {
		if s.Approval != nil && s.Approval.Waits {
			page.Asked = append(page.Asked, s)
		}
	}
	page.Conditions = conditions(st, now)
	page.Events, page.NoEvents = events(r.Events, now)
	if r.NoEvents != nil {
		page.NoEvents = "They could not be read."
	}
	page.EventsNote = eventsNote(r)
	for _, err := range r.Missing {
		page.Missing = append(page.Missing, text(err.Error()))
	}
	page.Can = can(run, st)
	return page
}

// seeOthers adds what a run waits for that others have.
func seeOthers(answer *runview.Answer, r *facts.Run, now time.Time) {
	if r.Unread != nil {
		answer.Alone(r.Unread)
		return
	}
	if r.Others != nil && answer.Phase == v1alpha1.RunQueued {
		answer.Stands(runview.PlaceOf(r.Run, r.Others, r.Policies, r.All))
	}
	if runview.WaitsForLocks(r.Run) {
		answer.WaitsFor(runview.Locks(runview.LockSight{
			Runs: r.Others, Tops: r.Tops, Semaphores: r.Semaphores, Whole: r.All, Now: now, Outlines: true, Run: r.Run,
		}))
	}
}

func whyOf(a runview.Answer, now time.Time) Why {
	w := Why{Summary: text(a.Summary), Reason: shortText(a.Reason), Since: moment(a.Since, now), Next: text(a.NextLine(now))}
	for _, f := range a.Facts {
		fact := Fact{About: shortText(f.About), Text: text(f.Line(now))}
		if name, ok := stepOf(f.About); ok {
			fact.Step = name
		}
		w.Facts = append(w.Facts, fact)
	}
	return w
}

func stepOf(about string) (string, bool) {
	const prefix = "step "
	if len(about) > len(prefix) && about[:len(prefix)] == prefix {
		return about[len(prefix):], true
	}
	return "", false
}

func details(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus, tree runview.Tree, now time.Time) []Detail {
	all := []Detail{
		{Name: "Created", Moment: moment(&run.CreationTimestamp.Time, now)},
		{Name: "Tenant", Text: cmp.Or(shortText(st.Tenant), "not known yet")},
		{Name: "Class", Text: shortText(run.Spec.WorkloadClass)},
	}
	if st.StartedAt != nil && st.CompletedAt != nil {
		all = append(all, Detail{Name: "Took", Text: span(st.CompletedAt.Sub(st.StartedAt.Time))})
	}
	policy := Detail{Name: "Policy", Text: "built-in defaults"}
	if p := st.Policy; p != nil {
		policy = Detail{Name: "Policy", Text: fmt.Sprintf("%s, generation %d", p.Name, p.Generation), Path: "policies#" + p.Name}
		if p.Trial != nil {
			policy.Text += fmt.Sprintf(", in the %s of %s", words(string(p.Trial.Arm)), shortText(p.Trial.Candidate))
		}
	}
	all = append(all, policy)
	if w := st.Workflow; w != nil {
		all = append(all, Detail{Name: "Workflow", Text: w.Name + " at " + cut(w.Revision, 12)})
	}
	if p := run.ClaimsParent(); p != nil {
		all = append(all, Detail{Name: "Child of", Text: p.Name, Path: "runs/" + run.Namespace + "/" + p.Name})
	}
	if tree.Fence != nil {
		all = append(all, Detail{Name: "Last writer", Text: fmt.Sprintf("%s, fence %d", cmp.Or(tree.Holder, "not known"), *tree.Fence)})
	}
	for _, l := range st.Locks {
		all = append(all, Detail{Name: "Holds", Text: fmt.Sprintf("%s, permits %d, fence %d", shortText(l.Name), l.Permits, l.Fence), Path: "tenants#semaphores"})
	}
	return all
}

func conditions(st *v1alpha1.WorkflowRunStatus, now time.Time) []Condition {
	var all []Condition
	for i := range st.Conditions {
		c := &st.Conditions[i]
		all = append(all, Condition{c.Type, string(c.Status), shortText(c.Reason), text(c.Message), moment(&c.LastTransitionTime.Time, now)})
	}
	return all
}

func events(list []corev1.Event, now time.Time) ([]Event, string) {
	if list == nil {
		return nil, "You may not list the events of this namespace."
	}
	if len(list) == 0 {
		return nil, "There are none. The API server keeps events for an hour."
	}
	var all []Event
	for i := range list {
		e := &list[i]
		at := facts.EventTime(e)
		count := max(1, e.Count)
		if e.Series != nil {
			count = e.Series.Count
		}
		all = append(all, Event{
			e.Type == corev1.EventTypeWarning, shortText(e.Reason), text(e.Message),
			shortText(cmp.Or(e.ReportingInstance, e.Source.Component)), moment(&at, now), count,
		})
	}
	return all, ""
}

// eventsNote says which events are left out.
func eventsNote(r *facts.Run) string {
	switch {
	case r.EventsUnread:
		return "There are more events than the console reads: newer ones may be missing. kubectl events has all of them."
	case r.EventsLeft:
		return "These are the newest. Older ones are left out."
	}
	return ""
}

// can says what makes sense to ask.
func can(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus) Can {
	child := run.ClaimsParent() != nil
	terminate := run.Spec.Shutdown != v1alpha1.ShutdownTerminate
	switch {
	case run.DeletionTimestamp != nil:
		return Can{Rerun: !child}
	case st.CompletedAt != nil:
		return Can{EndChildren: terminate && runview.HasChildren(run), Rerun: !child}
	}
	return Can{
		Cancel: run.Spec.Shutdown == "", Terminate: terminate,
		Suspend: !run.Spec.Suspend, Resume: run.Spec.Suspend, Rerun: !child,
	}
}
