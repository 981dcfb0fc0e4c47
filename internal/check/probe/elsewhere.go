// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/ownership"
)

const (
	// maxPages bounds the answers about the Leases of all namespaces: anybody can make many.
	maxPages = 20
	// maxEntitled bounds the namespaces that are asked about, for the same reason.
	maxEntitled = 100
)

// elsewhere reads the Leases of replicas and leaders in other namespaces than that of the operator,
// and asks whether an operator there would have its rights.
func (k *kube) elsewhere(ctx context.Context, namespace string, operator check.Operator) check.Elsewhere {
	var e check.Elsewhere
	for _, which := range []client.ListOption{
		client.MatchingLabels{ownership.LeaseLabel: ownership.MemberLease}, client.MatchingFields{"metadata.name": ownership.LeaderLeaseName},
	} {
		found, u := k.leasesElsewhere(ctx, namespace, which)
		if u.Why != "" {
			return check.Elsewhere{Unread: u}
		}
		e.Replicas = append(e.Replicas, found...)
	}
	var namespaces []string
	for _, r := range e.Replicas {
		namespaces = append(namespaces, r.Namespace)
	}
	slices.Sort(namespaces)
	namespaces = slices.Compact(namespaces)
	if len(namespaces) > maxEntitled {
		e.Asked = check.Unread{
			Why:  fmt.Sprintf("such Leases are in %d namespaces, and the check asks about %d", len(namespaces), maxEntitled),
			Hint: "kubectl get pods -A -l app.kubernetes.io/component=manager says where operators run",
		}
		namespaces = namespaces[:maxEntitled]
	}
	entitled, err := k.entitled(ctx, namespaces, cmp.Or(operator.Account, operatorName))
	if err != nil {
		e.Asked = unread("ask about rights", err)
	}
	e.Entitled = entitled
	return e
}

// leasesElsewhere reads the Leases of one kind, page by page: those of one namespace could fill the
// first.
func (k *kube) leasesElsewhere(ctx context.Context, namespace string, which client.ListOption) ([]check.Replica, check.Unread) {
	var found []check.Replica
	next := ""
	for range maxPages {
		leases := &coordinationv1.LeaseList{}
		if err := k.List(ctx, leases, which, client.Limit(maxLeases), client.Continue(next)); err != nil {
			return nil, unread("list the Leases of all namespaces", err)
		}
		for _, l := range leases.Items {
			if l.Namespace != namespace && ptr.Deref(l.Spec.HolderIdentity, "") != "" { // a leader that ended gave its own back
				found = append(found, check.Replica{Namespace: l.Namespace, Owner: leaseOf(l.Name, l)})
			}
		}
		if next = leases.Continue; next == "" {
			return found, check.Unread{}
		}
	}
	return nil, check.Unread{
		Why:  fmt.Sprintf("there are more than %d Leases like an operator's", maxPages*maxLeases),
		Hint: "kubectl get leases -A -l " + ownership.LeaseLabel + "=" + ownership.MemberLease + " says in which namespaces they are: operators do not make as many",
	}
}

// entitled are the namespaces of which an account may write the status of all runs.
func (k *kube) entitled(ctx context.Context, namespaces []string, account string) ([]string, error) {
	var mu sync.Mutex
	var may []string
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviewsAtOnce)
	for _, namespace := range namespaces {
		group.Go(func() error {
			a := &authorizationv1.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: "workflowruns", Subresource: "status", Verb: "update"}
			yes, err := k.allowed(ctx, namespace, account, a)
			if err == nil && yes {
				mu.Lock()
				defer mu.Unlock()
				may = append(may, namespace)
			}
			return err
		})
	}
	err := group.Wait()
	return may, err
}
