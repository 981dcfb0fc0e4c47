// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"fmt"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

// mutations: one limiter for all addresses, addresses that are never forgotten, and a map without a
// bound make this fail.
func TestWhoAsksTooOftenKeepsNobodyElseOut(t *testing.T) {
	norace.Only(t)
	t.Parallel()
	one := Rate{PerSecond: 5, AtOnce: 40}
	l, now := New(Rate{PerSecond: 20, AtOnce: 100}, one), time.Unix(1e9, 0)
	allowed := 0
	for range 1000 {
		if l.Allow("10.0.0.1", now) {
			allowed++
		}
	}
	if allowed != one.AtOnce {
		t.Errorf("%d of one address, want %d", allowed, one.AtOnce)
	}
	if !l.Allow("10.0.0.2", now) {
		t.Error("another one is kept out")
	}
	for i := range 10 * most {
		l.Allow(fmt.Sprint("of a flood ", i), now)
	}
	if len(l.by) != most || l.Allow("new", now) {
		t.Errorf("%d addresses are remembered", len(l.by))
	}
	if later := now.Add(time.Minute); !l.Allow("new", later) || len(l.by) != 1 {
		t.Errorf("after a minute of rest nobody new is let in; %d are remembered", len(l.by))
	}
}

// mutation: Allow that does not ask for the limit of all makes this fail.
func TestAllAddressesHaveALimitTogether(t *testing.T) {
	t.Parallel()
	l, now, allowed := New(Rate{PerSecond: 20, AtOnce: 100}, Rate{PerSecond: 5, AtOnce: 40}), time.Unix(1e9, 0), 0
	for i := range 500 {
		if l.Allow(fmt.Sprint(i), now) {
			allowed++
		}
	}
	if allowed != 100 {
		t.Errorf("%d of 500 addresses", allowed)
	}
}
