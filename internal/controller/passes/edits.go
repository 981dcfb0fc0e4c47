// SPDX-License-Identifier: Apache-2.0

package passes

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// OtherSpec says that an update may be one of the spec. While a watch was cut an object may be
// deleted and another one of its name be made. The next list tells both as one update, and both
// objects have generation 1.
func OtherSpec(was, now metav1.Object) bool {
	return was.GetGeneration() != now.GetGeneration() || was.GetUID() != now.GetUID()
}

// OfSpecs leaves out the updates that are of no spec, by OtherSpec.
func OfSpecs() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld != nil && e.ObjectNew != nil && OtherSpec(e.ObjectOld, e.ObjectNew)
	}}
}
