// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// errNewer says why a run is neither cancelled nor deleted that an operator of this version may not
// write.
var errNewer = errors.New("it needs an operator of a newer version")

// newer says whether a run needs a newer operator, as the decision or the cache has it: the list of
// which it was decided may be older than the cache, and a run that was read live need not be in the
// cache yet. What the cache has of another run of its name says nothing.
func (r *Reconciler) newer(ctx context.Context, s *v1alpha1.Schedule, one *schedule.Run) (bool, error) {
	if one.NeedsNewer {
		return true, nil
	}
	run := object(s, one)
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(run), run); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("look at run %s before it is cancelled: %w", one.Name, err)
	}
	return run.NeedsNewer() > 0 && (one.UID == "" || one.UID == string(run.UID)), nil
}
