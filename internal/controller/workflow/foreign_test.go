// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// A team labels the pods of its workers with the Workflow that they work for: Kubernetes copies the
// label onto the ControllerRevisions of their DaemonSet, by which it undoes a roll-out.
//
// mutations: list that goes by the label alone; Of without one of its questions.
func TestSweeper_LeavesRevisionsOfOthersAlone(t *testing.T) {
	w := newWorld(t)
	hash := strings.Repeat("0", 18)
	owners := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "workers", UID: "u", Controller: new(true)}}
	ours := map[string]string{v1alpha1.AnnotationWorkflowUID: "u"}
	foreign := func(name, workflow string, owners []metav1.OwnerReference, annotations map[string]string) string {
		w.must(w.client.Create(t.Context(), &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.ns, Name: name, Labels: map[string]string{v1alpha1.LabelWorkflow: workflow}, OwnerReferences: owners, Annotations: annotations,
			},
			Data: runtime.RawExtension{Raw: []byte(`{}`)},
		}))
		return strings.TrimPrefix(name, workflow+"-")
	}
	var theirs []string
	for _, workflow := range []string{"report", "nobody"} {
		for i := range 3 {
			theirs = append(theirs,
				foreign(fmt.Sprintf("%s-%sa%d", workflow, hash, i), workflow, owners, ours), // its annotations are those of its set
				foreign(fmt.Sprintf("%s-%sb%d", workflow, hash, i), workflow, owners, nil),  // also one that is named as ours are
				foreign(fmt.Sprintf("%s-%sc%d", workflow, hash, i), workflow, nil, nil),     // one that somebody copied
				foreign(fmt.Sprintf("%s-workers-7d4%d", workflow, i), workflow, nil, ours),  // a name that is none of ours
				foreign(fmt.Sprintf("%s%s%d", hash, workflow, i), workflow, nil, ours),      // of no Workflow
				foreign(fmt.Sprintf("%s-%sx%d", workflow, hash, i), workflow, nil, ours))    // no hash
		}
	}
	var all []string
	for v := range 3 {
		all = append(all, w.workflow("report", fmt.Sprint("v", v), 1).Status.Revision)
	}
	w.sweep()
	kept := append(w.kept("report"), w.kept("nobody")...)
	for _, name := range theirs {
		if !slices.Contains(kept, name) {
			t.Errorf("%s is deleted", name)
		}
	}
	if len(kept) != len(theirs)+2 || !slices.Contains(kept, all[2]) {
		t.Errorf("%v are kept; of ours want 2 of %v", kept, all)
	}
	if st := w.status("report"); st.Revisions != 2 {
		t.Errorf("%d revisions in status", st.Revisions)
	}
}
