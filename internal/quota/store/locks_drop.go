// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"
)

// Dropping is a ticket to take from what it has.
type Dropping struct {
	// Ticket is its ID.
	Ticket string
	// Seen is a version at which the run was seen, or written, without the hold: a grant
	// of an older version can never be written. "": the run or the step is over, which
	// never changes back. PlaceOnly: what it holds stays.
	Seen string
}

// PlaceOnly is a version that no grant is older than.
const PlaceOnly = "0"

// mostDroppings is how many tickets one call of the script is given: an answer of Redis is bounded,
// and so is what it has to read.
const mostDroppings = 256

// Dropped is what became of Droppings.
type Dropped struct {
	// Wake is who can have their locks now. One may be in it more than once.
	Wake []Wake
	// Holds is how many were dropped, and Ended how long each lock was held by those
	// that were over. It is not known of those whose fence is ahead of Redis' clock.
	Holds int
	Ended []Ended
}

// Ended is a hold of a lock that is over.
type Ended struct {
	Lock string
	Held time.Duration
}

// DropLocks takes from tickets what they have: holds as Dropping says, and places always, but that
// of who was superseded only when it is over. Idempotent. It asks in portions, since all of Redis
// waits for a script. Without tickets it asks only whether the data is open.
//
// Errors: as TakeLocks; after one of Redis it must be repeated, or the resync does it. After an
// error some were dropped, as the answer says; whom that lets go on is in it.
func (g *Store) DropLocks(ctx context.Context, all ...Dropping) (Dropped, error) {
	var d Dropped
	args, err := droppingArgs(all)
	if err != nil {
		return d, err
	}
	for more := true; more; more = len(args) > 0 {
		portion := args[:min(len(args), 2*mostDroppings)]
		got, err := g.ask(ctx, g.scripts.locksDrop, locksKey, g.lockKeys(), portion...)
		if err != nil {
			return d, err
		}
		g.learn(g.lockKeys()[0], got)
		d.add(got)
		looked := 2 * got.number(5)
		if looked > len(portion) || looked == 0 && len(portion) > 0 {
			return d, g.unavailable(locksKey, fmt.Errorf("the script looked at %d of %d tickets", looked/2, len(portion)/2))
		}
		args = args[looked:]
	}
	return d, nil
}

// add adds what became of a portion.
func (d *Dropped) add(got reply) {
	d.Holds += got.number(1)
	d.Wake = append(d.Wake, wakesOf(got.list(3))...)
	for ended := got.list(4); len(ended) > 1; ended = ended[2:] {
		d.Ended = append(d.Ended, Ended{Lock: ended.text(0), Held: time.Duration(ended.number(1)) * time.Millisecond})
	}
}

func droppingArgs(all []Dropping) ([]any, error) {
	args := make([]any, 0, 2*len(all))
	for _, d := range all {
		seen := ""
		if d.Seen != "" {
			var err error
			if seen, err = paddedVersion(d.Seen); err != nil {
				return nil, err
			}
		}
		if !word(d.Ticket) {
			return nil, fmt.Errorf("%w: ticket %.100q", ErrInvalidRequest, d.Ticket)
		}
		args = append(args, d.Ticket, seen)
	}
	return args, nil
}
