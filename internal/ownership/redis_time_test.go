// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// agreed has a member use its Redis, of which it is the only one.
func agreed(r *Redis, name, member string) {
	_, _ = r.Named(name)
	r.wrote(r.saying(), 1)
	r.heardOf(2, 0, member, []saying{{member: member}}, func(string) bool { return false })
}

// A rolling update to another Redis is stuck, and the API server is away for two Leases. Nobody
// could renew, so the first list after that, which is the waiting member's, proves nothing.
//
// mutations: heardOf that takes who is gone as the rules have it, a row of lists that no gap ends,
// and one that each list begins anew, make this fail.
func TestAnOutageOfTheAPIServerGivesNobodyAnotherRedis(t *testing.T) {
	const lease = 6 * time.Second
	uses := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: LeasePrefix + "a", Labels: map[string]string{LeaseLabel: MemberLease}, Annotations: map[string]string{RedisAnnotation: "first"},
	}}
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(uses).Build()
	now, r := clocktesting.NewFakeClock(time.Unix(1e9, 0)), NewRedis("fresh")
	c := New(Options{Client: api, Namespace: "ns", Member: "c", Redis: r, Clock: now, Log: logr.Discard()})
	_, _ = r.Named("second")
	// a second of both; the first one renews its Lease if it can.
	second := func(renews bool) {
		now.Step(time.Second)
		if renews {
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(uses), uses); err != nil {
				t.Fatal(err)
			}
			uses.Spec.RenewTime = &metav1.MicroTime{Time: now.Now()}
			if err := api.Update(t.Context(), uses); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.list(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	waits := func() bool {
		_, err := r.Named("second")
		return errors.Is(err, ErrOtherRedis) && r.saying() == saying{}
	}
	for range 8 {
		second(true)
	}
	if !waits() {
		t.Fatalf("it says %v before the outage", r.saying())
	}
	now.Step(2 * lease) // all calls fail
	for range int(lease/time.Second) - 1 {
		if second(false); !waits() {
			t.Fatalf("it says %v at %v after the outage, in which nobody could renew", r.saying(), now.Since(time.Unix(1e9, 0))-8*time.Second-2*lease)
		}
	}
	second(true)
	if second(true); !waits() {
		t.Errorf("it says %v, though the other one goes on", r.saying())
	}
	for n := 0; waits(); n++ {
		if second(false); n > 2*int(lease/time.Second) {
			t.Fatal("it waits for one that is gone")
		}
	}
}

// Redis alone is away, for good. Its replica keeps another Redis waiting for less than two Leases.
//
// mutation: withdraw that begins to count only once Fit has failed for a Lease makes this fail.
func TestWhoseRedisIsGoneSaysNothingOfItWithinTwoLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var away bool
		r := NewRedis("fresh")
		k := New(Options{Member: "a", Redis: r, Clock: clock.RealClock{}, Log: logr.Discard(), Fit: func(ctx context.Context) error {
			mu.Lock()
			gone := away
			mu.Unlock()
			if gone {
				<-ctx.Done()
				return ctx.Err()
			}
			_, _ = r.Named("first")
			return nil
		}})
		agreed(r, "first", "a")
		ctx, stop := context.WithCancel(t.Context())
		var fitness sync.WaitGroup
		fitness.Go(func() { k.fitness(ctx) })
		time.Sleep(time.Minute) // of the bubble: no time passes
		if r.saying().name != "first" {
			t.Errorf("it says %v", r.saying())
		}
		mu.Lock()
		away = true
		mu.Unlock()
		began := time.Now()
		for r.saying().name != "" && time.Since(began) < time.Minute {
			time.Sleep(100 * time.Millisecond)
			k.apply(func(_ *rules.Member, now rules.Time) { k.remark(now) }) // as after each list
		}
		if took := time.Since(began); took < k.timing.Lease || took >= 2*k.timing.Lease {
			t.Errorf("it said that it uses Redis for %v", took)
		}
		stop()
		fitness.Wait()
	})
}

// Redis answers, and NATS does not: who uses it goes on saying so.
// mutation: withdraw that does not ask for how long Redis was silent makes this fail.
func TestWhoseRedisAnswersGoesOnSayingSo(t *testing.T) {
	r := NewRedis("fresh")
	agreed(r, "first", "a")
	const long = rules.Time(6)
	for at := rules.Time(3); at < 100; at++ {
		_, _ = r.Named("first")
		if r.withdraw(at, long, true) {
			t.Fatalf("it withdraws at %d", at)
		}
	}
	for at := rules.Time(100); r.saying().name != ""; at++ {
		if r.withdraw(at, long, at >= 103); at > 110 {
			t.Fatal("it never withdraws")
		}
	}
}
