// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
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

// mutation: listLeases without the duration makes this fail.
func TestALeaseSaysHowLongItCounts(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	for name, lease := range map[string]time.Duration{"a": 6 * time.Second, "b": 30 * time.Second, "c": time.Hour} {
		own := &ownLease{client: c, namespace: "ns", member: name, lease: lease}
		if err := own.renew(t.Context(), rules.Mark{}, time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := listLeases(t.Context(), c, "ns")
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for i, want := range []time.Duration{6 * time.Second, 30 * time.Second, time.Minute} {
		if all[i].Lasts != want {
			t.Errorf("%s counts for %v, want %v", all[i].Name, all[i].Lasts, want)
		}
	}
}
