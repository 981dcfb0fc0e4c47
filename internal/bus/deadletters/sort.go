// SPDX-License-Identifier: Apache-2.0

package deadletters

import (
	"context"
	"time"
)

// maxRefused is how many letters are shown of those that a redrive refuses.
const maxRefused = 100

// Sorting is how letters are sorted.
type Sorting struct {
	Force bool          // as of Redrivable
	Limit int           // of those that may be redriven
	For   time.Duration // how long it looks, but at one letter at least; 0: to the end
}

// Sorted are letters by what a redrive may do with them. Who sends forged results fills the stream
// with letters that nothing can be done with: they must not stand in front of the others.
type Sorted struct {
	Redrivable []Letter
	Refused    []Letter // the oldest ones, at most maxRefused
	Hopeless   int      // how many are refused
	Rest       int      // not looked at, since there were enough of the first, or no time was left
}

// Sort looks for letters that f picks and that may be redriven, the oldest first. It has the errors
// of List.
func (d *Store) Sort(ctx context.Context, f Filter, o Sorting) (s Sorted, err error) {
	looking := ctx
	if o.For > 0 {
		var cancel context.CancelFunc
		looking, cancel = context.WithTimeout(ctx, o.For)
		defer cancel()
	}
	s.Rest, err = d.each(ctx, f, func(l Letter) bool {
		l.header = nil // there may be many letters, with headers as large as whoever sent them likes
		if d.Redrivable(l, o.Force) == nil {
			s.Redrivable = append(s.Redrivable, l)
		} else if s.Hopeless++; len(s.Refused) < maxRefused {
			s.Refused = append(s.Refused, l)
		}
		return len(s.Redrivable) < o.Limit && looking.Err() == nil
	})
	if err != nil {
		return Sorted{}, err
	}
	return s, nil
}
