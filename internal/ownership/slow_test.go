// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// hasty is a clock on which each wait is over at once: its time passes in waits and calls alone. It
// is for one loop at a time.
type hasty struct{ *clocktesting.FakeClock }

func (c hasty) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

// slowly is a Keeper for whom each call takes nearly as long as it may, and what it calls then; the
// other loop of the session has just succeeded. It runs the loop for twenty Leases.
func slowly(t *testing.T, meanwhile func(m *rules.Member, now rules.Time), loop func(context.Context, *Keeper)) *Keeper {
	t.Helper()
	stands, k := hasty{clocktesting.NewFakeClock(time.Unix(1e9, 0))}, (*Keeper)(nil)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	call := func() {
		stands.Step(1450 * time.Millisecond)
		k.apply(meanwhile)
		if k.now() > 20*k.timing.Lease {
			stop()
		}
	}
	api := interceptor.NewClient(graves(t, 5, "a"), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			call()
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			call()
			return c.List(ctx, l, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			call()
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			call()
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			call()
			return c.Delete(ctx, o, opts...)
		},
	})
	k = New(Options{
		Client: api, Namespace: "ns", Member: "a", LeaderLease: "leader", Handler: &calls{}, Clock: stands,
		Spread: func() float64 { return 0.99 }, Log: logr.Discard(),
	})
	k.apply(func(m *rules.Member, now rules.Time) {
		k.health.blocked = false // nobody holds the Lease of leader election
		k.remark(now)
	})
	loop(ctx, k)
	return k
}

// An API server that answers each call just in time does not end a session.
// mutation: round that asks for leader election too makes this fail.
func TestSlowLooksDoNotEndTheSession(t *testing.T) {
	k := slowly(t, func(m *rules.Member, now rules.Time) { m.Renewed(now, now) }, func(ctx context.Context, k *Keeper) { k.looks(ctx) })
	if session := k.until.Load().session; session != 1 || !k.Owns(Singletons) {
		t.Errorf("after 20 Leases it is in session %d; owns its partitions: %v", session, k.Owns(Singletons))
	}
}

// mutation: renewals that wait after the answer for as long as between two renewals makes this
// fail.
func TestSlowRenewalsDoNotEndTheSession(t *testing.T) {
	e := rules.Effective{Origin: "o"}
	for range Partitions {
		e.Claims = append(e.Claims, Claim{Term: 1})
	}
	look := func(m *rules.Member, now rules.Time) {
		m.Looked(rules.Look{Sent: now, Received: now, Version: "1", Effective: &e})
	}
	k := slowly(t, look, func(ctx context.Context, k *Keeper) {
		k.renewals(ctx, &ownLease{client: k.opts.Client, namespace: "ns", member: "a", lease: k.timing.Lease})
	})
	if session := k.until.Load().session; session != 1 {
		t.Errorf("after 20 Leases it is in session %d", session)
	}
}
