// SPDX-License-Identifier: Apache-2.0

package actions

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// maxPrefix leaves room in a name for what the API server adds.
const maxPrefix = 50

// Again is a run that does again what another one did, from the start; it is to be created. A run
// that follows a Workflow is one of the revision that the other one had. The idempotency key is not
// taken over, and neither are suspend and shutdown.
func Again(was *v1alpha1.WorkflowRun) (*v1alpha1.WorkflowRun, error) {
	if was.ClaimsParent() != nil {
		return nil, useless("run %s is a child of run %s: run that one again", was.Name, was.ClaimsParent().Name)
	}
	next := &v1alpha1.WorkflowRun{Spec: *was.Spec.DeepCopy()}
	next.ObjectMeta = metav1.ObjectMeta{Namespace: was.Namespace, GenerateName: prefixOf(was.Name)}
	next.Spec.IdempotencyKey, next.Spec.Suspend, next.Spec.Shutdown, next.Spec.StartFrom = "", false, "", nil
	if ref := next.Spec.WorkflowRef; ref != nil && was.Status != nil && was.Status.Workflow != nil {
		ref.Revision = was.Status.Workflow.Revision
	}
	return next, nil
}

// AgainFrom is a run that does again what another one did, but for what is done there.
func AgainFrom(was *v1alpha1.WorkflowRun) (*v1alpha1.WorkflowRun, error) {
	next, err := Again(was)
	if err != nil {
		return nil, err
	}
	if !status.Finished(was) {
		return nil, useless("run %s has not ended", was.Name)
	}
	if was.Status.Phase == v1alpha1.RunSucceeded {
		return nil, useless("run %s succeeded: there is nothing to go on with", was.Name)
	}
	next.Spec.StartFrom = &v1alpha1.StartFrom{Run: was.Name, UID: string(was.UID)}
	return next, nil
}

// prefixOf is how the name of a run begins that runs another one again.
func prefixOf(name string) string {
	return strings.TrimRight(name[:min(len(name), maxPrefix)], "-.") + "-"
}
