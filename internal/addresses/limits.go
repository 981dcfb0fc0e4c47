// SPDX-License-Identifier: Apache-2.0

// Package addresses bounds what requests may cause, by where they come from: anybody who reaches a
// port can send them. For example: of 20 questions a second that all may have asked, one address
// has 5, so whoever sends thousands does not use up what is left for others.
package addresses

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// most is how many addresses are remembered. New ones get nothing while all of these are busy.
const most = 1024

// Rate is how much is allowed: so much a second, and so much at once after a rest.
type Rate struct {
	PerSecond rate.Limit
	AtOnce    int
}

// Limiter has a rate.
func (r Rate) Limiter() *rate.Limiter { return rate.NewLimiter(r.PerSecond, r.AtOnce) }

// Limits are those of all addresses together, and of each. Their methods may be
// called concurrently.
type Limits struct {
	one Rate

	mu  sync.Mutex
	all *rate.Limiter
	by  map[string]*rate.Limiter
}

// New makes Limits.
func New(all, one Rate) *Limits {
	return &Limits{one: one, all: all.Limiter(), by: map[string]*rate.Limiter{}}
}

// Allow says whether an address may cause something now.
func (l *Limits) Allow(address string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.by[address]
	if one == nil {
		if len(l.by) >= most {
			l.forget(now)
		}
		if len(l.by) >= most {
			return false
		}
		one = l.one.Limiter()
		l.by[address] = one
	}
	return one.AllowN(now, 1) && l.all.AllowN(now, 1)
}

// forget lets go of the addresses that have rested: they would have all that they may have at once.
func (l *Limits) forget(now time.Time) {
	for address, one := range l.by {
		if one.TokensAt(now) >= float64(l.one.AtOnce) {
			delete(l.by, address)
		}
	}
}
