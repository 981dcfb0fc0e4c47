// SPDX-License-Identifier: Apache-2.0

package share

// runPart is the part of what is free that one run may hold: one in so many.
const runPart = 2

// Room is a bounded store, in places or bytes, see the package's documentation. It is not safe
// for concurrent use.
type Room struct {
	limit, used int64
	byRun       map[string]int64
	byTenant    map[string]int64
}

// NewRoom makes a room with so many places or bytes.
func NewRoom(limit int64) *Room {
	return &Room{limit: limit, byRun: map[string]int64{}, byTenant: map[string]int64{}}
}

// Take takes n for a run of a tenant, or says that there is no room for it now. The tenant "" is
// nobody's, and has no share of its own: its runs share the room as runs. What is larger than the
// room is taken if that is empty, or it could never come in.
func (r *Room) Take(tenant, run string, n int64) bool {
	free := r.limit - r.used
	if r.used > 0 && (n > free || !within(r.byRun[run], n, free/runPart) || tenant != "" && !within(r.byTenant[tenant], n, free)) {
		return false
	}
	r.Add(tenant, run, n)
	return true
}

// Add notes n that a run of a tenant holds in any case, also beyond the limit: it was taken
// elsewhere, or before the room was as small.
func (r *Room) Add(tenant, run string, n int64) {
	r.used += n
	r.byRun[run] += n
	if tenant != "" {
		r.byTenant[tenant] += n
	}
}

// within says whether who holds something may hold n more; who holds nothing may.
func within(held, n, share int64) bool { return held == 0 || held+n <= share }

// Free gives back what was taken.
func (r *Room) Free(tenant, run string, n int64) {
	r.used -= n
	reduce(r.byRun, run, n)
	if tenant != "" {
		reduce(r.byTenant, tenant, n)
	}
}

func reduce(held map[string]int64, owner string, n int64) {
	if held[owner] -= n; held[owner] <= 0 {
		delete(held, owner)
	}
}

// SetLimit changes what may be held. What is held beyond it stays.
func (r *Room) SetLimit(limit int64) { r.limit = limit }

// Used is what is held.
func (r *Room) Used() int64 { return r.used }

// Limit is what may be held.
func (r *Room) Limit() int64 { return r.limit }
