// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Whoever may decide may give a decision a megabyte of labels, and each replica has all
// decisions in memory.
//
// mutation: cached without the transform of decisions makes this fail.
func TestLabelsOfDecisionsAreNotKeptInMemory(t *testing.T) {
	t.Parallel()
	owners := []metav1.OwnerReference{{Kind: "WorkflowRun", Name: "report", UID: "u"}}
	a := &v1alpha1.StepApproval{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "yes", UID: "a", ResourceVersion: "7", OwnerReferences: owners,
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}, Finalizers: []string{"x/y"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec: v1alpha1.StepApprovalSpec{Run: "report", Step: "ask", Approver: "eve"},
	}
	want := &v1alpha1.StepApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "yes", UID: "a", ResourceVersion: "7", OwnerReferences: owners}, Spec: a.Spec,
	}
	if diff := cmp.Diff(any(want), kept[*v1alpha1.StepApproval](t, a)); diff != "" {
		t.Errorf("kept: %s", diff)
	}
}

// kept is what replicas have in memory of an object of a kind.
func kept[Kind client.Object](t *testing.T, o any) any {
	t.Helper()
	for kind, by := range cached(nil).ByObject {
		if _, is := kind.(Kind); !is {
			continue
		}
		got, err := by.Transform(o)
		if err != nil {
			t.Error(err)
		}
		return got
	}
	t.Error("it is kept whole")
	return nil
}

// Whoever may write schedules and Workflows may give each a megabyte, and each replica has all of
// them in memory.
//
// mutations: cached without a transform of either, and one that drops who made a schedule,
// make this fail.
func TestWhatNobodyReadsOfSchedulesAndWorkflowsIsNotKeptInMemory(t *testing.T) {
	t.Parallel()
	some := map[string]string{"a": "b"}
	meta := metav1.ObjectMeta{
		Namespace: "ns", Name: "it", UID: "u", ResourceVersion: "7", Generation: 3, Labels: some, Annotations: some, Finalizers: []string{"x/y"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}, OwnerReferences: []metav1.OwnerReference{{Name: "x"}},
	}
	bare := metav1.ObjectMeta{Namespace: "ns", Name: "it", UID: "u", ResourceVersion: "7", Generation: 3}
	if diff := cmp.Diff(any(&metav1.PartialObjectMetadata{ObjectMeta: bare}), kept[*v1alpha1.Workflow](t, &metav1.PartialObjectMetadata{ObjectMeta: meta})); diff != "" {
		t.Errorf("of a Workflow: %s", diff)
	}
	s := &v1alpha1.Schedule{ObjectMeta: meta}
	s.Annotations = map[string]string{"a": "b", v1alpha1.AnnotationCreatedBy: "eve"}
	s.Spec.Cron, s.Spec.RunTemplate.Metadata.Labels, s.Spec.RunTemplate.Spec.Raw = []string{"0 * * * *"}, some, []byte(`{"steps":[]}`)
	want := s.DeepCopy()
	want.ObjectMeta = bare
	want.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "eve"}
	if diff := cmp.Diff(any(want), kept[*v1alpha1.Schedule](t, s)); diff != "" {
		t.Errorf("of a schedule: %s", diff)
	}
	s.Spec.RunTemplate.Spec.Raw = []byte(`{"junk":"` + strings.Repeat("x", 1<<20) + `"}`)
	small, err := json.Marshal(kept[*v1alpha1.Schedule](t, s))
	if err != nil || len(small) > 1<<10 {
		t.Errorf("%d bytes are kept of one of a megabyte, %v", len(small), err)
	}
}
