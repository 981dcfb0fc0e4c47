// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// graves is an API server with the Leases of members that are gone, and the object, in which one
// member owns all.
func graves(t *testing.T, dead int, owner string) client.WithWatch {
	t.Helper()
	owned := rules.Effective{Origin: "o"}
	for range Partitions {
		owned.Claims = append(owned.Claims, Claim{Owner: owner, Term: 2})
	}
	object, err := encode("ns", scope{}, owned)
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{object}
	for i := range dead {
		name := fmt.Sprint("gone", i)
		objects = append(objects, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: LeasePrefix + name, UID: types.UID(name), Labels: map[string]string{LeaseLabel: MemberLease},
		}})
	}
	return fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()
}

// Replicas that crash for days leave thousands of Leases. The owner of the singletons deletes some
// at a time: leader election is asked for in between. Here its looks wait for that, too.
// mutation: bury without a bound of the time that it takes makes this fail.
func TestManyDeadLeasesDoNotEndTheSession(t *testing.T) {
	for name, c := range map[string]struct {
		dead int
		each time.Duration
	}{
		"many":             {200, 100 * time.Millisecond},
		"a slow apiserver": {20, 1400 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			clock, left := clocktesting.NewFakeClock(time.Unix(1e9, 0)), c.dead
			api := interceptor.NewClient(graves(t, c.dead, "a"), interceptor.Funcs{
				Delete: func(ctx context.Context, under client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
					clock.Step(c.each)
					left--
					return under.Delete(ctx, o, opts...)
				},
			})
			k := New(Options{
				Client: api, Namespace: "ns", Member: "a", Handler: &calls{}, Clock: clock, Spread: func() float64 { return 0.5 }, Log: logr.Discard(),
			})
			round := func() {
				k.apply(func(m *rules.Member, now rules.Time) { m.Renewed(now, now) })
				clock.Step(time.Second)
				if err := errors.Join(k.round(t.Context()), k.bury(t.Context())); err != nil {
					t.Fatal(err)
				}
				clock.Step(k.timing.Look)
			}
			for tries := 0; !k.Owns(Singletons); tries++ {
				if tries == 100 {
					t.Fatal("it owns nothing")
				}
				round()
			}
			session := k.until.Load().session
			for rounds := 0; left > 0; rounds++ {
				if round(); !k.Owns(Singletons) || k.until.Load().session != session {
					t.Fatalf("its session has ended, with %d Leases left", left)
				}
				if rounds == 10*c.dead {
					t.Fatalf("%d Leases are left", left)
				}
			}
		})
	}
}
