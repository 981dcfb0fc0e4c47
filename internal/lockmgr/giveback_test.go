// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

// A release that fails is tried once more, at once; else whoever waits would wait for the TTL.
//
// mutation: free that tries once makes the first fail.
func TestAReleaseThatFailsIsTriedOnceMore(t *testing.T) {
	for name, c := range map[string]struct {
		fates []outcome
		free  bool
	}{
		"refused once":                     {[]outcome{refused, works}, true},
		"its reply was lost":               {[]outcome{losesReply, works}, true},
		"refused twice: its TTL ends it":   {[]outcome{refused, refused, works}, false},
		"it works, and is not tried again": {[]outcome{works, refused}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.fates("release", c.fates...)
				b.acquire(request()).Drop(t.Context())
				b.pass(0)
				if owner := b.store.ownerOf(testRun); (owner == "") != c.free {
					t.Errorf("at once the lock is owned by %q; want it free: %t", owner, c.free)
				}
				b.pass(request().Policy.TTL)
				if owner := b.store.ownerOf(testRun); owner != "" {
					t.Errorf("after its TTL the lock is owned by %q", owner)
				}
			})
		})
	}
}

// A lease that is used for longer than its TTL is renewed all the while: Redis shows one owner at
// each look, and nobody else gets in.
//
// mutation: a renewal that does not set the TTL anew (renew.lua without PEXPIRE) makes this fail.
func TestALeaseIsRenewedThroughTwiceItsTTLOnARealRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	holder, other, client := process(t, server.Addr()), process(t, server.Addr()), newTestClient(t, server.Addr())
	r := fast()
	r.Policy.TTL = 2500 * time.Millisecond
	began := time.Now()
	l := mustAcquire(t, holder, r)
	looks, tick := 0, time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for ; time.Since(began) < 2*r.Policy.TTL+100*time.Millisecond; looks++ {
		<-tick.C
		if owner := client.Get(t.Context(), key(testRun, "lock")).Val(); owner != l.ID() {
			t.Fatalf("after %s the lock is owned by %q", time.Since(began), owner)
		}
		if looks%100 == 0 {
			if _, err := other.Acquire(t.Context(), r); err == nil {
				t.Fatalf("after %s another has the lock", time.Since(began))
			}
		}
	}
	if err := l.Err(); err != nil || !l.Status().Renewed || l.Fence() != 1 {
		t.Errorf("after %d looks: %v, %+v, fence %d", looks, err, l.Status(), l.Fence())
	}
	l.Drop(t.Context())
	mustAcquire(t, other, r).Drop(t.Context())
}
