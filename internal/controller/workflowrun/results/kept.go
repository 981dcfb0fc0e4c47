// SPDX-License-Identifier: Apache-2.0

package results

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

const (
	// causePatience is how long a result waits in the inbox whose attempt was dispatched ahead of
	// status: the result that it follows from is on its way, too.
	causePatience = 3 * time.Second
	// causeWait is the wait, in NATS, after that.
	causeWait = 5 * time.Second
)

// errCauseMissing is why a result goes back to NATS whose attempt follows from a result that has
// not come again.
var errCauseMissing = errors.New("the result that its attempt follows from has not come again")

// Journal says that attempts may have been dispatched ahead of status. A result of such an attempt
// waits for its cause, for as long as the run goes on: that is no failure.
func (x *Batch) Journal() { x.journal = true }

// awaitCause lets a result wait for the one that its attempt follows from.
func (x *Batch) awaitCause(p *Pending) *Settlement {
	if until := p.Since.Add(causePatience); until.After(x.all.Clock.Now()) {
		x.readyAt = pacing.Earliest(x.readyAt, until)
		return nil
	}
	back := x.GiveBack(p, causeWait+time.Duration(x.all.Spread()*float64(causeWait)), bus.ClassCauseAwaited, errCauseMissing)
	return &back
}

// Keep notes the verdicts of a decision that is not written yet, and which results it takes for
// unusable, and says how many wait for its write. Nothing is settled: whoever takes the run over
// needs these results.
func (x *Batch) Keep(d *lifecycle.Decision) int {
	n := len(x.kept)
	for i, v := range d.Verdicts {
		p := x.apply[i]
		if p.Delivery == nil || v == lifecycle.Ahead || v == lifecycle.Waiting {
			continue
		}
		p.Kept, p.rejected = v, d.Rejected[i]
		n++
	}
	return n
}

// Covered says that the decision is written: what was kept for it is settled with the rest.
func (x *Batch) Covered() { x.covered = true }

// HasFound says whether some were found in the stream, and not delivered.
func (x *Batch) HasFound() bool {
	return slices.ContainsFunc(x.apply, func(p *Pending) bool { return p.Delivery == nil })
}

// settleKept are the settlements of what was kept for a decision that is written now, and how many
// of them were applied by it.
func (x *Batch) settleKept() (list []Settlement, applied int) {
	if !x.covered {
		return nil, 0
	}
	for _, p := range x.kept {
		if p.Kept == lifecycle.Applied {
			applied++
			x.countApplied(p)
		}
		p.Fact.Rejected = cmp.Or(p.rejected, p.Fact.Rejected)
		if s, _ := x.verdict(p, p.Kept, nil); s != nil { // Ahead and Waiting are never kept
			list = append(list, *s)
		}
	}
	x.kept, x.covered = nil, false
	return list, applied
}
