// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// standing says which of two runs is first in a line.
type standing struct {
	priority int32
	created  time.Time
}

// standingOf is where a run stands in line. A child run stands where the run at the top does, whose
// work it is: that was admitted before the child was created, so its priority changes no more, and
// the cache has it as it was admitted, or newer, if it has the child. If it is gone, and only a
// clean-up goes on below it, the child has priority 0 and its own age. A run of that name which is
// younger than the child is another.
//
// Errors: those of the cache, other than that there is no such run.
func standingOf(ctx context.Context, cache client.Reader, run *v1alpha1.WorkflowRun) (standing, error) {
	if run.Status == nil || run.Status.Parent == nil {
		return standing{run.Spec.Priority, run.CreationTimestamp.Time}, nil
	}
	own, root := standing{created: run.CreationTimestamp.Time}, run.Status.Parent.Root
	if root == "" {
		return own, nil
	}
	top := &v1alpha1.WorkflowRun{}
	err := cache.Get(ctx, types.NamespacedName{Namespace: run.Namespace, Name: root}, top, client.UnsafeDisableDeepCopy) // it is only read
	switch {
	case apierrors.IsNotFound(err), err == nil && top.CreationTimestamp.After(own.created):
		return own, nil
	case err != nil:
		return standing{}, fmt.Errorf("read run %s at the top: %w", root, err)
	}
	return standing{top.Spec.Priority, top.CreationTimestamp.Time}, nil
}
