// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// pruneEvery is how often owners are forgotten who have nothing waiting any more.
const pruneEvery = time.Second

// Pace spreads what comes again, see the package's documentation. It is not safe for
// concurrent use.
type Pace struct {
	longest time.Duration
	next    map[string]time.Time // when the latest of an owner comes
	pruned  time.Time
}

// NewPace makes a pace whose waits are at most longest.
func NewPace(longest time.Duration) *Pace {
	return &Pace{longest: longest, next: map[string]time.Time{}}
}

// Wait is after which time something of an owner may come again, when all that comes takes the
// receiver so long as cost says. It is at least cost. The rate holds while no owner has more
// waiting than fits into longest.
func (p *Pace) Wait(owner string, cost time.Duration, now time.Time) time.Duration {
	if now.Sub(p.pruned) >= pruneEvery {
		p.prune(now)
	}
	at := p.next[owner]
	if at.Before(now) {
		at = now
	}
	p.next[owner] = at // counts, also if it is its first
	at = at.Add(cost * time.Duration(len(p.next)))
	if latest := now.Add(p.longest); at.After(latest) {
		at = latest
	}
	p.next[owner] = at
	return at.Sub(now)
}

func (p *Pace) prune(now time.Time) {
	p.pruned = now
	for owner, at := range p.next {
		if at.Before(now) {
			delete(p.next, owner)
		}
	}
}
