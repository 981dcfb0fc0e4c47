// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// That is what the API server does with a write of status, and what encoded relies on.
//
// mutation: Put without the subresource makes this fail: no run gets anywhere.
var _ = Describe("a status write", func() {
	It("leaves all but the status as it was: spec, labels, annotations, finalizers, owners, and who set which field", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b", "a")})
		run.Labels, run.Annotations = map[string]string{"team": "a"}, map[string]string{"note": "b"}
		run.Finalizers = append(run.Finalizers, "example.org/kept")
		run.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "d"}}
		Expect(w.client.Update(ctx, run)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { w.patch(ctx, run, `{"metadata":{"finalizers":[]}}`) })
		before := w.get(ctx, run)
		others := fieldsOfOthers(before)
		Expect(others).NotTo(BeEmpty())

		r.finish(ctx, run)
		after := w.get(ctx, run)
		Expect(after.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(after.Spec).To(Equal(before.Spec))
		Expect(after.Labels).To(Equal(before.Labels))
		Expect(after.Annotations).To(Equal(before.Annotations))
		Expect(after.Finalizers).To(ContainElement("example.org/kept"))
		Expect(after.OwnerReferences).To(Equal(before.OwnerReferences))
		Expect(after.Generation).To(Equal(before.Generation))
		Expect(fieldsOfOthers(after)).To(Equal(others))
	}, NodeTimeout(2*patience))
})

// fieldsOfOthers are the fields that others than the operator set.
func fieldsOfOthers(run *v1alpha1.WorkflowRun) (all []string) {
	for _, m := range run.ManagedFields {
		if m.Manager != string(FieldOwner) {
			all = append(all, m.Manager+" "+m.Subresource+" "+m.FieldsV1.GetRawString())
		}
	}
	return all
}
