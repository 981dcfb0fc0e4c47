// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/revisions"
)

// freezer refuses each patch of a run of a name.
type freezer struct {
	client.Client
	name string // "": of none
	code int32

	patches atomic.Int32 // of any run
}

func (f *freezer) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	f.patches.Add(1)
	if o.GetName() == f.name {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: f.code, Message: "a policy denied it"}}
	}
	return f.Client.Patch(ctx, o, patch, opts...)
}

// freezes has nobody change the run of a name.
func (r *replica) freezes(name string, code int32) *freezer {
	f := &freezer{Client: r.marker.Client, name: name, code: code}
	r.marker.Client = f
	return f
}

// with makes a run that is frozen later.
func (s *site) with(spec v1alpha1.WorkflowRunSpec) *v1alpha1.WorkflowRun {
	s.t.Helper()
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "frozen"}, Spec: spec}
	must(s.t, s.client.Create(s.t.Context(), run))
	return run
}

func steps(locks ...v1alpha1.LockRequest) []v1alpha1.Step {
	return []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t"}, Locks: locks}}
}

// follows makes a run of a Workflow with these locks, which is pinned.
func (s *site) follows(locks ...v1alpha1.LockRequest) *v1alpha1.WorkflowRun {
	s.t.Helper()
	w := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "w"}}
	w.Spec.Template.Steps = steps(locks...)
	must(s.t, s.client.Create(s.t.Context(), w))
	kept := revisions.Store{Live: s.client, Client: s.client, Owner: fieldOwner}
	c, err := kept.Ensure(s.t.Context(), w)
	must(s.t, err)
	run := s.with(v1alpha1.WorkflowRunSpec{WorkflowRef: &v1alpha1.WorkflowReference{Name: "w"}})
	run.Status = &v1alpha1.WorkflowRunStatus{Workflow: &v1alpha1.WorkflowRevision{Name: "w", Revision: c.Revision}}
	must(s.t, s.client.Status().Update(s.t.Context(), run))
	return run
}

// A process may have been granted locks before the loss, and write them once the run may be changed
// again.
//
// mutations: count that hands on each error, or that enters nothing, or only what status holds;
// granted that passes over items, or takes a run of a Workflow for one without locks.
func TestARunThatMayNotBeMarkedKeepsOnlyItsLocks(t *testing.T) {
	m := v1alpha1.LockRequest{Mutex: "m"}
	sem := v1alpha1.LockRequest{Semaphore: "s", Key: "k", Permits: ptr.To[int32](2)}
	for name, c := range map[string]struct {
		make func(s *site) *v1alpha1.WorkflowRun
		lock string // that it keeps, "mutex" the one of the namespace; "": none
		code int32
	}{
		"its own": {func(s *site) *v1alpha1.WorkflowRun {
			return s.with(v1alpha1.WorkflowRunSpec{Steps: steps(), Locks: []v1alpha1.LockRequest{m}})
		}, "mutex", 403},
		"those of a step":                       {func(s *site) *v1alpha1.WorkflowRun { return s.with(v1alpha1.WorkflowRunSpec{Steps: steps(sem)}) }, "s/k", 403},
		"as a conflict":                         {func(s *site) *v1alpha1.WorkflowRun { return s.with(v1alpha1.WorkflowRunSpec{Steps: steps(sem)}) }, "s/k", 409},
		"those of a step of its Workflow":       {func(s *site) *v1alpha1.WorkflowRun { return s.follows(m) }, "mutex", 403},
		"none, as its Workflow has none":        {func(s *site) *v1alpha1.WorkflowRun { return s.follows() }, "", 403},
		"those of items, and all permits of it": {func(s *site) *v1alpha1.WorkflowRun { return s.items(v1alpha1.LockRequest{Semaphore: "s"}) }, "s/", 403},
		"what status holds": {func(s *site) *v1alpha1.WorkflowRun {
			run := s.follows(m)
			run.Status.Steps = []v1alpha1.StepStatus{{Name: "a", Phase: v1alpha1.StepRunning, Locks: []v1alpha1.LockHold{{Name: "s/k", Permits: 2, Fence: 7}}}}
			must(s.t, s.client.Status().Update(s.t.Context(), run))
			return run
		}, "s/k", 403},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.semaphore("s", 2)
			r := s.replica()
			frozen := c.make(s)
			must(t, r.Resync(t.Context()))
			f := r.freezes(frozen.Name, c.code)
			s.server.FlushAll()
			must(t, r.Resync(t.Context()))
			lock := strings.ReplaceAll(c.lock, "mutex", "mutex:"+s.ns+"/m")
			other := s.run("other", nil)
			if lock != "" {
				r.takes(other, lock, store.LocksWaiting)
			}
			for i, free := range []string{"mutex:" + s.ns + "/m", "mutex:" + s.ns + "/free", "s/k", "s/"} {
				if free != lock {
					r.takes(s.run(fmt.Sprint("free-", i), nil), free, store.LocksHeld)
				}
			}
			if name == "what status holds" || lock == "" {
				return
			}
			f.name = ""
			s.clock.Step(idleTime)
			must(t, r.Resync(t.Context())) // first it is seen
			s.clock.Step(idleTime)
			must(t, r.Resync(t.Context()))
			if now := s.get(frozen.Name); now.ResourceVersion == frozen.ResourceVersion {
				t.Error("the grant of before the loss may still be written")
			}
			if a := r.takes(other, lock, store.LocksHeld); a.Fence <= s.clock.Now().Add(-patience).UnixMilli() {
				t.Errorf("fence %d", a.Fence)
			}
		})
	}
}

