// SPDX-License-Identifier: Apache-2.0

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
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
)

// Secret with the keys that sign job tokens, and its entries. All replicas share it, so that a
// restart or a fail-over accepts the results of jobs dispatched before. To rotate: move current to
// previous, put a new current; running replicas follow (see keywatch.go and docs/security.md).
const (
	keySecret       = "syncopate-result-keys"
	entryCurrentID  = "current-id"
	entryCurrent    = "current"
	entryPreviousID = "previous-id"
	entryPrevious   = "previous"

	keyBytes = 32
)

// loadKeys reads the key Secret at the start, and creates it when there is none and no other
// replica lives: that has the keys of the jobs under way, and would follow. In a new installation
// several replicas come here at once. None has a Lease before it has keys, so one of them makes the
// Secret, and the others find it, at the latest when they try again.
func loadKeys(ctx context.Context, c client.Client, namespace string, replicas *others) (keys.Keyring, error) {
	ring, err := readKeys(ctx, c, namespace)
	if !apierrors.IsNotFound(err) {
		return ring, err
	}
	lease, unlisted := replicas.living(ctx, c, namespace)
	if unlisted != nil {
		return keys.Keyring{}, unlisted
	}
	if lease != "" {
		return keys.Keyring{}, fmt.Errorf("%w; it is not made anew, as Lease %s is of a replica that may live", err, lease)
	}
	if err := createKeys(ctx, c, client.ObjectKey{Namespace: namespace, Name: keySecret}); err != nil {
		return keys.Keyring{}, err
	}
	return readKeys(ctx, c, namespace)
}

// readKeys reads the key Secret as it is now. bus.ErrConfig says that it is gone or cannot be used.
// Beside a running operator a Secret that is gone is never made: with keys drawn anew the results
// under way would be refused, and those it has may be why it was deleted.
func readKeys(ctx context.Context, c client.Reader, namespace string) (keys.Keyring, error) {
	key := client.ObjectKey{Namespace: namespace, Name: keySecret}
	secret := &corev1.Secret{}
	switch err := c.Get(ctx, key, secret); {
	case apierrors.IsNotFound(err):
		return keys.Keyring{}, fmt.Errorf("%w: read key secret %s: %w", bus.ErrConfig, key, err)
	case err != nil:
		return keys.Keyring{}, fmt.Errorf("read key secret %s: %w", key, err)
	}
	ring := keys.Keyring{
		Current:  keys.Key{ID: string(secret.Data[entryCurrentID]), Secret: secret.Data[entryCurrent]},
		Previous: keys.Key{ID: string(secret.Data[entryPreviousID]), Secret: secret.Data[entryPrevious]},
	}
	if err := ring.Check(); err != nil {
		return keys.Keyring{}, fmt.Errorf("key secret %s: %w", key, err)
	}
	return ring, nil
}

// createKeys makes the Secret; losing the race against another replica is success, its keys
// are then used.
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
