// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/ownership"
)

// pages is an API server that has Leases of replicas in pages. It lets no account do anything.
type pages struct {
	client.Client

	leases [][]coordinationv1.Lease
}

func (p pages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	leases, ok := list.(*coordinationv1.LeaseList)
	if !ok || o.LabelSelector == nil { // those of leaders
		return nil
	}
	page := 0
	if o.Continue != "" {
		page, _ = strconv.Atoi(o.Continue)
	}
	leases.Items = p.leases[page]
	if page+1 < len(p.leases) {
		leases.Continue = strconv.Itoa(page + 1)
	}
	return nil
}

func (p pages) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if review, ok := o.(*authorizationv1.SubjectAccessReview); ok {
		review.Status.Allowed = review.Spec.User == userOf("flow", operatorName)
	}
	return nil
}

func leaseIn(namespace, holder string) coordinationv1.Lease {
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x", Labels: map[string]string{ownership.LeaseLabel: ownership.MemberLease}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
}

// The Leases of one namespace may fill the first answers.
//
// mutation: leasesElsewhere that reads one page alone makes this fail.
func TestLeasesBehindManyOfATenantAreFound(t *testing.T) {
	k := &kube{Client: pages{leases: [][]coordinationv1.Lease{{leaseIn("aaa", "")}, {leaseIn("aaa", "x")}, {leaseIn("flow", "pod")}}}}
	e := k.elsewhere(t.Context(), shippedNamespace, check.Operator{})
	if e.Why != "" || len(e.Replicas) != 2 || e.Replicas[1].Namespace != "flow" {
		t.Errorf("got %+v", e)
	}
	if len(e.Entitled) != 1 || e.Entitled[0] != "flow" {
		t.Errorf("entitled are %v", e.Entitled)
	}
}

// mutations: leasesElsewhere that gives what it has of too many, or elsewhere that takes namespaces
// it did not ask about for those of tenants, makes this fail.
func TestMoreLeasesThanAreReadAreNotTakenForAll(t *testing.T) {
	k := &kube{Client: pages{leases: make([][]coordinationv1.Lease, maxPages+1)}}
	if e := k.elsewhere(t.Context(), shippedNamespace, check.Operator{}); e.Why == "" || e.Hint == "" {
		t.Errorf("of too many Leases: %+v", e)
	}
	var many []coordinationv1.Lease
	for i := range maxEntitled + 1 {
		many = append(many, leaseIn(fmt.Sprintf("n%d", i), "x"))
	}
	k = &kube{Client: pages{leases: [][]coordinationv1.Lease{many}}}
	if e := k.elsewhere(t.Context(), shippedNamespace, check.Operator{}); e.Asked.Why == "" || e.Why != "" {
		t.Errorf("of too many namespaces: %+v", e)
	}
}