// A run that waited is frozen while the locks' data are lost, and thawed before it asks again.
//
// mutations: fenced that enters the locks as they are asked for: the run is told that it has what
// another holds; unmarked that counts a suspended run.
func TestARunThatMayNotBeMarkedIsNotGivenWhatAnotherHolds(t *testing.T) {
	for name, suspended := range map[string]bool{"it waits": false, "it is suspended": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			r, lock := s.replica(), "mutex:"+s.ns+"/m"
			must(t, r.Resync(t.Context()))
			holder := s.run("holder", nil)
			holds := r.takes(holder, lock, store.LocksHeld)
			holder.Status = &v1alpha1.WorkflowRunStatus{Locks: []v1alpha1.LockHold{{Name: lock, Permits: 1, Fence: holds.Fence}}}
			must(t, s.client.Status().Update(t.Context(), holder))
			frozen := s.with(v1alpha1.WorkflowRunSpec{Suspend: suspended, Steps: steps(), Locks: []v1alpha1.LockRequest{{Mutex: "m"}, {Mutex: "n"}}})
			f := r.freezes(frozen.Name, 403)
			s.server.FlushAll()
			must(t, r.Resync(t.Context()))
			n := strings.Replace(lock, "/m", "/n", 1)
			other := s.run("other", nil)
			r.takes(other, n, map[bool]string{true: store.LocksHeld, false: store.LocksWaiting}[suspended])
			f.name = ""
			if a, err := r.Take(t.Context(), frozen, "", []Request{{Name: lock, Permits: 1}, {Name: n, Permits: 1}}); err == nil && a.State == store.LocksHeld {
				t.Error("it has what another holds")
			}
			for range 3 {
				s.clock.Step(idleTime)
				must(t, r.Resync(t.Context()))
			}
			r.takes(s.get(frozen.Name), lock, store.LocksWaiting)
			r.takes(other, n, store.LocksHeld)
		})
	}
}

