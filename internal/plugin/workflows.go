// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
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

// fullRevision is the revision of a Workflow that begins as given; "current" is the current one.
func (a *workflows) fullRevision(ctx context.Context, c client.Reader, w *v1alpha1.Workflow, given string) (string, error) {
	if given == "" || given == "current" {
		_, revision, err := template.Encode(&w.Spec)
		return revision, err
	}
	all, err := revisionsOf(ctx, c, w.Namespace, w.Name)
	if err != nil {
		return "", err
	}
	var found []string
	for _, r := range all {
		if len(given) <= len(r) && r[:len(given)] == given {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d revisions of workflow %s begin with %q; there are %v", len(found), w.Name, given, all)
	}
	return found[0], nil
}

// revisionsOf are the revisions of a Workflow that are kept, the newest first.
func revisionsOf(ctx context.Context, c client.Reader, namespace, workflow string) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(reads.RevisionKind("ControllerRevisionList"))
	err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelWorkflow: workflow}, client.Limit(pageSize))
	if err != nil {
		return nil, fmt.Errorf("list revisions of workflow %s: %w", workflow, err)
	}
	slices.SortStableFunc(list.Items, func(a, b metav1.PartialObjectMetadata) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	var all []string
	for i := range list.Items {
		if name := list.Items[i].Name; len(name) > len(workflow)+1 {
			all = append(all, name[len(workflow)+1:])
		}
	}
	return all, nil
}

// completeWorkflows offers the names of Workflows to the shell.
func (a *workflows) completeWorkflows(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, namespace, err := a.Cluster()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkflowList"))
	if err := c.List(cmd.Context(), list, client.InNamespace(namespace), client.Limit(maxCompletions)); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
