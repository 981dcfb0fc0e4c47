// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/internal/template"
)

// mutation: revisionsOf that goes by the label alone.
func TestDiff_TakesNoRevisionOfADaemonSet(t *testing.T) {
	w, now, revision := reportOf(t, "new", 3)
	_, was, old := reportOf(t, "old", 1)
	theirs := was.DeepCopy() // its label is that of its pods
	theirs.Name, theirs.CreationTimestamp = template.ObjectName("report", "7d4f9c"), metav1.Unix(2, 0)
	theirs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "workers", UID: "u"}}
	s := newStarter(t, w, now, was, theirs)
	c, _, err := s.cluster()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := before(t.Context(), c, w, revision); err != nil || got != old {
		t.Errorf("the one before is %s, %v; want %s", got, err, old)
	}
}
