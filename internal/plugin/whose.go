// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// errOtherCluster is told of a NATS that serves the operators of another cluster than the one of
// the kubeconfig: all that is in it would be of runs that are gone.
var errOtherCluster = errors.New("NATS is that of another cluster than your kubeconfig's: look at port-forwards and --context")

// ours makes sure that what is to be changed is this cluster's. Streams that name no cluster are
// anybody's.
func ours(ctx context.Context, c client.Reader, nats *bus.Conn) error {
	theirs, err := nats.Installation(ctx)
	if err != nil {
		return fmt.Errorf("find out whether NATS is this cluster's: %w", err)
	}
	if theirs == "" {
		return nil
	}
	var ns corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: bus.ClusterNamespace}, &ns); err != nil {
		return fmt.Errorf("find out whether NATS is this cluster's: %w", err)
	}
	if string(ns.UID) != theirs {
		return fmt.Errorf("%w (its streams say %s, and namespace %s has the UID %s)", errOtherCluster, theirs, bus.ClusterNamespace, ns.UID)
	}
	return nil
}
