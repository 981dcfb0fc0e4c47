// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
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

func apiServer(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithObjects(objects...).Build()
}

// mutation: loadKeys that uses the keys it drew instead of those in the Secret makes the race
// of replicas fail.
func TestKeysAreMadeOnceAndThenShared(t *testing.T) {
	c := apiServer()
	rings := make([]keys.Keyring, 8)
	errs := make([]error, len(rings))
	var replicas sync.WaitGroup
	for i := range rings {
		replicas.Go(func() { rings[i], errs[i] = loadKeys(t.Context(), c, namespace) })
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
	ring, err := loadKeys(t.Context(), c, namespace)
	if err != nil || ring.Current.ID != "theirs" {
		t.Errorf("key %q, error %v", ring.Current.ID, err)
	}
}

func TestKeysOfARotation(t *testing.T) {
	ring, err := loadKeys(t.Context(), apiServer(keySecretWith(map[string]string{
		entryCurrentID: "new", entryCurrent: strings.Repeat("n", keyBytes), entryPreviousID: "old", entryPrevious: strings.Repeat("o", keyBytes),
	})), namespace)
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
			_, err := loadKeys(t.Context(), apiServer(keySecretWith(data)), namespace)
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
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := loadKeys(t.Context(), interceptor.NewClient(apiServer(), funcs), namespace); !apierrors.IsForbidden(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}
