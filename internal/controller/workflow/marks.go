// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// markTries bounds the tries to take a mark away from a Workflow that is edited all the time.
const markTries = 5

// unmark takes away the mark of a process that ended.
func (s *Sweeper) unmark(ctx context.Context, w *v1alpha1.Workflow, name string, kept int) error {
	if w.Status == nil || len(w.Status.Retiring) == 0 {
		return nil
	}
	return s.write(ctx, w, name, nil, kept)
}

// takeMark takes a mark away, also from a Workflow that was edited meanwhile: runs would wait until
// the next round.
func (s *Sweeper) takeMark(ctx context.Context, key types.NamespacedName, w *v1alpha1.Workflow, kept int) error {
	err := s.write(ctx, w, key.Name, nil, kept)
	for tries := 0; apierrors.IsConflict(err) && tries < markTries; tries++ {
		now, _, readErr := s.workflow(ctx, key, kept)
		if readErr != nil || now == nil {
			return readErr
		}
		err = s.unmark(ctx, now, key.Name, kept) // it may be another one of that name, without a status
	}
	return err
}
