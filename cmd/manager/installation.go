// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
)

// identity is what all replicas share: what signs jobs, and whose the streams are. The name of the
// installation survives that the operator is installed again.
type identity struct {
	keys         keys.Keyring
	installation string
	home         string // the namespace of the operator
	homeGone     func(ctx context.Context, namespace string) bool
}

func loadIdentity(ctx context.Context, c client.Client, namespace string, replicas *others) (identity, error) {
	keys, err := loadKeys(ctx, c, namespace, replicas)
	if err != nil {
		return identity{}, err
	}
	installation, err := installationOf(ctx, c)
	return identity{keys: keys, installation: installation, home: namespace}, err
}

// homePause is for how long a namespace is not asked for again: each call about Redis would, and
// each look at a stream.
const homePause = 10 * time.Second

// homes tells which namespaces are gone, and with them the operators that were there.
type homes struct {
	api   client.Reader // reads live
	clock clock.PassiveClock

	mu   sync.Mutex
	seen map[string]home
}

// home is what was last heard of a namespace.
type home struct {
	gone bool
	at   time.Time // when it was last asked for
}

func newHomes(api client.Reader, c clock.PassiveClock) *homes {
	return &homes{api: api, clock: c, seen: map[string]home{}}
}

// gone says whether the API server said that a namespace is no more. A namespace goes after its
// pods. A question without an answer changes nothing: at first it is taken to be there.
func (h *homes) gone(ctx context.Context, namespace string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was, known := h.seen[namespace]
	if known && h.clock.Since(was.at) < homePause {
		return was.gone
	}
	err := h.api.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
	now := home{gone: apierrors.IsNotFound(err), at: h.clock.Now()}
	if err != nil && !now.gone {
		now.gone = was.gone
	}
	h.seen[namespace] = now
	return now.gone
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
