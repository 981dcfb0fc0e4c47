// SPDX-License-Identifier: Apache-2.0

package access

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How often the API server is asked whose token it is: of all addresses, and of one.
const (
	allPerSecond = 20
	allBurst     = 100
	onePerSecond = 5
	oneBurst     = 40
	maxAddresses = 1024
)

// limits bound the reviews of tokens. An address that asks too often does not use up what others
// may ask.
type limits struct {
	mu  sync.Mutex
	all *rate.Limiter
	by  map[string]*rate.Limiter
}

func newLimits() *limits {
	return &limits{all: rate.NewLimiter(allPerSecond, allBurst), by: map[string]*rate.Limiter{}}
}

// allow says whether an address may have a token reviewed now.
func (l *limits) allow(address string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.by[address]
	if one == nil {
		if len(l.by) >= maxAddresses {
			l.forget(now)
		}
		if len(l.by) >= maxAddresses {
			return false
		}
		one = rate.NewLimiter(onePerSecond, oneBurst)
		l.by[address] = one
	}
	return one.AllowN(now, 1) && l.all.AllowN(now, 1)
}

// forget lets go of the addresses that have not asked for a while: they would have all of their
// burst again.
func (l *limits) forget(now time.Time) {
	for address, one := range l.by {
		if one.TokensAt(now) >= oneBurst {
			delete(l.by, address)
		}
	}
}
