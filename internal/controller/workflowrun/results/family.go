// SPDX-License-Identifier: Apache-2.0

package results

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

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

// ChildrenOf are the names of the unfinished runs that claim to be children of a run.
func (x *Index) ChildrenOf(uid types.UID) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.families[string(uid)]))
}

// related keeps the entry of a run among the children of the parent that it claims. The
// index is locked.
func (x *Index) related(run *v1alpha1.WorkflowRun) (parent string) {
	if claim := run.ClaimsParent(); claim != nil && !lifecycle.Finished(run) {
		parent = claim.UID
		x.families.add(parent, run.UID, run.Name)
	}
	if was := x.known[run.UID].parent; was != "" && was != parent {
		x.families.remove(was, run.UID)
	}
	return parent
}

// unrelated takes a run out. The index is locked.
func (x *Index) unrelated(uid types.UID) {
	if was := x.known[uid].parent; was != "" {
		x.families.remove(was, uid)
	}
}
