// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
)

// identity is what all replicas share, and what survives that the operator is installed again: what
// signs jobs, and whose the streams are.
type identity struct {
	keys         keys.Keyring
	installation string
}

func loadIdentity(ctx context.Context, c client.Client, namespace string, replicas *others) (identity, error) {
	keys, err := loadKeys(ctx, c, namespace, replicas)
	if err != nil {
		return identity{}, err
	}
	installation, err := installationOf(ctx, c)
	return identity{keys: keys, installation: installation}, err
}

// installationOf names the cluster: one operator serves the whole of it.
func installationOf(ctx context.Context, c client.Reader) (string, error) {
	var ns corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: bus.ClusterNamespace}, &ns); err != nil {
		return "", fmt.Errorf("read the UID of the cluster: %w", err)
	}
	if ns.UID == "" {
		return "", errors.New("the namespace " + bus.ClusterNamespace + " has no UID")
	}
	return string(ns.UID), nil
}
