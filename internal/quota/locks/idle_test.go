// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"fmt"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// many is a run whose steps were each granted a mutex, which its status does not say.
func (r *replica) many(n int) (run *v1alpha1.WorkflowRun, locks []string) {
	r.s.t.Helper()
	var all []v1alpha1.Step
	for i := range n {
		one := steps(v1alpha1.LockRequest{Mutex: fmt.Sprint("m", i)})[0]
		one.Name = fmt.Sprint("s", i)
		all, locks = append(all, one), append(locks, "mutex:"+r.s.ns+"/m"+fmt.Sprint(i))
	}
	run = r.s.with(v1alpha1.WorkflowRunSpec{Steps: all})
	for i, lock := range locks {
		a, err := r.Take(r.s.t.Context(), run, all[i].Name, []Request{{Name: lock, Permits: 1}})
		if err != nil || a.State != store.LocksHeld {
			r.s.t.Fatalf("%+v, %v", a, err)
		}
	}
	return run, locks
}

// Each try to mark a run is some requests, and all locks wait for the resync that makes them.
//
// mutations: takeBack that marks a run for each ticket, that remembers no refusal, that remembers
// it for good, or that takes one ticket only.
func TestARunIsMarkedOnceForAllThatItKeeps(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	run, locks := r.many(5)
	f := r.freezes(run.Name, 403)
	const each = 2 // an annotation, and a label
	marks := func(want int32) {
		t.Helper()
		must(t, r.Resync(t.Context()))
		if got := f.patches.Swap(0); got != want {
			t.Errorf("%d patches, want %d", got, want)
		}
	}
	marks(0)
	s.clock.Step(idleTime)
	marks(each)
	for range 4 {
		s.clock.Step(idleTime)
		marks(0)
	}
	s.clock.Step(refusalTime)
	marks(each)
	f.name = ""
	marks(0)
	s.clock.Step(refusalTime)
	marks(1)
	for i, lock := range locks {
		r.takes(s.run(fmt.Sprint("next-", i), nil), lock, store.LocksHeld)
	}
}

// mutation: takeBack that marks one run after the other.
func TestRunsThatKeepWhatIsIdleAreMarkedSideBySide(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	for i := range 4 {
		r.takes(s.run(fmt.Sprint("run-", i), nil), fmt.Sprintf("mutex:%s/%d", s.ns, i), store.LocksHeld)
	}
	must(t, r.Resync(t.Context()))
	together := &meeting{Client: r.marker.Client}
	together.all.Add(4)
	r.marker.Client = together
	s.clock.Step(idleTime)
	bounded, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	must(t, r.Resync(bounded))
	r.takes(s.run("next", nil), "mutex:"+s.ns+"/3", store.LocksHeld)
}
