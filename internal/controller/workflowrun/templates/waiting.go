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
	on   map[types.NamespacedName]waits
}

// waits is a run that waits, and the Workflow that it waits for.
type waits struct {
	uid      types.UID
	workflow types.NamespacedName
}

func (w *waiting) note(run types.NamespacedName, uid types.UID, workflow types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if was, ok := w.on[run]; ok && was.workflow != workflow { // that was of another run of its name
		w.drop(run, was.workflow)
	}
	if w.runs == nil {
		w.runs, w.on = map[types.NamespacedName]map[types.NamespacedName]bool{}, map[types.NamespacedName]waits{}
	}
	if w.runs[workflow] == nil {
		w.runs[workflow] = map[types.NamespacedName]bool{}
	}
	w.runs[workflow][run], w.on[run] = true, waits{uid, workflow}
}

// forget forgets a run, and no other of its name.
func (w *waiting) forget(run types.NamespacedName, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	is, ok := w.on[run]
	if !ok || is.uid != uid {
		return
	}
	w.drop(run, is.workflow)
}

// drop takes out a run. w.mu is held.
func (w *waiting) drop(run, workflow types.NamespacedName) {
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
