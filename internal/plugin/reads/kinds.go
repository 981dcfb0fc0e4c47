// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Kinds are those that people read and write. It also says where the kinds are, so that the server
// need not be asked.
func Kinds() (*runtime.Scheme, meta.RESTMapper, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return nil, nil, fmt.Errorf("register kinds: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("WorkflowRun"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("StepApproval"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Workflow"), meta.RESTScopeNamespace)
	mapper.Add(RevisionKind("ControllerRevision"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Schedule"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Semaphore"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	mapper.AddSpecific(v1alpha1.GroupVersion.WithKind("LockPolicy"), v1alpha1.GroupVersion.WithResource("lockpolicies"),
		v1alpha1.GroupVersion.WithResource("lockpolicy"), meta.RESTScopeRoot)
	return scheme, mapper, nil
}

// RevisionKind is a kind of ControllerRevisions: of one, or of a list.
func RevisionKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}
}
