// SPDX-License-Identifier: Apache-2.0

package expr

import "errors"

// ErrUnread says that a meter has no more to give: what it counts is not compiled to its end. It
// says nothing about the expressions.
var ErrUnread = errors.New("its expressions take too long to compile")

// Meter counts what it takes to compile many expressions, a whole spec, say: an expression of 1,000
// characters may take 12 ms, and a spec has room for 500. It is for one goroutine. A nil Meter
// counts nothing.
type Meter struct {
	Most  int    // cost units; 0: any number
	Pause func() // called after each expression; nil: never
	took  int
}

// take counts a cost. Its error is ErrUnread.
func (m *Meter) take(cost int) error {
	if m == nil {
		return nil
	}
	if m.took += cost; m.Most > 0 && m.took > m.Most {
		return ErrUnread
	}
	if m.Pause != nil {
		m.Pause()
	}
	return nil
}
