// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/policy"
)

// Kubernetes copies the labels of pods onto the ControllerRevisions of their DaemonSet.
//
// mutation: revisionsOf that goes by the label alone.
func TestRevisionsOfADaemonSetAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	for i := range maxRevisions {
		if err := w.client.Create(t.Context(), &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprint("workers-", i), Labels: map[string]string{policy.LabelRevisions: polled},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: polled, UID: "u"}},
			},
			Revision: int64(i), Data: runtime.RawExtension{Raw: []byte("{}")},
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.canaried()
	w.edit(fixed)
	w.pass()
	var kept appsv1.ControllerRevisionList
	if err := w.client.List(t.Context(), &kept, client.MatchingLabels{policy.LabelRevisions: polled}); err != nil || len(kept.Items) <= maxRevisions {
		t.Errorf("%d revisions are kept, %v; want %d of the DaemonSet, and those of the policy", len(kept.Items), err, maxRevisions)
	}
}
