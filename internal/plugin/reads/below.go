// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// Below is a run below one that has ended, at any level, that is under way, as it is at its
// clean-up; nil: none is. The operator asks the same.
func Below(ctx context.Context, c client.Reader, run *v1alpha1.WorkflowRun) (*v1alpha1.WorkflowRun, error) {
	seen := map[types.UID]bool{} // what a status says need not be a tree
	for above := []*v1alpha1.WorkflowRun{run}; len(above) > 0; above = above[1:] {
		for i := range above[0].Status.Steps {
			named := above[0].Status.Steps[i].ChildRun
			if named == nil || named.UID == "" || seen[types.UID(named.UID)] {
				continue
			}
			seen[types.UID(named.UID)] = true
			child, err := childRun(ctx, c, run.Namespace, named)
			if err != nil || child != nil && !status.Finished(child) {
				return child, err
			}
			if child != nil {
				above = append(above, child)
			}
		}
	}
	return nil, nil //nolint:nilnil // that there is none is an answer
}

// childRun reads a run that a status names; nil: it is gone.
func childRun(ctx context.Context, c client.Reader, namespace string, named *v1alpha1.ChildRunStatus) (*v1alpha1.WorkflowRun, error) {
	child := &v1alpha1.WorkflowRun{}
	err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: named.Name}, child)
	switch {
	case apierrors.IsNotFound(err) || err == nil && string(child.UID) != named.UID:
		return nil, nil //nolint:nilnil // that it is gone is an answer
	case err != nil:
		return nil, fmt.Errorf("child run %s/%s: %w", namespace, named.Name, err)
	}
	return child, nil
}
