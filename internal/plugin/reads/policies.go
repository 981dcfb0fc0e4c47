// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Policies are all LockPolicies; nil if they may not be read: not everybody who has runs
// may see them.
func Policies(ctx context.Context, c client.Reader) ([]v1alpha1.LockPolicy, error) {
	var list v1alpha1.LockPolicyList
	switch err := c.List(ctx, &list); {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("policies: %w", err)
	}
	return append([]v1alpha1.LockPolicy{}, list.Items...), nil
}

// Semaphores are all of them; nil if they may not be read: they are the platform team's.
func Semaphores(ctx context.Context, c client.Reader) ([]v1alpha1.Semaphore, error) {
	var list v1alpha1.SemaphoreList
	switch err := c.List(ctx, &list); {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("semaphores: %w", err)
	}
	return append([]v1alpha1.Semaphore{}, list.Items...), nil
}

// Claims reads who owns which partition.
func Claims(ctx context.Context, c client.Reader, operator string) ([]ownership.Claim, error) {
	object := &corev1.ConfigMap{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: operator, Name: ownership.ObjectName}, object); err != nil {
		return nil, fmt.Errorf("read who owns which partition: %w", err)
	}
	claims, err := ownership.Decode(object)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", operator, ownership.ObjectName, err)
	}
	return claims, nil
}

// Owners are who owns which partition, and the Leases of who may drive the run with a UID. With
// --ownership=leader from the start no ConfigMap says who owns what.
func Owners(ctx context.Context, c client.Reader, operator, uid string) (runview.Owner, error) {
	claims, err := Claims(ctx, c, operator)
	if client.IgnoreNotFound(err) != nil {
		return runview.Owner{}, err
	}
	o := runview.Owner{Claims: claims, Leader: Leader(ctx, c, operator)}
	p := protocol.Partition(uid)
	if p >= len(claims) || claims[p].Owner == "" {
		return o, nil
	}
	lease := &coordinationv1.Lease{}
	err = c.Get(ctx, types.NamespacedName{Namespace: operator, Name: ownership.LeasePrefix + claims[p].Owner}, lease)
	if client.IgnoreNotFound(err) == nil { // who owns the partition is worth saying without it
		o.Lease = lease
	}
	return o, nil
}

// Leader is the Lease of --ownership=leader; nil: there is none, or it cannot be read.
func Leader(ctx context.Context, c client.Reader, operator string) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: operator, Name: ownership.LeaderLeaseName}, lease); err != nil {
		return nil
	}
	return lease
}
