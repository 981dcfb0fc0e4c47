// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Whoever may decide may give a decision a megabyte of labels, and each replica has all
// decisions in memory.
//
// mutation: cached without the transform of decisions makes this fail.
func TestLabelsOfDecisionsAreNotKeptInMemory(t *testing.T) {
	t.Parallel()
	kept := []metav1.OwnerReference{{Kind: "WorkflowRun", Name: "report", UID: "u"}}
	a := &v1alpha1.StepApproval{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "yes", UID: "a", ResourceVersion: "7", OwnerReferences: kept,
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}, Finalizers: []string{"x/y"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec: v1alpha1.StepApprovalSpec{Run: "report", Step: "ask", Approver: "eve"},
	}
	want := &v1alpha1.StepApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "yes", UID: "a", ResourceVersion: "7", OwnerReferences: kept}, Spec: a.Spec,
	}
	found := 0
	for kind, by := range cached(nil).ByObject {
		if _, is := kind.(*v1alpha1.StepApproval); !is {
			continue
		}
		found++
		got, err := by.Transform(a)
		if diff := cmp.Diff(any(want), got); err != nil || diff != "" {
			t.Errorf("kept: %v, %s", err, diff)
		}
	}
	if found != 1 {
		t.Errorf("%d transforms of decisions", found)
	}
}
