// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all kinds of this package.
var GroupVersion = schema.GroupVersion{Group: "syncopate.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &WorkflowRun{}, &WorkflowRunList{}, &LockPolicy{}, &LockPolicyList{},
		&StepApproval{}, &StepApprovalList{}, &Semaphore{}, &SemaphoreList{}, &Workflow{}, &WorkflowList{},
		&Schedule{}, &ScheduleList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
