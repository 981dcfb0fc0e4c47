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
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// agreed has a member use its Redis, of which it is the only one.
func agreed(r *Redis, name, member string) {
	_, _ = r.Named(name)
	r.wrote(r.saying(), 1)
	r.heardOf(2, 0, member, []saying{{member: member}}, func(string) bool { return false })
}

// A rolling update to another Redis is stuck, and the API server is away for two Leases, or refuses
// writes of Leases alone, as where its disk is full. Nobody could renew, so what the waiting member
// lists meanwhile, or first after that, proves nothing.
//
// mutations: heardOf that takes who is gone as the rules have it, a row of lists that no gap ends,
// one that each list begins anew, and one that a gap of own writes does not end, make this fail.
func TestAnOutageOfTheAPIServerGivesNobodyAnotherRedis(t *testing.T) {
	const lease = 6 * time.Second
	for name, fails := range map[string]func(o *outage){
		"all calls fail": func(o *outage) { o.now.Step(2 * lease) },
		"only writes fail": func(o *outage) {
			o.refused = errors.New("no space is left")
			for range 2 * int(lease/time.Second) {
				if o.second(false); !o.waits() {
					t.Fatalf("only writes fail: it says %v while nobody can renew", o.r.saying())
				}
			}
			o.refused = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutage(t)
			for range 8 {
				o.second(true)
			}
			if !o.waits() {
				t.Fatalf("it says %v before the outage", o.r.saying())
			}
			fails(o)
			over := o.now.Now()
			for range int(lease/time.Second) - 1 {
				if o.second(false); !o.waits() {
					t.Fatalf("it says %v at %v after the outage, in which nobody could renew", o.r.saying(), o.now.Since(over))
				}
			}
			o.second(true)
			if o.second(true); !o.waits() {
				t.Errorf("it says %v, though the other one goes on", o.r.saying())
			}
			for n := 0; o.waits(); n++ {
				if o.second(false); n > 2*int(lease/time.Second) {
					t.Fatal("it waits for one that is gone")
				}
			}
		})
	}
}

// outage is an API server with a member that uses a Redis, and c, which has another one.
type outage struct {
	t       *testing.T
	api     client.Client
	refused error // what writes fail with
	now     *clocktesting.FakeClock
	r       *Redis
	c       *Keeper
	own     *ownLease
	uses    *coordinationv1.Lease
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{t: t, now: clocktesting.NewFakeClock(time.Unix(1e9, 0)), r: NewRedis("fresh"), uses: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: LeasePrefix + "a", Labels: map[string]string{LeaseLabel: MemberLease}, Annotations: map[string]string{RedisAnnotation: "first"},
	}}}
	api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(o.uses).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, l client.Object, opts ...client.CreateOption) error {
			if o.refused != nil {
				return o.refused
			}
			return c.Create(ctx, l, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, l client.Object, opts ...client.UpdateOption) error {
			if o.refused != nil {
				return o.refused
			}
			return c.Update(ctx, l, opts...)
		},
	})
	o.api = api
	o.c = New(Options{Client: api, Namespace: "ns", Member: "c", Redis: o.r, Clock: o.now, Log: logr.Discard()})
	o.own = &ownLease{client: api, namespace: "ns", member: "c", lease: o.c.timing.Lease}
	_, _ = o.r.Named("second")
	return o
}

// second is a second of both. c renews its Lease if it can, and so does the other one, if it is
// there.
func (o *outage) second(there bool) {
	o.t.Helper()
	o.now.Step(time.Second)
	if err := o.c.renew(o.t.Context(), o.own); !errors.Is(err, o.refused) {
		o.t.Fatal(err)
	}
	if there {
		if err := o.api.Get(o.t.Context(), client.ObjectKeyFromObject(o.uses), o.uses); err != nil {
			o.t.Fatal(err)
		}
		o.uses.Spec.RenewTime = &metav1.MicroTime{Time: o.now.Now()}
		if err := o.api.Update(o.t.Context(), o.uses); err != nil {
			o.t.Fatal(err)
		}
	}
	if err := o.c.list(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

// waits says whether c says nothing of its Redis, and may not use it.
func (o *outage) waits() bool {
	_, err := o.r.Named("second")
	return errors.Is(err, ErrOtherRedis) && o.r.saying() == saying{}
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

// Own Lease could not be written for half of its time, and can again before the next list.
// mutation: renewed that does not begin the row anew makes this fail.
func TestAGapOfOwnWritesBetweenTwoListsCounts(t *testing.T) {
	const lease = rules.Time(60)
	a, own := saying{member: "a", name: "first", settled: true}, saying{member: "b"}
	r := NewRedis("fresh")
	r.follow(lease, func() {})
	_, _ = r.Named("second")
	r.heardOf(1, lease, "b", []saying{own, a}, func(string) bool { return false })
	list := func(at rules.Time) (says bool) {
		r.heardOf(at, lease, "b", []saying{own}, func(string) bool { return true })
		return r.saying().name != ""
	}
	r.renewed(20)
	says := list(20) || list(40) || list(49)
	r.renewed(51)
	if says || list(61) {
		t.Error("it takes the other one for gone, which could not write either")
	}
	r.renewed(70)
	says = list(80)
	r.renewed(90)
	if says || list(100) || !list(111) {
		t.Errorf("it says %v too early, or waits for one that is gone", r.saying())
	}
}
