// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// mutation: one limiter for all addresses makes this fail.
func TestWhoAsksTooOftenKeepsNobodyElseOut(t *testing.T) {
	t.Parallel()
	l, now := newLimits(), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	allowed := 0
	for range 1000 {
		if l.allow("10.0.0.1", now) {
			allowed++
		}
	}
	if allowed != oneBurst {
		t.Errorf("%d of one address, want %d", allowed, oneBurst)
	}
	if !l.allow("10.0.0.2", now) {
		t.Error("another one is kept out")
	}
	for i := range 10 * maxAddresses {
		l.allow(fmt.Sprint("of a flood ", i), now)
	}
	if len(l.by) > maxAddresses {
		t.Errorf("%d addresses are remembered", len(l.by))
	}
	if later := now.Add(time.Minute); !l.allow("10.0.0.3", later) || len(l.by) > maxAddresses {
		t.Errorf("after a minute of rest nobody new is let in; %d are remembered", len(l.by))
	}
}

// mutation: Admit that compares only as many characters as are given makes this fail.
func TestTheTokenOfTheAddressIsAllOfIt(t *testing.T) {
	t.Parallel()
	l := NewLocal(nil)
	for path, want := range map[string]bool{l.Base() + "/runs": true, l.Base(): true, "/": false, "/runs": false, l.Base()[:10] + "/runs": false, l.Base() + "X/runs": false} {
		if _, err := l.Admit(httptest.NewRequest(http.MethodGet, path, nil)); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}
