// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// maxChildren bounds the child runs that are read for one answer.
const maxChildren = 50

// children are the child runs that a run has under way; those that are gone are left out.
func children(ctx context.Context, c client.Reader, run *v1alpha1.WorkflowRun) ([]v1alpha1.WorkflowRun, error) {
	names := runview.Children(run)
	var all []v1alpha1.WorkflowRun
	for _, name := range names[:min(len(names), maxChildren)] {
		var child v1alpha1.WorkflowRun
		err := c.Get(ctx, types.NamespacedName{Namespace: run.Namespace, Name: name}, &child)
		switch {
		case err == nil:
			shown, err := withSteps(ctx, c, &child)
			if err != nil {
				return nil, err
			}
			all = append(all, *shown)
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("child run %s/%s: %w", run.Namespace, name, err)
		}
	}
	return all, nil
}
