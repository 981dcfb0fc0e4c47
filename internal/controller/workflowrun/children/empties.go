// SPDX-License-Identifier: Apache-2.0

package children

import (
	"slices"
	"sync"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
)

// empties are the turns that have a place no pass has come for yet, by namespace, the first ones
// first. There are as many as places, at most.
type empties struct {
	mu sync.Mutex
	by map[string][]*turn // none without
}

// empties are those of the runs that this one creates children of.
func (c *Children) empties() *empties {
	c.empty.CompareAndSwap(nil, &empties{})
	return c.empty.Load()
}

func (e *empties) add(t *turn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.by == nil {
		e.by = map[string][]*turn{}
	}
	e.by[t.namespace] = append(e.by[t.namespace], t)
}

// drop forgets a turn, if it is there.
func (e *empties) drop(t *turn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.by[t.namespace], t); i >= 0 {
		e.cut(t.namespace, i)
	}
}

// take has the first turn of a namespace lose its place, and its run look again: that is late now.
// Nil: all places are in use.
func (e *empties) take(namespace string) *shares.Ticket {
	for t := e.first(namespace); t != nil; t = e.first(namespace) {
		if ticket := t.lose(); ticket != nil { // else it was used, or given up, just now
			t.wake()
			return ticket
		}
	}
	return nil
}

// first takes out the first turn of a namespace; nil: there is none.
func (e *empties) first(namespace string) *turn {
	e.mu.Lock()
	defer e.mu.Unlock()
	line := e.by[namespace]
	if len(line) == 0 {
		return nil
	}
	first := line[0]
	e.cut(namespace, 0)
	return first
}

// cut takes one out. e.mu is held.
func (e *empties) cut(namespace string, i int) {
	if e.by[namespace] = slices.Delete(e.by[namespace], i, i+1); len(e.by[namespace]) == 0 {
		delete(e.by, namespace)
	}
}
