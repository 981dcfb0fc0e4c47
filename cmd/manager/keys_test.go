// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const namespace = "ns"

func keySecretWith(data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: keySecret}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

// nobody has seen no other replica yet. Its clock stands still.
func nobody() *others {
	return newOthers(options{lease: keyPatience, leaderLease: keyPatience}, clocktesting.NewFakePassiveClock(time.Now()))
}

func memberLease(member string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: ownership.LeasePrefix + member, Labels: map[string]string{ownership.LeaseLabel: ownership.MemberLease},
	}}
}

func apiServer(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithObjects(objects...).Build()
}

// All replicas of a new installation start at once. One that has its keys makes its Lease while
// others still look for theirs, and those try again.
// mutation: loadKeys that uses the keys it drew instead of those in the Secret makes the race
// of replicas fail.
func TestKeysAreMadeOnceAndThenShared(t *testing.T) {
	c := apiServer()
	rings := make([]keys.Keyring, 8)
	errs := make([]error, len(rings))
	var replicas sync.WaitGroup
	for i := range rings {
		replicas.Go(func() {
			seen := nobody()
			for rings[i], errs[i] = loadKeys(t.Context(), c, namespace, seen); errors.Is(errs[i], bus.ErrConfig); {
				rings[i], errs[i] = loadKeys(t.Context(), c, namespace, seen)
			}
			errs[i] = errors.Join(errs[i], c.Create(t.Context(), memberLease(fmt.Sprint("replica-", i))))
		})
	}
	replicas.Wait()
	for i := range rings {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if diff := cmp.Diff(rings[0], rings[i]); diff != "" {
			t.Errorf("replicas 0 and %d have different keys:\n%s", i, diff)
		}
	}
	if len(rings[0].Current.Secret) != keyBytes || rings[0].Current.ID == "" || strings.Contains(rings[0].Current.ID, ".") {
		t.Errorf("drawn key: id %q, %d bytes", rings[0].Current.ID, len(rings[0].Current.Secret))
	}
	id := protocol.JobID{RunUID: "r", Step: "s", Item: protocol.NoItem, Attempt: 1}
	if !rings[1].Verify(id, rings[0].Sign(id)) {
		t.Error("one replica refuses the token of the other")
	}
}

func TestAnotherReplicaIsQuickerToMakeTheKeys(t *testing.T) {
	theirs := keySecretWith(map[string]string{entryCurrentID: "theirs", entryCurrent: strings.Repeat("x", keyBytes)})
	c := interceptor.NewClient(apiServer(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.Create(ctx, theirs); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...) // AlreadyExists
		},
	})
	ring, err := loadKeys(t.Context(), c, namespace, nobody())
	if err != nil || ring.Current.ID != "theirs" {
		t.Errorf("key %q, error %v", ring.Current.ID, err)
	}
}

func TestKeysOfARotation(t *testing.T) {
	ring, err := loadKeys(t.Context(), apiServer(keySecretWith(map[string]string{
		entryCurrentID: "new", entryCurrent: strings.Repeat("n", keyBytes), entryPreviousID: "old", entryPrevious: strings.Repeat("o", keyBytes),
	})), namespace, nobody())
	if err != nil {
		t.Fatal(err)
	}
	old := keys.Keyring{Current: keys.Key{ID: "old", Secret: []byte(strings.Repeat("o", keyBytes))}}
	id := protocol.JobID{RunUID: "r", Step: "s", Item: protocol.NoItem, Attempt: 1}
	if !ring.Verify(id, old.Sign(id)) {
		t.Error("a job dispatched before the rotation cannot be answered")
	}
	if old.Verify(id, ring.Sign(id)) {
		t.Error("signs with the previous key")
	}
}

func TestUnusableKeySecrets(t *testing.T) {
	good := strings.Repeat("x", 16)
	for name, data := range map[string]map[string]string{
		"empty":           {},
		"no id":           {entryCurrent: good},
		"no key":          {entryCurrentID: "k"},
		"key too short":   {entryCurrentID: "k", entryCurrent: good[1:]},
		"only a previous": {entryPreviousID: "k", entryPrevious: good},

		"an id with a dot":        {entryCurrentID: "k.1", entryCurrent: good},
		"an id with a line end":   {entryCurrentID: "k\n", entryCurrent: good},
		"previous without its id": {entryCurrentID: "k", entryCurrent: good, entryPrevious: good},
		"previous id alone":       {entryCurrentID: "k", entryCurrent: good, entryPreviousID: "j"},
		"previous too short":      {entryCurrentID: "k", entryCurrent: good, entryPreviousID: "j", entryPrevious: good[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadKeys(t.Context(), apiServer(keySecretWith(data)), namespace, nobody())
			if !errors.Is(err, bus.ErrConfig) || !strings.Contains(err.Error(), "ns/"+keySecret) {
				t.Errorf("error %v: must name the Secret, and say that it cannot be used", err)
			}
		})
	}
}

func TestKeysCannotBeReadOrMade(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("secrets"), keySecret, nil)
	for name, funcs := range map[string]interceptor.Funcs{
		"not read": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return forbidden
		}},
		"not made": {Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return forbidden }},
		"others not seen": {List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return forbidden
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := loadKeys(t.Context(), interceptor.NewClient(apiServer(), funcs), namespace, nobody()); !apierrors.IsForbidden(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A replica that starts beside others and finds no Secret waits for it: they have the keys of the
// jobs under way. Once none of them was there for long enough it makes new ones.
// mutation: loadKeys that asks for no other replica makes this fail; so does one that takes a Lease
// for that of a live replica though nobody renews it, or that does not look at the leader's.
func TestKeysAreNotMadeAnewWhileAnotherReplicaLives(t *testing.T) {
	leader := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaderElectionID}}
	for name, lease := range map[string]*coordinationv1.Lease{"one that shares the runs": memberLease("a"), "a leader": leader} {
		t.Run(name, func(t *testing.T) {
			of := memberLease("of-something-else")
			of.Labels = nil
			c := apiServer(lease, of)
			passed := clocktesting.NewFakePassiveClock(time.Now())
			seen := newOthers(options{lease: time.Second, leaderLease: keyPatience / 2}, passed)
			waits := func(when string) {
				t.Helper()
				_, err := loadKeys(t.Context(), c, namespace, seen)
				if !errors.Is(err, bus.ErrConfig) || !strings.Contains(err.Error(), lease.Name) {
					t.Fatalf("%s: error %v; want one that names the Lease", when, err)
				}
			}
			waits("at once")
			for range 3 { // it is renewed
				if err := c.Update(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
				passed.SetTime(passed.Now().Add(keyPatience - 1))
				waits("a renewal later")
			}
			passed.SetTime(passed.Now().Add(keyPatience - 1))
			waits("when it was not renewed for a while")
			passed.SetTime(passed.Now().Add(1))
			ring, err := loadKeys(t.Context(), c, namespace, seen)
			if err != nil || len(ring.Current.Secret) != keyBytes {
				t.Errorf("when it was not renewed for long: a key of %d bytes, error %v", len(ring.Current.Secret), err)
			}
		})
	}
}
