// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/syncopate-dev/syncopate/internal/addresses"
)

// How often the API server is asked about tokens: of all addresses, of one, and about those that
// were good not long ago.
var (
	ofAll  = addresses.Rate{PerSecond: 5, AtOnce: 20}
	ofOne  = addresses.Rate{PerSecond: 1, AtOnce: 5}
	ofGood = addresses.Rate{PerSecond: 5, AtOnce: 20}
)

// limits bound the questions to the API server. Whoever sends many tokens does not use up what is
// left for others: an address has its share, and tokens that were good have a limit of their own.
type limits struct {
	good   *rate.Limiter
	others *addresses.Limits

	mu      sync.Mutex
	origins map[string]*origin
}

// origin is an address that a good token came from. One that is rotated comes from there, too, and
// does not stand in line with those of all.
type origin struct {
	one   *rate.Limiter
	until time.Time
}

func newLimits() *limits {
	return &limits{good: ofGood.Limiter(), others: addresses.New(ofAll, ofOne), origins: map[string]*origin{}}
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
		l.origins[address] = &origin{one: ofOne.Limiter()}
	}
	l.origins[address].until = now.Add(goodFor)
}

// allow says whether the API server may be asked now about a token that an address sent. wasGood:
// it was good not long ago.
func (l *limits) allow(address string, wasGood bool, now time.Time) bool {
	if wasGood {
		return l.good.AllowN(now, 1)
	}
	if one := l.ofOrigin(address, now); one != nil {
		return one.AllowN(now, 1) && l.good.AllowN(now, 1)
	}
	return l.others.Allow(address, now)
}

// ofOrigin is the limit of an address that a good token came from; nil: none came from it.
func (l *limits) ofOrigin(address string, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.origins[address]; o != nil && now.Before(o.until) {
		return o.one
	}
	return nil
}
