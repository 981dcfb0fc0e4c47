// SPDX-License-Identifier: Apache-2.0

package liveness

import (
	"cmp"
	"slices"
	"time"
)

// rows is how many questions must say the same before it is told.
const rows = 2

// topic is what is known of a topic, and who watches it.
//
// Invariant: it is in the queue, or being asked about, and never both.
type topic[K comparable] struct {
	keys   map[K]uint64 // with the order of their coming
	owner  string       // who began it, and has its place
	due    time.Time    // of the next question
	memory memory
	told   State

	row      Kind // what the last questions said
	rowSince time.Time
	rowLen   int
}

// hear takes the answer to a question. It tells whether the state changed.
func (t *topic[K]) hear(v verdict, w Workers) (changed bool) {
	if v.kind != t.row || t.rowLen == 0 {
		t.row, t.rowSince, t.rowLen = v.kind, v.since, 0
	}
	t.rowLen = min(t.rowLen+1, rows)
	if changed = t.rowLen == rows && t.row != t.told.Kind; changed {
		t.told.Kind, t.told.Since = t.row, t.rowSince
	}
	switch {
	case t.told.Kind == Unknown:
		t.told.Queued, t.told.Busy = 0, 0
	case v.kind != Unknown:
		t.told.Queued, t.told.Busy = w.Queued, w.Busy
	}
	return changed
}

// oldestFirst gives the keys in the order of their coming.
func (t *topic[K]) oldestFirst() []K {
	keys := make([]K, 0, len(t.keys))
	for key := range t.keys {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b K) int { return cmp.Compare(t.keys[a], t.keys[b]) })
	return keys
}
