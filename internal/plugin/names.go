// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const (
	pageSize = 500
	maxPages = 200 // of names: 100,000
	// maxCompletions is how many names a shell is offered.
	maxCompletions = 200
	// completionTime is how long somebody may wait who presses a key.
	completionTime = 2 * time.Second
)

// eachName shows the metadata of the objects that options select, page by page, until visit wants
// no more. kind is that of the list. more says that 100,000 were read and there are others.
func eachName(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, visit func(*metav1.PartialObjectMetadata) bool, of ...client.ListOption) (more bool, err error) {
	next := ""
	for range maxPages {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := c.List(ctx, list, append([]client.ListOption{client.Limit(pageSize), client.Continue(next)}, of...)...); err != nil {
			return false, err
		}
		for i := range list.Items {
			if !visit(&list.Items[i]) {
				return false, nil
			}
		}
		if next = list.Continue; next == "" {
			return false, nil
		}
	}
	return true, nil
}

// completeRuns offers the names of runs to the shell.
func (a *app) completeRuns(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return completeNames(a, cmd, "WorkflowRunList", given, prefix)
}

// completeWorkflows offers the names of Workflows to the shell.
func (a *workflows) completeWorkflows(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return completeNames(a.app, cmd, "WorkflowList", given, prefix)
}

// completeNames offers the names of a kind that begin as what was typed, where nothing is given
// yet. It offers those that it finds in its time. kind is that of the list.
func completeNames(a *app, cmd *cobra.Command, kind string, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, namespace, err := a.Cluster()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	var names []string
	_, err = eachName(ctx, c, v1alpha1.GroupVersion.WithKind(kind), func(o *metav1.PartialObjectMetadata) bool {
		if strings.HasPrefix(o.Name, prefix) {
			names = append(names, o.Name)
		}
		return len(names) < maxCompletions
	}, client.InNamespace(namespace))
	if err != nil && len(names) == 0 {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