// Others may only wait for what a frozen run may have been granted: it may hold nothing, and a
// refusal, or to be cancelled, is for good.
//
// mutation: fenced that enters holds which are not reserved.
func TestNobodyEndsForWhatARunMayHaveBeenGranted(t *testing.T) {
	for _, kind := range []v1alpha1.OnBusy{v1alpha1.OnBusyDropNewest, v1alpha1.OnBusyCancelOldest} {
		t.Run(string(kind), func(t *testing.T) {
			s := newSite(t)
			s.semaphore("s", 1, kind)
			r, lock := s.replica(), "s/k"
			must(t, r.Resync(t.Context()))
			frozen := s.with(v1alpha1.WorkflowRunSpec{Steps: steps(v1alpha1.LockRequest{Semaphore: "s", Key: "k"})})
			f := r.freezes(frozen.Name, 403)
			s.server.FlushAll()
			must(t, r.Resync(t.Context()))
			other := s.run("other", nil)
			r.takes(other, lock, store.LocksWaiting)
			f.name = ""
			r.takes(other, lock, store.LocksWaiting)
			if now := s.get(frozen.Name); now.Spec.Shutdown != "" {
				t.Errorf("shutdown %s, for a lock that it never held", now.Spec.Shutdown)
			}
			for range 2 {
				s.clock.Step(idleTime)
				must(t, r.Resync(t.Context()))
			}
			r.takes(other, lock, store.LocksHeld)
		})
	}
}

// semaphore makes one.
func (s *site) semaphore(name string, permits int32, busy ...v1alpha1.OnBusy) {
	s.t.Helper()
	sem := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SemaphoreSpec{Permits: permits}}
	for _, kind := range busy {
		sem.Spec.OnBusy = kind
	}
	must(s.t, s.client.Create(s.t.Context(), sem))
}

// items makes a run whose items have locks.
func (s *site) items(locks ...v1alpha1.LockRequest) *v1alpha1.WorkflowRun {
	all := steps()
	all[0].ForEach = &v1alpha1.ForEach{Items: "${[1,2]}", Locks: locks}
	return s.with(v1alpha1.WorkflowRunSpec{Steps: all})
}

// What it may have been granted is nowhere to be read then: no lock is given on doubt.
//
// mutations: granted that passes over a lock with an expression, or a run that is not pinned.
func TestARunThatMayNotBeMarkedKeepsAllShutIfItsLocksAreNotKnown(t *testing.T) {
	for name, spec := range map[string]v1alpha1.WorkflowRunSpec{
		"a key of an expression":   {Steps: steps(v1alpha1.LockRequest{Semaphore: "s", Key: "${inputs.k}"})},
		"a mutex of an expression": {Steps: steps(v1alpha1.LockRequest{Mutex: "${inputs.k}"})},
		"no revision":              {WorkflowRef: &v1alpha1.WorkflowReference{Name: "w"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.semaphore("s", 1)
			r := s.replica()
			s.with(spec)
			f := r.freezes("frozen", 403)
			err := r.Resync(t.Context())
			if err == nil || !strings.Contains(err.Error(), "mark run "+s.ns+"/frozen") {
				t.Errorf("%v; want that it may not be marked", err)
			}
			f.name = ""
			must(t, r.Resync(t.Context()))
		})
	}
}

// mutations: taking that hands on the error: all locks would be looked at each second; one that
// takes the code of a conflict, or of a run that is gone, for no refusal.
func TestAHoldOfARunThatMayNotBeMarkedIsNoErrorOfAResync(t *testing.T) {
	for _, code := range []int32{403, 404, 409} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			s := newSite(t)
			r, lock := s.replica(), "mutex:"+s.ns+"/m"
			must(t, r.Resync(t.Context()))
			frozen, next := s.run("frozen", nil), s.run("next", nil)
			r.takes(frozen, lock, store.LocksHeld)
			f := r.freezes("frozen", code)
			for range 3 {
				must(t, r.Resync(t.Context()))
				s.clock.Step(idleTime)
			}
			r.takes(next, lock, store.LocksWaiting)
			f.name = ""
			s.clock.Step(refusalTime)
			for range 2 {
				must(t, r.Resync(t.Context()))
				s.clock.Step(idleTime)
			}
			r.takes(next, lock, store.LocksHeld)
		})
	}
}
