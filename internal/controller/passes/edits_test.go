// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutation: OtherSpec that compares generations only makes this fail.
func TestAnObjectThatWasReplacedHasAnotherSpec(t *testing.T) {
	t.Parallel()
	policy := func(uid types.UID, generation int64) *v1alpha1.LockPolicy {
		return &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "reports", UID: uid, Generation: generation}}
	}
	for name, test := range map[string]struct {
		now  *v1alpha1.LockPolicy
		want bool
	}{
		"a status":                          {policy("a", 1), false},
		"an edit":                           {policy("a", 2), true},
		"replaced while the watch was cut":  {policy("b", 1), true},
		"replaced and edited, and so again": {policy("b", 2), true},
	} {
		if got := OfSpecs().Update(event.UpdateEvent{ObjectOld: policy("a", 1), ObjectNew: test.now}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if !OfSpecs().Create(event.CreateEvent{Object: policy("a", 1)}) || !OfSpecs().Delete(event.DeleteEvent{Object: policy("a", 1)}) {
		t.Error("a new object, or one that is gone, is left out")
	}
}
