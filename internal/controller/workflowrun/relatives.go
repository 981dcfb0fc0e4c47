package workflowrun

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// wakeRelatives wakes the parent and the children of a run when it is created (was nil), changed, or gone (now nil), if that is of
// interest to them. It is called when the cache has it.
func (r *Reconciler) wakeRelatives(q workqueue.TypedRateLimitingInterface[reconcile.Request], was, now *v1alpha1.WorkflowRun) {
	run := now
	if run == nil {
		run = was
	}
	wake := func(name string) {
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: run.Namespace, Name: name}})
	}
	if claim := run.ClaimsParent(); claim != nil && concernsParent(was, now) {
		wake(claim.Name)
	}
	switch {
	case was == nil: // its children have events of their own
	case now == nil || others(was) != others(now):
		for _, name := range r.directory.childrenOf(run.UID) {
			wake(name)
		}
	default:
		for _, name := range changedChildren(was, now) {
			wake(name)
		}
	}
}

// concernsParent says whether an event of a child is of interest to its parent: it is new, has ended, or is gone.
func concernsParent(was, now *v1alpha1.WorkflowRun) bool {
	return was == nil || now == nil || lifecycle.Finished(was) != lifecycle.Finished(now)
}

// toAll is what all children of a run want to know of it.
type toAll struct {
	suspend  bool
	shutdown v1alpha1.ShutdownMode
	phase    string
}

func others(run *v1alpha1.WorkflowRun) toAll {
	return toAll{suspend: run.Spec.Suspend, shutdown: run.Spec.Shutdown, phase: phaseOf(run)}
}

// changedChildren are the children whose steps changed: they got the child's uid, or ended.
func changedChildren(was, now *v1alpha1.WorkflowRun) []string {
	if now.Status == nil {
		return nil
	}
	var names []string
	for i := range now.Status.Steps {
		s := &now.Status.Steps[i]
		if s.ChildRun == nil {
			continue
		}
		if was.Status != nil && i < len(was.Status.Steps) {
			if old := &was.Status.Steps[i]; old.Phase == s.Phase && old.ChildRun != nil && *old.ChildRun == *s.ChildRun {
				continue
			}
		}
		names = append(names, s.ChildRun.Name)
	}
	return names
}

// family is which unfinished runs claim to be children of a run, by its UID.
type family map[string]map[types.UID]string

func (f family) add(parent string, uid types.UID, name string) {
	if f[parent] == nil {
		f[parent] = map[types.UID]string{}
	}
	f[parent][uid] = name
}

func (f family) remove(parent string, uid types.UID) {
	delete(f[parent], uid)
	if len(f[parent]) == 0 {
		delete(f, parent)
	}
}

// childrenOf are the names of the unfinished runs that claim to be children of a run.
func (d *directory) childrenOf(uid types.UID) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.families[string(uid)]))
}

// related keeps the entry of a run among the children of the parent that it claims. The directory is locked.
func (d *directory) related(run *v1alpha1.WorkflowRun) (parent string) {
	if claim := run.ClaimsParent(); claim != nil && !lifecycle.Finished(run) {
		parent = claim.UID
		d.families.add(parent, run.UID, run.Name)
	}
	if was := d.known[run.UID].parent; was != "" && was != parent {
		d.families.remove(was, run.UID)
	}
	return parent
}

// unrelated takes a run out. The directory is locked.
func (d *directory) unrelated(uid types.UID) {
	if was := d.known[uid].parent; was != "" {
		d.families.remove(was, uid)
	}
}
