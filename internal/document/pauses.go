// SPDX-License-Identifier: Apache-2.0

package document

import "math"

const (
	// bytesBetween is how much text is read or written between two pauses: some milliseconds' work.
	bytesBetween = 256 << 10
	// comparesBetween is how many keys of comparedBytes are compared between two of them.
	comparesBetween = 32 << 10
	comparedBytes   = 64
)

// pauses are those of one pass over a text.
type pauses struct {
	pause func()
	next  int // where in the text
}

// pausing is with a function that is called now and then; nil: none is.
func pausing(pause func()) pauses {
	if pause == nil {
		return pauses{next: math.MaxInt}
	}
	return pauses{pause, bytesBetween}
}

// at is small enough to be part of whoever calls it.
func (p *pauses) at(i int) {
	if i >= p.next {
		p.take(i)
	}
}

func (p *pauses) take(i int) {
	p.next = i + bytesBetween
	p.pause()
}
