// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// ranked makes a run of a priority; under a run at the top, if it names one.
func (s *site) ranked(name string, priority int32, top string) *v1alpha1.WorkflowRun {
	s.t.Helper()
	run := s.run(name, nil)
	run.Spec.Priority = priority
	must(s.t, s.client.Update(s.t.Context(), run))
	if top != "" {
		run.Status = &v1alpha1.WorkflowRunStatus{Parent: &v1alpha1.ParentStatus{Name: top, UID: "u-" + top, Root: top}}
		must(s.t, s.client.Status().Update(s.t.Context(), run))
	}
	return run
}

// A hot-fix whose deploy step is in a child run waited behind all others, and batch runs went
// before others by wrapping their steps in one.
//
// mutations: Take that goes by the priority of the child; standingOf that takes the child's own
// where the run at the top is gone.
func TestAChildRunStandsInLineWhereTheRunAtTheTopDoes(t *testing.T) {
	s := newSite(t)
	r, lock := s.replica(), "mutex:"+s.ns+"/m"
	must(t, r.Resync(t.Context()))
	s.ranked("urgent", 1000, "")
	s.ranked("batch", -1000, "")
	holder := s.run("holder", nil)
	r.takes(holder, lock, store.LocksHeld)
	line := []*v1alpha1.WorkflowRun{
		s.ranked("of-batch", 0, "batch"), s.ranked("of-nobody", 1_000_000, "gone"), s.ranked("other", 5, ""), s.ranked("of-urgent", 0, "urgent"),
	}
	for _, run := range line {
		r.takes(run, lock, store.LocksWaiting)
	}
	for _, next := range []int{3, 2, 1, 0} {
		must(t, r.Drop(t.Context(), store.Dropping{Ticket: string(holder.UID)}))
		if !r.wakes(line[next]) {
			t.Fatalf("%s is not next", line[next].Name)
		}
		holder = line[next]
		r.takes(holder, lock, store.LocksHeld)
	}
}

// mutations: standingOf with the age of the child, one that believes a run of the name that is
// younger than the child, and one that takes an error for an absence.
func TestWhereAChildRunStandsInLine(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	child := &v1alpha1.WorkflowRun{}
	child.Namespace, child.Name, child.Spec.Priority, child.CreationTimestamp = "ns", "child", 7, metav1.NewTime(began)
	child.Status = &v1alpha1.WorkflowRunStatus{Parent: &v1alpha1.ParentStatus{Name: "mid", UID: "u-mid", Root: "top"}}
	orphan := child.DeepCopy()
	orphan.Status.Parent.Root = ""
	top := func(created time.Time) *v1alpha1.WorkflowRun {
		run := &v1alpha1.WorkflowRun{}
		run.Namespace, run.Name, run.Spec.Priority, run.CreationTimestamp = "ns", "top", 1000, metav1.NewTime(created)
		return run
	}
	gone := apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), "top")
	for name, c := range map[string]struct {
		run, top *v1alpha1.WorkflowRun
		err      error
		priority int32
		created  time.Time
	}{
		"no child":                             {run: top(began), priority: 1000, created: began},
		"under an older run":                   {run: child, top: top(began.Add(-time.Hour)), priority: 1000, created: began.Add(-time.Hour)},
		"of the second in which that was made": {run: child, top: top(began), priority: 1000, created: began},
		"whose run at the top is gone":         {run: child, err: gone, created: began},
		"and was made anew":                    {run: child, top: top(began.Add(time.Second)), created: began},
		"whose run at the top is not known":    {run: orphan, created: began},
		"that cannot be read":                  {run: child, err: errTop},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := standingOf(t.Context(), &reading{run: c.top, err: c.err}, c.run)
			if at.priority != c.priority || !at.created.Equal(c.created) || errors.Is(err, errTop) != errors.Is(c.err, errTop) {
				t.Errorf("%+v, %v; want %d, %s", at, err, c.priority, c.created)
			}
		})
	}
}

var errTop = errors.New("away")

// reading is a cache with one run at the top.
type reading struct {
	client.Reader // none: nothing else may be asked
	run           *v1alpha1.WorkflowRun
	err           error
}

func (r *reading) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if r.err != nil {
		return r.err
	}
	if key != client.ObjectKeyFromObject(r.run) {
		return errors.New("another is read: " + key.String())
	}
	r.run.DeepCopyInto(into.(*v1alpha1.WorkflowRun)) //nolint:errcheck,forcetypeassert // nothing else is read
	return nil
}

// A child run that comes at eleven, under a run of two o'clock, is later than a run of ten.
//
// mutations: Take without Came, and with that of the run at the top.
func TestAChildRunThatComesLastIsTheLatest(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	s.semaphore("latest", 1, v1alpha1.OnBusyKeepLatest)
	must(t, r.Resync(t.Context()))
	began := time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC)
	at := func(name, top string, created time.Time) *v1alpha1.WorkflowRun {
		run := s.ranked(name, 0, top)
		run.CreationTimestamp = metav1.NewTime(created)
		return run
	}
	s.ranked("top", 0, "")
	r.Controller.client = aged{Client: s.client, name: "top", created: began}
	r.takes(at("holder", "", began), "latest/k", store.LocksHeld)
	waits := at("waits", "", began.Add(8*time.Hour))
	r.takes(waits, "latest/k", store.LocksWaiting)
	r.takes(at("child", "top", began.Add(9*time.Hour)), "latest/k", store.LocksWaiting)
	r.takes(waits, "latest/k", store.LocksSuperseded)
}

// aged is a client that has a run of another age.
type aged struct {
	client.Client
	name    string
	created time.Time
}

func (a aged) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	err := a.Client.Get(ctx, key, into, opts...)
	if key.Name == a.name {
		into.SetCreationTimestamp(metav1.NewTime(a.created))
	}
	return err
}
