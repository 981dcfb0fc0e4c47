// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/ownership"
)

// maxLeases bounds the Leases of one answer of the API server.
const maxLeases = 500

// partitions reads who owns which, and the Leases of the owners.
func (k *kube) partitions(ctx context.Context, namespace string, leader bool) check.Partitions {
	if leader {
		return check.Partitions{Leader: true}
	}
	object := &corev1.ConfigMap{}
	if err := k.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ownership.ObjectName}, object); err != nil {
		u := unread("read who owns which partition", err)
		if apierrors.IsNotFound(err) {
			u.Hint = "the operator makes it when it first runs; --operator-namespace says where it is"
		}
		return check.Partitions{Unread: u}
	}
	claims, err := ownership.Decode(object)
	if err != nil {
		return check.Partitions{Unread: unread("read who owns which partition", err)}
	}
	leases := &coordinationv1.LeaseList{}
	if err := k.List(ctx, leases, client.InNamespace(namespace), client.MatchingLabels{ownership.LeaseLabel: ownership.MemberLease}, client.Limit(maxLeases)); err != nil {
		return check.Partitions{Unread: unread("list the Leases of replicas", err)}
	}
	p := check.Partitions{Total: len(claims)}
	owners := map[string]bool{}
	for i, c := range claims {
		if c.Owner == "" {
			p.Unowned = append(p.Unowned, i)
			continue
		}
		owners[c.Owner] = true
	}
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		p.Owners = append(p.Owners, ownerOf(name, leases.Items))
	}
	return p
}

func leaseOf(name string, l coordinationv1.Lease) check.Owner {
	o := check.Owner{Name: name, Duration: time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second}
	if l.Spec.RenewTime != nil {
		o.Renewed = l.Spec.RenewTime.Time
	}
	return o
}

func ownerOf(name string, leases []coordinationv1.Lease) check.Owner {
	for _, l := range leases {
		if l.Name == ownership.LeasePrefix+name {
			return leaseOf(name, l)
		}
	}
	return check.Owner{Name: name, NoLease: true}
}
