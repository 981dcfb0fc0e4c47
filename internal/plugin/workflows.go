// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
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

// withSteps gives a run the steps of the Workflow that it follows. Where these may not be read, or
// are gone, they are those of its status, of which less is known.
func withSteps(ctx context.Context, c client.Reader, run *v1alpha1.WorkflowRun) (*v1alpha1.WorkflowRun, error) {
	if run.Spec.WorkflowRef == nil || run.Status == nil || run.Status.Workflow == nil {
		return run, nil
	}
	content, err := revisionOf(ctx, c, run.Namespace, *run.Status.Workflow)
	switch {
	case errors.Is(err, revisions.ErrGone), apierrors.IsForbidden(err):
		return outlined(run), nil
	case err != nil:
		return nil, err
	}
	inputs, _ := content.Inputs(run.Spec.Inputs)
	return content.Effective(run, inputs), nil
}

func revisionOf(ctx context.Context, c client.Reader, namespace string, r v1alpha1.WorkflowRevision) (*template.Content, error) {
	store := revisions.Store{Live: c}
	content, _, err := store.Load(ctx, namespace, r)
	return content, err
}

// outlined is a run with steps as far as its status tells of them.
func outlined(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	next := *run
	for i := range run.Status.Steps {
		s := &run.Status.Steps[i]
		is := v1alpha1.Step{Name: s.Name}
		switch {
		case s.ChildRun != nil:
			is.Run = &v1alpha1.ChildRun{}
		case s.Approval != nil || s.Phase == v1alpha1.StepWaiting:
			is.Approval = &v1alpha1.Approval{}
		case s.DelayedUntil != nil:
			is.Delay = &v1alpha1.Delay{}
		default:
			is.Job = &v1alpha1.Job{}
		}
		next.Spec.Steps = append(next.Spec.Steps, is)
	}
	return &next
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
	list.SetGroupVersionKind(revisionKind("ControllerRevisionList"))
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
