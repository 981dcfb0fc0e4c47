// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// maxTops bounds the runs at the top that are read for one answer.
const maxTops = 100

// Tops are the runs at the top, of those under way that wait for locks, which have ended: a child
// run stands in line where the run at the top does, also at its clean-up after that one ended. 100
// are read at most. After one that could not be read, other than by its rights, no other is asked
// for.
func Tops(ctx context.Context, c client.Reader, underWay []v1alpha1.WorkflowRun) runview.Tops {
	tops := runview.Tops{Unread: map[types.NamespacedName]bool{}}
	down := false
	for i, name := range runview.TopsMissing(underWay) {
		if down || i >= maxTops {
			tops.Unread[name] = true
			continue
		}
		top := &v1alpha1.WorkflowRun{}
		switch err := c.Get(ctx, name, top); {
		case err == nil:
			o := v1alpha1.WorkflowRun{}
			o.Namespace, o.Name, o.CreationTimestamp, o.Spec.Priority = top.Namespace, top.Name, top.CreationTimestamp, top.Spec.Priority
			tops.Ended = append(tops.Ended, o)
		case !apierrors.IsNotFound(err):
			tops.Unread[name] = true
			down = !apierrors.IsForbidden(err)
		}
	}
	return tops
}
