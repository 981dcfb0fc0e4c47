// SPDX-License-Identifier: Apache-2.0

package expr

import "errors"

// ErrUnread says that a meter has no more to give: what it counts is not compiled to its end. It
// says nothing about the expressions.
var ErrUnread = errors.New("its expressions take too long to compile")

// Meter counts what it takes to compile many expressions, a whole spec, say: an expression of 1,000
// characters takes 2 to 12 ms as a rule and 100 ms at most, and a spec has room for 500. What an
// expression takes is counted when it is parsed, before the types of its parts are found out, which
// may take ten times as long. It is for one goroutine. A nil Meter counts nothing.
type Meter struct {
	Most  int         // cost units; 0: any number
	Pause func() bool // called for each expression, before it is checked; false: neither that one nor another is compiled; nil: never
	Once  bool        // an expression that this meter counted is not counted again while it is compiled
	took  int
	ended bool
	known map[source]bool // those that are counted, with Once
}

// more says whether another expression may be compiled.
func (m *Meter) more() bool { return m == nil || !m.ended }

// take counts a cost. Its error is ErrUnread.
func (m *Meter) take(cost int) error {
	if m == nil {
		return nil
	}
	m.took += cost
	m.ended = m.Most > 0 && m.took > m.Most || m.Pause != nil && !m.Pause()
	if m.ended {
		return ErrUnread
	}
	return nil
}

// again counts an expression that is compiled already, unless that is not wanted. Its
// error is ErrUnread.
func (m *Meter) again(p *program) error {
	if m == nil || m.known[p.source] {
		return nil
	}
	m.note(p)
	return m.take(p.cost)
}

// note says that an expression is counted.
func (m *Meter) note(p *program) {
	if m == nil || !m.Once {
		return
	}
	if m.known == nil {
		m.known = map[source]bool{}
	}
	m.known[p.source] = true
}

// first counts a cost before an error is told, which may be nil. Its error is ErrUnread, or that.
func (m *Meter) first(cost int, err error) error {
	if spent := m.take(cost); spent != nil {
		return spent
	}
	return err
}
