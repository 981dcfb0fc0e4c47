// SPDX-License-Identifier: Apache-2.0

package results

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Index maps the UID of each run that this process has seen to its name: results name runs by UID.
// It also keeps what is needed to clean up after a deleted run. One entry per existing run, fed by
// the informer's events.
type Index struct {
	mu        sync.Mutex
	known     map[types.UID]entry
	uids      map[types.NamespacedName]types.UID
	deleted   map[types.NamespacedName][]Tombstone
	elsewhere elsewhere
	gone      gone
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
	return &Index{known: map[types.UID]entry{}, uids: map[types.NamespacedName]types.UID{}, deleted: map[types.NamespacedName][]Tombstone{}, families: family{}}
}

// See records a run as the informer or a pass saw it.
func (x *Index) See(run *v1alpha1.WorkflowRun) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := types.NamespacedName{Namespace: run.Namespace, Name: run.Name}
	x.uids[key] = run.UID
	x.known[run.UID] = entry{
		key: key, phase: phaseOf(run), newer: run.NeedsNewer() > 0, parent: x.related(run),
	}
}

// Find returns the name of a run.
func (x *Index) Find(uid types.UID) (types.NamespacedName, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.known[uid]
	return e.key, ok
}

// UID returns the UID of the run of a name.
func (x *Index) UID(key types.NamespacedName) (types.UID, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	uid, ok := x.uids[key]
	return uid, ok
}

// In are the UIDs and names of the runs in partitions.
func (x *Index) In(partitions map[int]bool) map[types.UID]types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	in := map[types.UID]types.NamespacedName{}
	for uid, e := range x.known {
		if partitions[protocol.Partition(string(uid))] {
			in[uid] = e.key
		}
	}
	return in
}

// Count returns the number of runs in each phase, and of those that need a newer operator, among
// the runs that this process drives.
func (x *Index) Count(drives func(types.UID) bool) (phases map[string]int, newer int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	phases = map[string]int{}
	for uid, e := range x.known {
		if !drives(uid) {
			continue
		}
		phases[e.phase]++
		if e.newer {
			newer++
		}
	}
	return phases, newer
}

// Remove records that a run was deleted. Where this process drove it, TakeDeleted hands its
// tombstone to the next pass. Else Adopt does, if this process drives its partition later.
func (x *Index) Remove(run *v1alpha1.WorkflowRun, driven bool) {
	key := types.NamespacedName{Namespace: run.Namespace, Name: run.Name}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.out(run.UID)
	x.gone.add(run.UID)
	if driven {
		x.deleted[key] = append(x.deleted[key], entomb(run))
		return
	}
	x.elsewhere.add(grave{key, entomb(run)})
}

// Forget takes out a run which was entered again after its removal.
func (x *Index) Forget(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.out(uid)
}

// out takes out a run. x.mu is held.
func (x *Index) out(uid types.UID) {
	x.unrelated(uid)
	if key := x.known[uid].key; x.uids[key] == uid {
		delete(x.uids, key)
	}
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

// PutBack returns a tombstone whose clean-up has to be tried again.
func (x *Index) PutBack(key types.NamespacedName, gone Tombstone) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.deleted[key] = append(x.deleted[key], gone)
}

// NotEnded are the runs that have not ended. The cache may lag, so one that it calls new may have
// dispatched jobs; an end is for ever.
func (x *Index) NotEnded() []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	var keys []types.NamespacedName
	for _, e := range x.known {
		if !e.ended() {
			keys = append(keys, e.key)
		}
	}
	return keys
}

// Adopted are the names of runs by how soon a new owner has to look at them.
type Adopted struct {
	Waiting []types.NamespacedName // have no status, or none of their steps has begun
	Running []types.NamespacedName
	Ended   []types.NamespacedName
}

// Adopted are the runs in partitions.
func (x *Index) Adopted(partitions map[int]bool) (a Adopted) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for uid, e := range x.known {
		switch {
		case !partitions[protocol.Partition(string(uid))]:
		case e.ended():
			a.Ended = append(a.Ended, e.key)
		case v1alpha1.RunPhase(e.phase) == v1alpha1.RunRunning:
			a.Running = append(a.Running, e.key)
		default:
			a.Waiting = append(a.Waiting, e.key)
		}
	}
	return a
}

func (e entry) ended() bool {
	switch v1alpha1.RunPhase(e.phase) {
	case v1alpha1.RunSucceeded, v1alpha1.RunFailed, v1alpha1.RunCancelled, v1alpha1.RunTimedOut:
		return true
	default:
		return false
	}
}
