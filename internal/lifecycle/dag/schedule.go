// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"container/heap"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// Schedule hands out the steps that may begin, in spec order. It reads their status as it changes.
type Schedule struct {
	plan    *Plan
	steps   []v1alpha1.StepStatus
	finally bool
	ready   byIndex
	waiting []int // by step: how many dependencies it still waits for
}

// Schedule is that of the steps at a moment; finally: the steps of spec.finally have their turn.
func (p *Plan) Schedule(steps []v1alpha1.StepStatus, finally bool, now time.Time) *Schedule {
	q := &Schedule{plan: p, steps: steps, finally: finally, waiting: make([]int, len(steps))}
	for i := range steps {
		s := &steps[i]
		for _, j := range p.Deps[i] {
			if !p.Lets(j, steps[j].Phase) {
				q.waiting[i]++
			}
		}
		if s.Phase == v1alpha1.StepBackingOff && bounds.Due(now, s.NextAttemptAt) || q.startable(i) {
			heap.Push(&q.ready, i)
		}
	}
	return q
}

// startable says whether a pending step waits for no other.
func (q *Schedule) startable(i int) bool {
	return q.steps[i].Phase == v1alpha1.StepPending && q.waiting[i] == 0 &&
		!q.plan.Broken[i] && q.plan.IsFinally(i) == q.finally
}

// Next takes the first step that may begin; not ok: there is none.
func (q *Schedule) Next() (i int, ok bool) {
	if q.ready.Len() == 0 {
		return 0, false
	}
	i = q.ready[0]
	heap.Pop(&q.ready)
	return i, true
}

// Release lets those begin that wait for a step which is over, and for no other.
func (q *Schedule) Release(i int) {
	if !q.plan.Lets(i, q.steps[i].Phase) {
		return
	}
	for _, j := range q.plan.Dependents[i] {
		q.waiting[j]--
		if q.startable(j) {
			heap.Push(&q.ready, j)
		}
	}
}

// byIndex is a heap of steps in spec order.
type byIndex []int

func (h byIndex) Len() int           { return len(h) }
func (h byIndex) Less(a, b int) bool { return h[a] < h[b] }
func (h byIndex) Swap(a, b int)      { h[a], h[b] = h[b], h[a] }

// Push adds a step; heap.Interface.
func (h *byIndex) Push(x any) {
	if i, ok := x.(int); ok {
		*h = append(*h, i)
	}
}

// Pop removes the last one; heap.Interface.
func (h *byIndex) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
