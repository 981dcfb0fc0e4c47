// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// waiting has the runs that wait for a Workflow to exist.
type waiting struct {
	mu   sync.Mutex
	runs map[types.NamespacedName]map[types.NamespacedName]bool // by Workflow
	on   map[types.NamespacedName]types.NamespacedName          // the Workflow of a run
}

func (w *waiting) note(run, workflow types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs == nil {
		w.runs, w.on = map[types.NamespacedName]map[types.NamespacedName]bool{}, map[types.NamespacedName]types.NamespacedName{}
	}
	if w.runs[workflow] == nil {
		w.runs[workflow] = map[types.NamespacedName]bool{}
	}
	w.runs[workflow][run], w.on[run] = true, workflow
}

func (w *waiting) forget(run types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	workflow, ok := w.on[run]
	if !ok {
		return
	}
	delete(w.on, run)
	if delete(w.runs[workflow], run); len(w.runs[workflow]) == 0 {
		delete(w.runs, workflow)
	}
}

// of are the runs that wait for a Workflow.
func (w *waiting) of(workflow types.NamespacedName) []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]types.NamespacedName, 0, len(w.runs[workflow]))
	for run := range w.runs[workflow] {
		all = append(all, run)
	}
	return all
}
