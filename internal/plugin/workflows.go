// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// workflows are the commands about Workflows and their runs.
type workflows struct{ *app }

// workflow reads a Workflow; nil if it may not be read: who may run one need not see it.
func (a *workflows) workflow(ctx context.Context, name string) (w *v1alpha1.Workflow, c client.Client, namespace string, err error) {
	if c, namespace, err = a.Cluster(); err != nil {
		return nil, nil, "", err
	}
	w = &v1alpha1.Workflow{}
	switch err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, w); {
	case apierrors.IsForbidden(err):
		return nil, c, namespace, nil
	case err != nil:
		return nil, nil, "", fmt.Errorf("workflow %s/%s: %w", namespace, name, err)
	}
	return w, c, namespace, nil
}

// theCurrent names the revision of a Workflow as it is now.
const theCurrent = "current"

// currentRevision is the revision of a Workflow as it is now. The operator names it: it may be of a
// newer version, and know more fields of a Workflow than there are here.
func currentRevision(w *v1alpha1.Workflow) (string, error) {
	if revision, ok := revisions.Known(w); ok {
		return revision, nil
	}
	return "", fmt.Errorf("workflow %s/%s: the operator has not kept its newest version yet; its condition Ready says why, if that lasts", w.Namespace, w.Name)
}

// maxNamed bounds the revisions that an error names.
const maxNamed = 10

// fullRevision is the revision of a Workflow that begins as given. All of one is taken as it is
// where revisions may not be read: who may run a Workflow need not see it.
func fullRevision(ctx context.Context, c client.Reader, namespace, workflow, given string) (string, error) {
	if len(given) == template.RevisionDigits {
		store := revisions.Store{Live: c}
		err := store.Has(ctx, namespace, v1alpha1.WorkflowRevision{Name: workflow, Revision: given})
		if err != nil && !apierrors.IsForbidden(err) {
			return "", fmt.Errorf("workflow %s: %w", workflow, err)
		}
		return given, nil
	}
	all, err := revisionsOf(ctx, c, namespace, workflow)
	if apierrors.IsForbidden(err) {
		return "", fmt.Errorf("revision %q of workflow %s: you may not list them: give all %d digits: %w", given, workflow, template.RevisionDigits, err)
	}
	if err != nil {
		return "", err
	}
	var found []string
	for _, r := range all {
		if strings.HasPrefix(r, given) {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d revisions of workflow %s begin with %q; of %d the newest are %v", len(found), workflow, given, len(all), all[:min(len(all), maxNamed)])
	}
	return found[0], nil
}

// revisionsOf are the revisions of a Workflow that are kept, the newest first.
func revisionsOf(ctx context.Context, c client.Reader, namespace, workflow string) ([]string, error) {
	var kept []metav1.PartialObjectMetadata
	more, err := eachName(ctx, c, reads.RevisionKind("ControllerRevisionList"), func(r *metav1.PartialObjectMetadata) bool {
		if of, _, ours := revisions.Of(r); ours && of == workflow {
			kept = append(kept, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: r.Name, CreationTimestamp: r.CreationTimestamp}})
		}
		return true
	}, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelWorkflow: workflow})
	switch {
	case err != nil:
		return nil, fmt.Errorf("list revisions of workflow %s: %w", workflow, err)
	case more:
		return nil, fmt.Errorf("workflow %s has more than %d revisions: name them, all %d digits", workflow, len(kept), template.RevisionDigits)
	}
	slices.SortStableFunc(kept, func(a, b metav1.PartialObjectMetadata) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	var all []string
	for i := range kept {
		all = append(all, kept[i].Name[len(workflow)+1:])
	}
	return all, nil
}
