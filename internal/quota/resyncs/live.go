// SPDX-License-Identifier: Apache-2.0

package resyncs

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// ErrDoubted is returned of a run that does not exist by the word of the API server, and exists by
// the cache. A load balancer, or a server that is ill, says so of anything, and what such a run has
// would be given away while it goes on. Try again: the watch soon says which is true.
var ErrDoubted = errors.New("the API server says that the run does not exist, and its watch says that it does")

// Read reads a run live. nil: there is none of that name, and the cache does not have the one with
// that UID either. What is read may have another UID.
//
// Errors: those of the API server and the cache, ErrDoubted.
func Read(ctx context.Context, live, cache client.Reader, name types.NamespacedName, uid types.UID) (*v1alpha1.WorkflowRun, error) {
	run := &v1alpha1.WorkflowRun{}
	err := live.Get(ctx, name, run)
	switch {
	case err == nil:
		return run, nil
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("read run %s: %w", name, err)
	}
	seen := &v1alpha1.WorkflowRun{}
	err = cache.Get(ctx, name, seen)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("read run %s from the cache: %w", name, err)
	case err == nil && seen.UID == uid:
		return nil, fmt.Errorf("read run %s: %w", name, ErrDoubted)
	}
	return nil, nil //nolint:nilnil // that there is none is an answer
}
