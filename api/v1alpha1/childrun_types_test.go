// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mutations: ClaimsParent that reads the note where status or a controller says something else, or
// that reads half of one.
func TestClaimsParent(t *testing.T) {
	t.Parallel()
	owner := func(apiVersion, kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: "u-owner", Controller: new(true)}}
	}
	for name, c := range map[string]struct {
		note   string
		owners []metav1.OwnerReference
		status *WorkflowRunStatus
		want   *ParentStatus
	}{
		"nothing":                     {},
		"the controller":              {owners: owner("syncopate.dev/v1alpha1", "WorkflowRun"), want: &ParentStatus{Name: "owner", UID: "u-owner"}},
		"the controller, and a note":  {note: "p/u-p", owners: owner("syncopate.dev/v1alpha1", "WorkflowRun"), want: &ParentStatus{Name: "owner", UID: "u-owner"}},
		"a note":                      {note: ParentNote(&WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u-p"}}), want: &ParentStatus{Name: "p", UID: "u-p"}},
		"a note, in the queue":        {note: "p/u-p", status: &WorkflowRunStatus{Phase: RunQueued}, want: &ParentStatus{Name: "p", UID: "u-p"}},
		"a note, and status has none": {note: "p/u-p", status: &WorkflowRunStatus{Fence: new(int64(1))}},
		"a note, and another pinned":  {note: "p/u-p", status: &WorkflowRunStatus{Parent: &ParentStatus{Name: "q", UID: "u-q"}}, want: &ParentStatus{Name: "q", UID: "u-q"}},
		"a note, and another owner":   {note: "p/u-p", owners: owner("syncopate.dev/v1alpha1", "Schedule")},
		"a note without a uid":        {note: "p"},
		"a note without a name":       {note: "/u-p"},
	} {
		run := &WorkflowRun{Status: c.status}
		run.OwnerReferences = c.owners
		if c.note != "" {
			run.Annotations = map[string]string{AnnotationParent: c.note}
		}
		if diff := cmp.Diff(c.want, run.ClaimsParent()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
