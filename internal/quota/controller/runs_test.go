// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/testenv/likecache"
)

// twoKinds are policies and runs.
type twoKinds struct {
	likecache.Client
	runs likecache.Client
}

func (c twoKinds) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.WorkflowRunList); ok {
		return c.runs.List(ctx, list, opts...)
	}
	return c.Client.List(ctx, list, opts...)
}

// mutations: look, or policiesNow, that has the policies copied; look that goes through the classes
// of all policies for each class of a run.
func TestALookAtManyPoliciesIsCheap(t *testing.T) {
	var all likecache.Client
	policies := make([]*v1alpha1.LockPolicy, 1000)
	for i := range policies {
		policies[i] = &v1alpha1.LockPolicy{}
		policies[i].Name = fmt.Sprintf("policy-%03d", i)
		policies[i].Spec.Admission.Tenants = []v1alpha1.TenantLimit{{Name: "acme"}}
		for class := range 50 {
			policies[i].Spec.WorkloadClasses = append(policies[i].Spec.WorkloadClasses, fmt.Sprintf("class-%03d-%02d", i, class))
		}
		all.Objects = append(all.Objects, policies[i])
	}
	runs := likecache.Client{}
	for i := range 20_000 {
		run := &v1alpha1.WorkflowRun{}
		run.UID = types.UID(fmt.Sprint(i))
		run.Spec.WorkloadClass = fmt.Sprintf("class-%03d-%02d", 999-i/50, i%50)
		runs.Objects = append(runs.Objects, run)
	}
	began := time.Now()
	k := &Controller{client: twoKinds{all, runs}}
	v, err := k.look(t.Context())
	if err != nil || v.classes["class-999-49"] != "policy-999" || len(v.classes) != 20_000 {
		t.Fatalf("%d classes, %v", len(v.classes), err)
	}
	if took := time.Since(began); took > 10*time.Second { // it is some 100 ms
		t.Errorf("took %s", took)
	}
	now, err := policiesNow(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]*v1alpha1.TenantLimit{
		"look": &v.policies["policy-000"].Admission.Tenants[0], "policiesNow": &now["policy-000"].Admission.Tenants[0],
	} {
		if got != &policies[0].Spec.Admission.Tenants[0] {
			t.Errorf("%s copies", what)
		}
	}
}
