// SPDX-License-Identifier: Apache-2.0

package results

import "k8s.io/apimachinery/pkg/types"

// maxGone bounds the deleted runs whose UIDs are remembered, in some 3 MiB. Results may come late
// of any of them, and to find out of a run that is not remembered costs a list of all runs.
const maxGone = 20_000

// gone remembers the UIDs of the runs that were deleted last.
type gone struct {
	known map[types.UID]struct{}
	order []types.UID // a ring
	next  int         // where the oldest is, once the ring is full
}

func (g *gone) add(uid types.UID) {
	if _, known := g.known[uid]; known {
		return
	}
	if g.known == nil {
		g.known = map[types.UID]struct{}{}
	}
	if len(g.order) < maxGone {
		g.order = append(g.order, uid)
	} else {
		delete(g.known, g.order[g.next])
		g.order[g.next] = uid
		g.next = (g.next + 1) % maxGone
	}
	g.known[uid] = struct{}{}
}

// Gone says whether a run is known to be deleted. No other run ever has its UID; but it is back if
// the API server's data was restored from a copy, so who was seen since is not gone. A result that
// comes before a restored run is seen, and waits longer than OrphanPatience, is acknowledged: then
// its job is found to be lost.
func (x *Index) Gone(uid types.UID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, gone := x.gone.known[uid]
	_, back := x.known[uid]
	return gone && !back
}

// NoteGone notes that a live list lacked a run that was there once.
func (x *Index) NoteGone(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gone.add(uid)
}
