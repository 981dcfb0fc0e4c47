// SPDX-License-Identifier: Apache-2.0

package revisions

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// Of is the Workflow whose revision a ControllerRevision is, and the revision; false: it is none of
// a Workflow. The label alone says nothing: Kubernetes copies the labels of a pod template onto the
// ControllerRevisions of its DaemonSet or StatefulSet, which own theirs. A revision of a Workflow
// has no owner.
func Of(o metav1.Object) (workflow, revision string, ok bool) {
	workflow = o.GetLabels()[v1alpha1.LabelWorkflow]
	revision, ok = strings.CutPrefix(o.GetName(), template.ObjectName(workflow, ""))
	if !ok || workflow == "" || !template.IsRevision(revision) || len(o.GetOwnerReferences()) > 0 || o.GetAnnotations()[v1alpha1.AnnotationWorkflowUID] == "" {
		return "", "", false
	}
	return workflow, revision, true
}
