// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// model is what the slots of one key are meant to be, in plain words of Go.
type model struct {
	open     bool
	token    string // of the rebuild that is under way
	slots    map[string]bool
	queue    []Run // in order
	reserved map[string]time.Duration
	now      time.Duration
	window   int
}

func newModel(window int) *model {
	return &model{slots: map[string]bool{}, reserved: map[string]time.Duration{}, window: window}
}

func (m *model) flush() {
	now := m.now
	*m = *newModel(m.window)
	m.now = now
}

func inOrder(x, y Run) int {
	return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(x.Created.Unix(), y.Created.Unix()), cmp.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID))
}

func (m *model) expire() {
	maps.DeleteFunc(m.reserved, func(_ string, end time.Duration) bool { return end <= m.now })
}

func (m *model) release(uid string) bool {
	before := len(m.queue)
	m.queue = slices.DeleteFunc(m.queue, func(r Run) bool { return r.UID == uid })
	return len(m.queue) < before
}

func (m *model) take(uid string) {
	m.release(uid)
	delete(m.reserved, uid)
	m.slots[uid] = true
}

func (m *model) answer(limit int) Answer {
	return Answer{Limit: limit, Used: len(m.slots), Waiting: len(m.queue), Reserved: len(m.reserved)}
}

// awake are those in the queue who can be admitted now, and are woken for that.
func (m *model) awake(limit int) []Run {
	room := limit - len(m.slots) - len(m.reserved)
	if limit < 0 {
		room = m.window
	}
	return m.queue[:min(max(0, room), m.window, len(m.queue))]
}

// comes is the last of those who are woken, if there may be more who can be admitted, or if
// one of them moved away.
func (m *model) comes(a Answer, moved bool) []Next {
	awake := m.awake(a.Limit)
	if len(awake) == 0 || !moved && len(awake) < m.window {
		return nil
	}
	return nextUp(awake[len(awake)-1].UID)
}

func (m *model) admit(limit int, r Run) Answer {
	m.expire()
	moved := slices.ContainsFunc(m.queue, func(w Run) bool { return w.UID == r.UID && inOrder(w, r) != 0 })
	_, reserved := m.reserved[r.UID]
	delete(m.reserved, r.UID)
	in := m.slots[r.UID] || limit < 0 || reserved && len(m.slots) < limit
	if !in {
		m.release(r.UID)
		m.queue = append(m.queue, r)
		slices.SortFunc(m.queue, inOrder)
	}
	rank := slices.IndexFunc(m.queue, func(w Run) bool { return w.UID == r.UID })
	if in || rank < limit-len(m.slots)-len(m.reserved) {
		again := m.slots[r.UID]
		m.take(r.UID)
		a := m.answer(limit)
		if a.Admitted = true; !again {
			a.Next = m.comes(a, false)
			return a
		}
		for _, w := range m.awake(a.Limit) { // the answer that named one of them may be lost
			a.Next = append(a.Next, nextUp(w.UID)...)
		}
		return a
	}
	a := m.answer(limit)
	a.Position = rank + 1
	if moved {
		a.Next = m.comes(a, true)
	}
	if rank > 0 {
		a.Ahead = m.queue[rank-1].Name
	}
	return a
}

func (m *model) reserve(limit int, uid string, ttl time.Duration) Answer {
	m.expire()
	ok := m.slots[uid]
	if !ok {
		taken := len(m.slots) + len(m.queue) + len(m.reserved)
		if _, mine := m.reserved[uid]; mine {
			taken--
		}
		if slices.ContainsFunc(m.queue, func(r Run) bool { return r.UID == uid }) {
			taken--
		}
		ok = limit < 0 || taken < limit
		switch {
		case ok && ttl > 0:
			m.reserved[uid] = m.now + ttl
		case ttl > 0:
			delete(m.reserved, uid)
		}
	}
	a := m.answer(limit)
	a.Admitted = ok
	return a
}

func (m *model) free(limit int, uids []string) []string {
	m.expire()
	for _, uid := range uids {
		delete(m.slots, uid)
		delete(m.reserved, uid)
		m.release(uid)
	}
	var next []string
	for _, r := range m.awake(limit) {
		next = append(next, r.UID)
	}
	return next
}

func (m *model) restore(uids []string) {
	m.expire()
	for _, uid := range uids {
		m.take(uid)
	}
}

// begin returns the token of the rebuild that is under way, which is given if there was none.
func (m *model) begin(given string) string {
	if m.open {
		return given
	}
	if m.token == "" {
		m.token = given
	}
	return m.token
}

func (m *model) finish(token string, uids []string) bool {
	if !m.open && (m.token == "" || token != m.token) {
		return false
	}
	m.open, m.token = true, ""
	m.restore(uids)
	return true
}
