// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// seen is what a look at a Workflow found that left nothing to do.
type seen struct {
	version   string // the resourceVersion of the Workflow
	revisions int
}

// note notes that there is nothing to do for a Workflow that has so many revisions.
func (s *Sweeper) note(key types.NamespacedName, w *v1alpha1.Workflow, revisions int) {
	if s.seen == nil {
		s.seen = map[types.NamespacedName]seen{}
	}
	s.seen[key] = seen{w.ResourceVersion, revisions}
}

// unchanged says whether a Workflow is, by the cache, as it was when there was nothing to do. Its
// content is not read for that: there may be thousands, of up to 1 MiB.
func (s *Sweeper) unchanged(ctx context.Context, key types.NamespacedName, revisions int) bool {
	last, ok := s.seen[key]
	if !ok || last.revisions != revisions {
		return false
	}
	now, err := inCache(ctx, s.Client, key)
	return err == nil && now.ResourceVersion == last.version
}
