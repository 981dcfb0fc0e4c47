// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// Others count from the last write of a Lease, so a renewal that succeeds has written.
// mutation: create that is content with the Lease of an earlier try makes this fail.
func TestALeaseWhoseAnswerWasLostIsWrittenAgain(t *testing.T) {
	lost := false
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, under client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			err := under.Create(ctx, o, opts...)
			if !lost {
				lost = true
				return errors.New("the answer was lost")
			}
			return err
		},
	})
	own := &ownLease{client: c, namespace: "ns", member: "a", lease: 6 * time.Second}
	at := time.Unix(1e9, 0)
	stands := func() (l coordinationv1.Lease) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: LeasePrefix + "a"}, &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	if err := own.renew(t.Context(), rules.Mark{}, at); err == nil {
		t.Fatal("the first try succeeded")
	}
	first := stands()
	if err := own.renew(t.Context(), rules.Mark{Leaving: true}, at.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	second := stands()
	if second.ResourceVersion == first.ResourceVersion || second.Annotations[LeavingAnnotation] == "" {
		t.Errorf("the second renewal wrote nothing: %s, then %s with %v", first.ResourceVersion, second.ResourceVersion, second.Annotations)
	}
}

// Where each call takes more than half of the time that one may take, an answer that is lost does
// not keep a replica out.
// mutation: renew with one bound for all its calls makes this fail.
func TestARenewalGoesOnAfterALostAnswer(t *testing.T) {
	for _, verb := range []string{"create", "update"} {
		k, used, lost := (*Keeper)(nil), map[time.Time]time.Duration{}, ""
		call := func(ctx context.Context, v string, do func() error) error {
			by, _ := ctx.Deadline() // of each call, or of all calls together
			if used[by] += k.timing.Lease * 3 / 20; used[by] > k.timing.Lease/4 {
				return context.DeadlineExceeded
			}
			err := do()
			if v == verb && lost == "" {
				lost = v
				return context.DeadlineExceeded
			}
			return err
		}
		c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				return call(ctx, "get", func() error { return c.Get(ctx, key, o, opts...) })
			},
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return call(ctx, "create", func() error { return c.Create(ctx, o, opts...) })
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				return call(ctx, "update", func() error { return c.Update(ctx, o, opts...) })
			},
		})
		k = New(Options{Client: c, Namespace: "ns", Member: "a", Handler: &calls{}, Clock: clock.RealClock{}, Log: logr.Discard()})
		own := &ownLease{client: c, namespace: "ns", member: "a", lease: k.timing.Lease}
		if err := k.renew(t.Context(), own); verb == "update" && err != nil {
			t.Fatal(err)
		}
		tries := 0
		for err := errCut; err != nil && tries < 5; tries++ {
			err = k.renew(t.Context(), own)
			if verb == "update" && tries == 0 && err == nil {
				t.Fatal("the answer was not lost")
			}
		}
		if tries > 4 {
			t.Errorf("after the answer to %s was lost it is still not renewed", verb)
		}
	}
}

// mutation: listLeases without the duration makes this fail.
func TestALeaseSaysHowLongItCounts(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	for name, lease := range map[string]time.Duration{"a": 6 * time.Second, "b": 30 * time.Second, "c": time.Hour} {
		own := &ownLease{client: c, namespace: "ns", member: name, lease: lease}
		if err := own.renew(t.Context(), rules.Mark{}, time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
	}
	all, _, err := listLeases(t.Context(), c, "ns")
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for i, want := range []time.Duration{6 * time.Second, 30 * time.Second, time.Minute} {
		if all[i].Lasts != want {
			t.Errorf("%s counts for %v, want %v", all[i].Name, all[i].Lasts, want)
		}
	}
}
