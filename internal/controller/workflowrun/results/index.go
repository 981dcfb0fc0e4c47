package results

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Index maps the UID of each run that this process has seen to its name: results name runs by UID.
// It also keeps what is needed to clean up after a deleted run. One entry per existing run, fed by
// the informer's events.
type Index struct {
	mu      sync.Mutex
	known   map[types.UID]entry
	deleted map[types.NamespacedName][]Tombstone
	// families are the runs that claim to be children of others.
	families family
}

// entry is what is kept of each existing run.
type entry struct {
	key   types.NamespacedName
	phase string
	newer bool // needs a newer operator
	// parent is the UID of the run whose child an unfinished run claims to be; "" if it does not.
	parent string
}

// NewIndex makes an empty index.
func NewIndex() *Index {
	return &Index{known: map[types.UID]entry{}, deleted: map[types.NamespacedName][]Tombstone{}, families: family{}}
}

// See records a run as the informer or a pass saw it.
func (x *Index) See(run *v1alpha1.WorkflowRun) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.known[run.UID] = entry{
		key: types.NamespacedName{Namespace: run.Namespace, Name: run.Name}, phase: phaseOf(run), newer: run.NeedsNewer() > 0, parent: x.related(run),
	}
}

// Find returns the name of a run.
func (x *Index) Find(uid types.UID) (types.NamespacedName, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.known[uid]
	return e.key, ok
}

// CountPhases returns the number of runs in each phase.
func (x *Index) CountPhases() map[string]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	counts := map[string]int{}
	for _, e := range x.known {
		counts[e.phase]++
	}
	return counts
}

// CountNewer returns the number of runs that need a newer operator.
func (x *Index) CountNewer() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, e := range x.known {
		if e.newer {
			n++
		}
	}
	return n
}

// Remove records that a run was deleted; TakeDeleted hands its tombstone to the next pass.
func (x *Index) Remove(run *v1alpha1.WorkflowRun) {
	key := types.NamespacedName{Namespace: run.Namespace, Name: run.Name}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unrelated(run.UID)
	delete(x.known, run.UID)
	x.deleted[key] = append(x.deleted[key], entomb(run))
}

// Forget takes out a run which was entered again after its removal.
func (x *Index) Forget(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unrelated(uid)
	delete(x.known, uid)
}

// TakeDeleted hands out, once, the tombstones of runs of a name.
func (x *Index) TakeDeleted(key types.NamespacedName) []Tombstone {
	x.mu.Lock()
	defer x.mu.Unlock()
	gone := x.deleted[key]
	delete(x.deleted, key)
	return gone
}

// PutBack returns tombstones whose clean-up has to be tried again.
func (x *Index) PutBack(key types.NamespacedName, gone []Tombstone) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.deleted[key] = append(x.deleted[key], gone...)
}

// NotEnded are the runs that have not ended. The cache may lag, so one that it calls new may have
// dispatched jobs; an end is for ever.
func (x *Index) NotEnded() []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	var keys []types.NamespacedName
	for _, e := range x.known {
		switch v1alpha1.RunPhase(e.phase) {
		case v1alpha1.RunSucceeded, v1alpha1.RunFailed, v1alpha1.RunCancelled, v1alpha1.RunTimedOut:
		default:
			keys = append(keys, e.key)
		}
	}
	return keys
}
