// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// The table of ownership.md: clocks may differ in speed by as much as the margin is of a Lease.
//
// mutation: defaults of Timing that are others, such as a margin of 10 ms.
func TestTheTimingIsThatOfTheTable(t *testing.T) {
	want := Timing{
		Lease: 6 * time.Second, Margin: time.Second, Renew: 2 * time.Second, Settle: 3 * time.Second,
		Look: time.Second, Fresh: 250 * time.Millisecond, Drain: 1200 * time.Millisecond, Stop: 6 * time.Second,
	}
	if got := (Timing{}).or(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	long := Timing{Lease: 15 * time.Second}.or() // all in proportion
	if long.Margin != 2500*time.Millisecond || long.Renew != 5*time.Second || long.Settle != 7500*time.Millisecond {
		t.Errorf("with --ownership-lease=15s: %+v", long)
	}
}

// Somebody left a Lease of leader election behind, or wrote one, that says that it counts
// for a day.
//
// mutation: holds that believes what a Lease says of its duration.
func TestALeaseOfLeaderElectionThatNobodyRenewsEndsWithinAMinute(t *testing.T) {
	left := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "leader"}}
	left.Spec.HolderIdentity, left.Spec.LeaseDurationSeconds = new("old"), new(int32(86400))
	c, l := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(left).Build(), &leader{name: "leader"}
	for _, at := range []struct {
		now  rules.Time
		want bool
	}{{0, true}, {time.Minute - 1, true}, {time.Minute, false}} {
		if got, err := l.holds(t.Context(), c, "ns", at.now); err != nil || got != at.want {
			t.Errorf("held after %v: %t, %v", at.now, got, err)
		}
	}
}

// A member comes back from a pause after it was listed, and before its Lease is deleted: it would
// lose its session once more.
//
// mutation: bury that names no version.
func TestALeaseThatWasRenewedSinceItWasListedIsNotDeleted(t *testing.T) {
	w := newWorld(t)
	w.timing = Timing{Lease: patience} // no call may run out of time here
	a := w.newFellow("a", nil)
	lease := &ownLease{client: w.client, namespace: w.ns, member: "paused", lease: time.Second}
	listed := func() rules.Lease {
		t.Helper()
		list, _, err := a.api.list(t.Context(), a.now)
		if err != nil || len(list.Leases) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		return list.Leases[0]
	}
	renew := func(second int64) {
		t.Helper()
		if err := lease.renew(t.Context(), rules.Mark{}, time.Unix(second, 0)); err != nil {
			t.Fatal(err)
		}
	}
	renew(1)
	before := listed()
	renew(2)
	if err := a.api.bury(t.Context(), before); err != nil {
		t.Error(err)
	}
	if err := a.api.bury(t.Context(), listed()); err != nil { // it is there
		t.Error(err)
	}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(lease.object), &coordinationv1.Lease{}); err == nil {
		t.Error("the Lease of a member that is gone is not deleted")
	}
}

// A connection stays open on which nothing comes, as where a node is cut off. Each call is made
// again in time for the next renewal.
//
// mutations: api without its time-out, or a renewal without one; Fit that may take for ever, so
// that a replica whose Redis hangs is never unfit.
func TestACallThatIsNotAnsweredEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				return hangs(ctx)
			},
			List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
				return hangs(ctx)
			},
			Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
				return hangs(ctx)
			},
			Update: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.UpdateOption) error {
				return hangs(ctx)
			},
			Delete: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.DeleteOption) error {
				return hangs(ctx)
			},
		})
		k := New(Options{
			Client: c, Namespace: "ns", Member: "a", LeaderLease: "leader", Handler: &calls{}, Fit: hangs,
			Clock: clock.RealClock{}, Spread: func() float64 { return 0.5 }, Log: logr.Discard(),
		})
		bounded, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		for name, call := range map[string]func() error{
			"look":  func() error { _, _, err := k.api.look(bounded, k.now); return err },
			"list":  func() error { return k.list(bounded) },
			"write": func() error { _, err := k.api.write(bounded, rules.Effective{}, "1", k.now); return err },
			"bury": func() error {
				return k.api.bury(bounded, rules.Lease{Name: "gone", Version: "u" + versionSeparator + "1"})
			},
			"leader election": func() error { return k.lookForLeader(bounded, &leader{name: "leader"}) },
			"renewal": func() error {
				return k.renew(bounded, &ownLease{client: c, namespace: "ns", member: "a", lease: k.timing.Lease})
			},
		} {
			began := time.Now()
			if err := call(); err == nil || time.Since(began) > 2*time.Second {
				t.Errorf("%s ended after %v: %v", name, time.Since(began), err)
			}
		}
		asking, end := context.WithTimeout(t.Context(), k.timing.Lease)
		defer end()
		k.fitness(asking)
		if k.health.fit {
			t.Error("it is fit, as far as it knows")
		}
	})
}
