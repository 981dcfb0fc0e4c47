// SPDX-License-Identifier: Apache-2.0

package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/runwatch"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// cached is what each replica keeps of objects in memory. Nobody asks for managedFields, and runs
// are many. A read makes no cache: it would be one that slim may not know, of a kind that the
// operator may not even watch, for which the read would then wait. It is an error at once, and what
// is read is among warmKinds.
func cached(informers runwatch.NewInformer) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(), NewInformer: informers, ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.StepApproval{}: {Transform: slim}, &v1alpha1.Schedule{}: {Transform: slim}, &v1alpha1.Workflow{}: {Transform: slim},
		},
	}
}

// slim leaves out of an object what the operator does not read, and what may be as large as an
// object can be. Of decisions it writes owner references alone, by a patch; of schedules and
// Workflows their status, with which the API server takes nothing else. So nothing is lost. Of
// Workflows replicas have the metadata alone: the names, and which version each has.
func slim(o any) (any, error) {
	switch o := o.(type) {
	case *v1alpha1.StepApproval:
		o.ManagedFields, o.Labels, o.Annotations, o.Finalizers = nil, nil, nil, nil
	case *v1alpha1.Schedule:
		schedule.Slim(o)
	case *metav1.PartialObjectMetadata:
		o.ManagedFields, o.Labels, o.Annotations, o.Finalizers, o.OwnerReferences = nil, nil, nil, nil, nil
	}
	return o, nil
}
