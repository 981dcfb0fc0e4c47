package workflowrun

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// directory maps the UID of each run that this process has seen to its name: results name runs by UID. It also keeps what is
// needed to clean up after a deleted run. One entry per existing run, fed by the informer's events.
type directory struct {
	mu      sync.Mutex
	known   map[types.UID]entry
	deleted map[types.NamespacedName][]remains
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

// remains is what a deleted run may have left with NATS and its workers.
type remains struct {
	uid  types.UID
	jobs []lifecycle.Withdrawal
	// outputs are the names of its objects in the object store. Those of which status does not know are left to the janitor.
	outputs []string
	// tenant and key are of the idempotency key that it may own; key "": none.
	tenant, key string
	// stay is where it has a slot or a place in line; nil: nowhere.
	stay *stay
}

func newDirectory() *directory {
	return &directory{known: map[types.UID]entry{}, deleted: map[types.NamespacedName][]remains{}, families: family{}}
}

// see records a run as the informer or a pass saw it.
func (d *directory) see(run *v1alpha1.WorkflowRun) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[run.UID] = entry{
		key: types.NamespacedName{Namespace: run.Namespace, Name: run.Name}, phase: phaseOf(run), newer: run.NeedsNewer() > 0, parent: d.related(run),
	}
}

// find returns the name of a run.
func (d *directory) find(uid types.UID) (types.NamespacedName, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.known[uid]
	return e.key, ok
}

// countPhases returns the number of runs in each phase.
func (d *directory) countPhases() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := map[string]int{}
	for _, e := range d.known {
		counts[e.phase]++
	}
	return counts
}

// countNewer returns the number of runs that need a newer operator.
func (d *directory) countNewer() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, e := range d.known {
		if e.newer {
			n++
		}
	}
	return n
}

// remove records that a run was deleted; takeDeleted hands its remains to the next pass.
func (d *directory) remove(run *v1alpha1.WorkflowRun) {
	key := types.NamespacedName{Namespace: run.Namespace, Name: run.Name}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unrelated(run.UID)
	delete(d.known, run.UID)
	d.deleted[key] = append(d.deleted[key], remainsOf(run))
}

func remainsOf(run *v1alpha1.WorkflowRun) remains {
	left := remains{uid: run.UID, jobs: lifecycle.InFlightJobs(run), outputs: outputsOf(run), stay: stayOf(run)}
	if run.Status != nil && run.Status.Tenant != "" {
		left.tenant, left.key = run.Status.Tenant, run.Spec.IdempotencyKey
	}
	return left
}

// forget takes out a run which was entered again after its removal.
func (d *directory) forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unrelated(uid)
	delete(d.known, uid)
}

func (d *directory) takeDeleted(key types.NamespacedName) []remains {
	d.mu.Lock()
	defer d.mu.Unlock()
	gone := d.deleted[key]
	delete(d.deleted, key)
	return gone
}

// putBack returns remains whose clean-up has to be tried again.
func (d *directory) putBack(key types.NamespacedName, gone []remains) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deleted[key] = append(d.deleted[key], gone...)
}
