// SPDX-License-Identifier: Apache-2.0

package views_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/console/views"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// pageOf is the page of a run with one step.
func pageOf(s v1alpha1.StepStatus) views.Run {
	run := &v1alpha1.WorkflowRun{}
	run.Spec.Steps = []v1alpha1.Step{{Name: s.Name, Job: &v1alpha1.Job{Topic: "t"}}}
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Steps: []v1alpha1.StepStatus{s}}
	return views.RunOf(&facts.Run{Stored: run, Run: run}, now)
}

// mutation: bar without the items that wait for locks makes this fail.
func TestItemsThatWaitForLocksAreInTheBar(t *testing.T) {
	t.Parallel()
	page := pageOf(v1alpha1.StepStatus{Name: "all", Phase: v1alpha1.StepRunning, ForEach: &v1alpha1.ForEachStatus{
		Total: 16, Begun: 12, Succeeded: 4, Groups: []v1alpha1.ItemGroup{{Items: "4-7", Phase: v1alpha1.StepRunning}, {Items: "8-11", Phase: v1alpha1.StepPending}},
	}})
	width, said := 0, []string{}
	for _, part := range page.Steps[0].Bar {
		width += part.W
		said = append(said, part.Text)
	}
	if got := strings.Join(said, ", "); width != 160 || got != "4 succeeded, 4 running, 4 waiting for locks, 4 to begin" {
		t.Errorf("%d wide: %s", width, got)
	}
}

// mutation: an error that is cut as the tree cuts it, or that is there twice, makes this fail.
func TestALongErrorOfAStepIsShownWhole(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 100) + "the end"
	for message, want := range map[string]string{"no such file": "", "": "", long: "E42: " + long} {
		page := pageOf(v1alpha1.StepStatus{Name: "fetch", Phase: v1alpha1.StepFailed, Error: &v1alpha1.StepError{Code: "E42", Message: message}})
		if got := page.Steps[0].Error; got != want {
			t.Errorf("%q: %q", message, got)
		}
		if !strings.Contains(page.Steps[0].Why, "E42") {
			t.Errorf("%q: why is %q", message, page.Steps[0].Why)
		}
	}
}

// mutations: cells that are good whoever owns them, and RunOf without the Lease, make this fail.
func TestAnOwnerThatIsDeadDrivesNothing(t *testing.T) {
	t.Parallel()
	claims := make([]ownership.Claim, ownership.Partitions)
	for p := range claims {
		claims[p].Owner = "alive"
	}
	const uid = "u-1"
	mine := protocol.Partition(uid)
	claims[mine].Owner = "dead"
	lease := func(name string, ago time.Duration) coordinationv1.Lease {
		l := coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: now.Add(-ago)}}}
		l.Name = ownership.LeasePrefix + name
		return l
	}
	dead := lease("dead", time.Hour)
	page := views.ReplicasOf(facts.Owners{Claims: claims, Leases: []coordinationv1.Lease{lease("alive", time.Second), dead}}, nil, now)
	for p, cell := range page.Partitions {
		if bad := p == mine; (cell.Tone == "bad") != bad || strings.Contains(cell.Title, "has not renewed its Lease in time") != bad {
			t.Errorf("partition %d: %+v", p, cell)
		}
	}
	old := views.ReplicasOf(facts.Owners{Claims: claims, Leases: []coordinationv1.Lease{lease("alive", 20*time.Second), lease("dead", 20*time.Second)}}, nil, now)
	for _, r := range old.Replicas { // the user's clock is 18 s ahead
		if !strings.Contains(r.Remarks, "if the clock here is right") {
			t.Errorf("%+v", r)
		}
	}
	run := &v1alpha1.WorkflowRun{}
	run.UID = uid
	r := facts.Run{Stored: run, Run: run, Owner: runview.Owner{Claims: claims}}
	leads := lease("", time.Second)
	leads.Spec.HolderIdentity = new("pod-l")
	lapsed := lease("alive", time.Second)
	lapsed.Annotations = map[string]string{ownership.UnfitAnnotation: ownership.UnfitProbation}
	if r := views.ReplicasOf(facts.Owners{Leases: []coordinationv1.Lease{lapsed}}, nil, now).Replicas[0]; !r.Bad || !strings.Contains(r.Remarks, "has lost its Lease too often") {
		t.Errorf("who lapses again and again: %+v", r)
	}
	if why := views.ReplicasOf(facts.Owners{Claims: claims, Leader: &leads}, nil, now).Why; !strings.Contains(why, "pod-l drives all runs") {
		t.Errorf("with a leader: %q", why)
	}
	for want, l := range map[string]*coordinationv1.Lease{"replica dead drives the run": nil, "nobody drives the run": &dead} {
		r.Owner.Lease = l
		if said := fmt.Sprint(views.RunOf(&r, now).Why.Facts); !strings.Contains(said, want) {
			t.Errorf("no %q: %s", want, said)
		}
	}
}

