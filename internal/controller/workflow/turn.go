// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// longestTurn is how long a round looks at Workflows of one namespace before it goes on with the
// next: each of thousands may take longestSweep.
const longestTurn = 2 * longestSweep

// sweepNamespace looks at the revisions of a namespace. Its runs are looked through once for all of
// its Workflows: there may be thousands of both. What it does not come to is first in the next
// round.
func (s *Sweeper) sweepNamespace(ctx context.Context, namespace string, workflows map[string][]revision) error {
	cached := sync.OnceValues(func() (keeps, error) { return s.cached(ctx, namespace) })
	names := slices.Sorted(maps.Keys(workflows))
	at, _ := slices.BinarySearch(names, s.next[namespace])
	delete(s.next, namespace)
	began := s.Clock.Now()
	var errs []error
	for _, name := range slices.Concat(names[at:], names[:at]) {
		if ctx.Err() != nil {
			break
		}
		if s.Clock.Since(began) >= longestTurn {
			s.leave(namespace, name)
			break
		}
		if err := s.sweep(ctx, types.NamespacedName{Namespace: namespace, Name: name}, workflows[name], cached); err != nil {
			errs = append(errs, fmt.Errorf("workflow %s/%s: %w", namespace, name, err))
		}
	}
	return errors.Join(errs...)
}

// leave has the next round begin with a Workflow.
func (s *Sweeper) leave(namespace, name string) {
	if s.next == nil {
		s.next = map[string]string{}
	}
	s.next[namespace] = name
}
