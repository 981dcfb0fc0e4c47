// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How often the API server is asked about tokens, after some at once: anybody who reaches the port
// can send them.
const (
	// Of all addresses, and of one.
	allPerSecond, allAtOnce = 5, 20
	onePerSecond, oneAtOnce = 1, 5
	// About tokens that were good not long ago.
	goodPerSecond, goodAtOnce = 5, 20
	maxAddresses              = 1024
)

// limits bound the questions to the API server. Whoever sends many tokens does not use up what is
// left for others: an address has its share, and tokens that were good have a limit of their own.
type limits struct {
	good *rate.Limiter

	mu      sync.Mutex
	all     *rate.Limiter
	by      map[string]*rate.Limiter
	origins map[string]*origin
}

// origin is an address that a good token came from. One that is rotated comes from there, too, and
// does not stand in line with those of all.
type origin struct {
	one   *rate.Limiter
	until time.Time
}

func newLimits() *limits {
	return &limits{
		good: rate.NewLimiter(goodPerSecond, goodAtOnce), all: rate.NewLimiter(allPerSecond, allAtOnce),
		by: map[string]*rate.Limiter{}, origins: map[string]*origin{},
	}
}

// welcome notes that a good token came from an address.
func (l *limits) welcome(address string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.origins[address] == nil {
		if len(l.origins) >= maxKept {
			maps.DeleteFunc(l.origins, func(_ string, o *origin) bool { return !now.Before(o.until) })
		}
		if len(l.origins) >= maxKept {
			return
		}
		l.origins[address] = &origin{one: rate.NewLimiter(onePerSecond, oneAtOnce)}
	}
	l.origins[address].until = now.Add(goodFor)
}

// allow says whether the API server may be asked now about a token that an address sent. wasGood:
// it was good not long ago.
func (l *limits) allow(address string, wasGood bool, now time.Time) bool {
	if wasGood {
		return l.good.AllowN(now, 1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.origins[address]; o != nil && now.Before(o.until) {
		return o.one.AllowN(now, 1) && l.good.AllowN(now, 1)
	}
	one := l.by[address]
	if one == nil {
		if len(l.by) >= maxAddresses {
			l.forget(now)
		}
		if len(l.by) >= maxAddresses {
			return false
		}
		one = rate.NewLimiter(onePerSecond, oneAtOnce)
		l.by[address] = one
	}
	return one.AllowN(now, 1) && l.all.AllowN(now, 1)
}

// forget lets go of the addresses that have not asked for a while: they would have all that they
// may ask at once again.
func (l *limits) forget(now time.Time) {
	for address, one := range l.by {
		if one.TokensAt(now) >= oneAtOnce {
			delete(l.by, address)
		}
	}
}
