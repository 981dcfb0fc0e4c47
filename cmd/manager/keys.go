package main

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// Secret with the keys that sign job tokens, and its entries. All replicas share it, so that a restart or a fail-over accepts
// the results of jobs dispatched before. To rotate: move current to previous, put a new current, restart the replicas.
const (
	keySecret       = "syncopate-result-keys"
	entryCurrentID  = "current-id"
	entryCurrent    = "current"
	entryPreviousID = "previous-id"
	entryPrevious   = "previous"

	keyBytes    = 32
	minKeyBytes = 16
)

// loadKeys reads the key Secret, and creates it when there is none.
func loadKeys(ctx context.Context, c client.Client, namespace string) (bus.Keyring, error) {
	key := client.ObjectKey{Namespace: namespace, Name: keySecret}
	secret := &corev1.Secret{}
	err := c.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		if err = createKeys(ctx, c, key); err == nil {
			err = c.Get(ctx, key, secret)
		}
	}
	if err != nil {
		return bus.Keyring{}, fmt.Errorf("read key secret %s: %w", key, err)
	}
	ring := bus.Keyring{
		Current:  bus.Key{ID: string(secret.Data[entryCurrentID]), Secret: secret.Data[entryCurrent]},
		Previous: bus.Key{ID: string(secret.Data[entryPreviousID]), Secret: secret.Data[entryPrevious]},
	}
	if ring.Current.ID == "" || len(ring.Current.Secret) < minKeyBytes {
		return bus.Keyring{}, fmt.Errorf("key secret %s: entries %s and %s (at least %d bytes) are needed", key, entryCurrentID, entryCurrent, minKeyBytes)
	}
	return ring, nil
}

// createKeys makes the Secret; losing the race against another replica is success, its keys are then used.
func createKeys(ctx context.Context, c client.Client, key client.ObjectKey) error {
	id, secret := make([]byte, 4), make([]byte, keyBytes)
	for _, b := range [][]byte{id, secret} {
		if _, err := rand.Read(b); err != nil {
			return fmt.Errorf("draw key: %w", err)
		}
	}
	err := c.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Data:       map[string][]byte{entryCurrentID: fmt.Appendf(nil, "%x", id), entryCurrent: secret},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create key secret: %w", err)
	}
	return nil
}
