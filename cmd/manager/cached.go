// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/runwatch"
)

// cached is what each replica keeps of objects in memory. Nobody asks for managedFields, and runs
// are many.
func cached(informers runwatch.NewInformer) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(), NewInformer: informers,
		ByObject: map[client.Object]cache.ByObject{&v1alpha1.StepApproval{}: {Transform: slimApproval}},
	}
}

// slimApproval leaves out of a decision what the operator does not read, and what may be as large
// as an object can be. It writes owner references alone, by a patch, so nothing is lost.
func slimApproval(o any) (any, error) {
	if a, is := o.(*v1alpha1.StepApproval); is {
		a.ManagedFields, a.Labels, a.Annotations, a.Finalizers = nil, nil, nil, nil
	}
	return o, nil
}
