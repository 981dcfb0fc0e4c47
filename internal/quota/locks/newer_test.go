// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// later is the status of a run that needs a newer operator.
func later(steps ...v1alpha1.StepStatus) *v1alpha1.WorkflowRunStatus {
	return &v1alpha1.WorkflowRunStatus{MinWriterVersion: v1alpha1.WriterVersion + 1, Steps: steps}
}

// A newer operator may have written a hold in a way that this version does not read.
//
// mutations: hold that looks at what it reads of such a run, placeOf that takes what a place has
// become, and unread of a run that has ended, make this fail.
func TestWhatARunHasThatNeedsANewerOperatorStays(t *testing.T) {
	over := v1alpha1.StepStatus{Name: "a", Phase: v1alpha1.StepSucceeded}
	ended := later(over)
	ended.CompletedAt = &metav1.Time{}
	for name, c := range map[string]struct {
		status  *v1alpha1.WorkflowRunStatus
		ticket  string
		dropped bool
	}{
		"of a part that it does not know": {status: later(over), ticket: "r/new/thing"},
		"of an older version":             {status: later(v1alpha1.StepStatus{Name: "a", Phase: v1alpha1.StepPending}), ticket: "r/a"},
		"of a step that is over":          {status: later(over), ticket: "r/a"},
		"of a run that has ended":         {status: ended, ticket: "r/a", dropped: true},
	} {
		t.Run(name, func(t *testing.T) {
			run := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{Steps: steps(v1alpha1.LockRequest{Mutex: "m"})}, Status: c.status}
			run.UID, run.Name, run.Namespace, run.ResourceVersion = "r", "r", "ns", "10"
			runs := map[types.UID]fact{"r": factOf(run)}
			k := store.Ticket{ID: c.ticket, Version: "9"}
			held := audit(runs, store.LocksSnapshot{Holds: []store.Holding{{Ticket: k}}}, oneEach, noneRated, noneBelow)
			waits := audit(runs, store.LocksSnapshot{Waiters: []store.Waiter{{Ticket: k}}}, oneEach, noneRated, noneBelow)
			if len(held.drop) > 0 != c.dropped || len(held.idle) > 0 || len(waits.drop) > 0 != c.dropped || NeverHas(run, c.ticket) != c.dropped {
				t.Errorf("%+v, %+v, never %t", held, waits, NeverHas(run, c.ticket))
			}
			if c.dropped {
				return
			}
			if !slices.Equal(waits.places, []string{c.ticket}) || placeOf(runs["r"], c.ticket).Seen != store.PlaceOnly {
				t.Errorf("places %v, %+v", waits.places, placeOf(runs["r"], c.ticket))
			}
		})
	}
}

// needsNewer has a newer operator write a run.
func (s *site) needsNewer(run *v1alpha1.WorkflowRun, version int32) *v1alpha1.WorkflowRun {
	s.t.Helper()
	run = s.get(run.Name)
	run.Status = &v1alpha1.WorkflowRunStatus{MinWriterVersion: version}
	must(s.t, s.client.Status().Update(s.t.Context(), run))
	return run
}

// An operator that knows less writes nothing to a run, and gives its locks to nobody.
//
// mutations: marks that marks it, or counts it as one that holds what this version reads.
func TestARebuildLeavesARunAloneThatNeedsANewerOperator(t *testing.T) {
	s := newSite(t)
	r, lock := s.replica(), "mutex:"+s.ns+"/m"
	run := s.needsNewer(s.with(v1alpha1.WorkflowRunSpec{Steps: steps(v1alpha1.LockRequest{Mutex: "m"})}), v1alpha1.WriterVersion+1)
	other := s.run("other", nil)
	for range 4 {
		must(t, r.Resync(t.Context()))
		s.clock.Step(idleTime)
	}
	r.takes(other, lock, store.LocksWaiting)
	r.takes(other, "mutex:"+s.ns+"/free", store.LocksHeld)
	if now := s.get(run.Name); now.ResourceVersion != run.ResourceVersion {
		t.Error("it was written")
	}
	s.needsNewer(run, v1alpha1.WriterVersion) // the newer one is back
	must(t, r.Resync(t.Context()))
	r.takes(other, lock, store.LocksHeld)
}

// It became one between the list and the mark.
//
// mutation: marks that takes what it reads after the mark for all that the run holds.
func TestARunThatNeedsANewerOperatorSinceTheListKeepsItsLocks(t *testing.T) {
	s := newSite(t)
	r, lock := s.replica(), "mutex:"+s.ns+"/m"
	run := s.needsNewer(s.with(v1alpha1.WorkflowRunSpec{Steps: steps(v1alpha1.LockRequest{Mutex: "m"})}), v1alpha1.WriterVersion+1)
	rebuild := rebuilding{Controller: r.Controller, id: "x"}
	must(t, rebuild.count(t.Context(), fact{uid: run.UID, name: nameOf(s.ns + "/" + run.Name)}))
	if len(rebuild.granted) != 1 || rebuild.granted[0].Locks[0].Name != lock {
		t.Errorf("reserves %+v", rebuild.granted)
	}
}

// mutation: marks that opens the locks though nobody knows which the run may hold.
func TestARunThatNeedsANewerOperatorKeepsAllShutIfItsLocksAreNotKnown(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	s.needsNewer(s.with(v1alpha1.WorkflowRunSpec{Steps: steps(v1alpha1.LockRequest{Mutex: "${inputs.k}"})}), v1alpha1.WriterVersion+1)
	if err := r.Resync(t.Context()); err == nil || !strings.Contains(err.Error(), s.ns+"/frozen: it needs a newer operator") {
		t.Errorf("%v", err)
	}
}

// It is cancelled by no operator that leaves it alone: who wants its lock waits.
//
// mutation: cancel without its look at NeedsNewer.
func TestARunThatNeedsANewerOperatorIsNotCancelled(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	s.semaphore("one", 1, v1alpha1.OnBusyCancelOldest)
	must(t, r.Resync(t.Context()))
	run := s.run("holder", nil)
	r.takes(run, "one/k", store.LocksHeld)
	run = s.needsNewer(run, v1alpha1.WriterVersion+1)
	r.takes(s.run("other", nil), "one/k", store.LocksWaiting)
	if now := s.get(run.Name); now.ResourceVersion != run.ResourceVersion || now.Spec.Shutdown != "" {
		t.Errorf("it was written: %+v", now.Spec)
	}
}
