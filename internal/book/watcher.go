// SPDX-License-Identifier: Apache-2.0

package book

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Watcher checks what each status write shows beside its effects: that no fence goes back or is of
// two leases (I3), and that no more runs are admitted than a limit (I4). It notes when effects were
// seen. Its See is for Follow.
type Watcher struct {
	ledger *Ledger
	limit  int

	mu       sync.Mutex
	admitted map[string]bool
	leases   map[string]string // by run and fence
	wrong    []string
	effects  []time.Time
	applied  int
}

// NewWatcher passes what it sees on to a ledger. limit is of runs that are under way.
func NewWatcher(l *Ledger, limit int) *Watcher {
	return &Watcher{ledger: l, limit: limit, admitted: map[string]bool{}, leases: map[string]string{}}
}

// See takes one write: a version of a run, the one before it (nil: none), and when it was seen.
func (w *Watcher) See(was, next *v1alpha1.WorkflowRun, at time.Time) {
	w.ledger.See(was, next)
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.ledger.Applied(); n > w.applied {
		w.applied = n
		w.effects = append(w.effects, at)
	}
	if next.Unwritten() {
		return
	}
	w.fences(was, next)
	if a := next.Status.Admission; a != nil && a.AdmittedAt != nil && next.Status.CompletedAt == nil {
		w.admitted[next.Name] = true
	} else {
		delete(w.admitted, next.Name)
	}
	if len(w.admitted) > w.limit {
		w.wrong = append(w.wrong, fmt.Sprintf("I4: %d runs are admitted, the limit is %d", len(w.admitted), w.limit))
	}
}

// fences is I3.
func (w *Watcher) fences(was, next *v1alpha1.WorkflowRun) {
	if next.Status.Fence == nil {
		return
	}
	if was != nil && !was.Unwritten() && was.Status.Fence != nil && *was.Status.Fence > *next.Status.Fence {
		w.wrong = append(w.wrong, fmt.Sprintf("I3: the fence of %s went from %d to %d", next.Name, *was.Status.Fence, *next.Status.Fence))
	}
	if l := next.Status.Lock; l != nil {
		key := fmt.Sprintf("%s/%d", next.Name, *next.Status.Fence)
		if other := w.leases[key]; other != "" && other != l.LeaseID {
			w.wrong = append(w.wrong, fmt.Sprintf("I3: leases %s and %s wrote under %s", other, l.LeaseID, key))
		}
		w.leases[key] = l.LeaseID
	}
}

// Wrong is all that was wrong so far.
func (w *Watcher) Wrong() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.wrong)
}

// Stall is the longest time without an effect, from begin to the last one.
func (w *Watcher) Stall(begin time.Time) time.Duration {
	return w.StallUntil(begin, begin)
}

// StallUntil is the longest time without an effect, from begin to end.
func (w *Watcher) StallUntil(begin, end time.Time) (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.effects {
		if at.Before(begin) {
			continue
		}
		longest = max(longest, at.Sub(begin))
		begin = at
	}
	return max(longest, end.Sub(begin))
}