// mutations: RunOf without Unread makes this fail, and so does one that tells of
// locks without runs.
func TestARunWaitsThoughOthersCannotBeRead(t *testing.T) {
	t.Parallel()
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunQueued}}
	page := views.RunOf(&facts.Run{Stored: run, Run: run, Unread: errors.New("no time")}, now)
	var said []string
	for _, f := range page.Why.Facts {
		said = append(said, f.About+": "+f.Text)
	}
	if !slices.Contains(said, "others: the other runs under way could not be read: no time") || page.Why.Summary == "" {
		t.Errorf("%q: %q", page.Why.Summary, said)
	}
}

// mutation: RunOf that leaves Missing out, or says that events may not be seen, makes this fail.
func TestAPageSaysWhatOfARunCouldNotBeRead(t *testing.T) {
	t.Parallel()
	run := &v1alpha1.WorkflowRun{}
	why := errors.New("list events: no time")
	page := views.RunOf(&facts.Run{Stored: run, Run: run, NoEvents: why, Missing: []error{why}}, now)
	if !slices.Equal(page.Missing, []string{why.Error()}) || page.NoEvents != "They could not be read." {
		t.Errorf("missing %q, events %q", page.Missing, page.NoEvents)
	}
}

// mutation: seeOthers that takes the runs of one namespace for all makes this fail.
func TestAPlaceAmongTheRunsOfOneNamespaceIsNotCalledOneOfAll(t *testing.T) {
	t.Parallel()
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunQueued, Tenant: "acme", Admission: &v1alpha1.AdmissionStatus{QueuedAt: &metav1.Time{Time: now}}}}
	for all, want := range map[bool]string{true: "place 1 of 1 in line now", false: "at least place 1 in line now"} {
		page := views.RunOf(&facts.Run{Stored: run, Run: run, Others: []v1alpha1.WorkflowRun{*run}, All: all}, now)
		if said := fmt.Sprint(page.Why.Facts); !strings.Contains(said, want) || strings.Contains(said, "at least") == all {
			t.Errorf("all %t: %s", all, said)
		}
	}
}

// mutation: seeOthers without Tops makes this fail.
func TestThePlaceOfAChildRunIsThatOfTheRunAtTheTopAfterItsEnd(t *testing.T) {
	t.Parallel()
	waits := func(name string, priority int32) v1alpha1.WorkflowRun {
		run := v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now)}}
		run.Spec.Priority = priority
		run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunQueued, Admission: &v1alpha1.AdmissionStatus{
			LockWait: &v1alpha1.LocksWait{Lock: "mutex:team/x", StartedAt: metav1.NewTime(now)},
		}}
		return run
	}
	child, other, top := waits("child", 0), waits("another", 1), waits("top", 2)
	child.Status.Parent = &v1alpha1.ParentStatus{Name: "top", Root: "top"}
	r := facts.Run{Stored: &child, Run: &child, Others: []v1alpha1.WorkflowRun{child, other}, All: true, Tops: runview.Tops{Ended: []v1alpha1.WorkflowRun{top}}}
	if said := fmt.Sprint(views.RunOf(&r, now).Why.Facts); !strings.Contains(said, "place 1 of 2 for it") {
		t.Errorf("it says %s", said)
	}
}
