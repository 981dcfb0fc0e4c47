// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// confirmGone gives the answer that a Workflow is gone back as an error while the cache has it. A
// load balancer says so of anything for a moment, and nobody could make its history again.
func confirmGone(ctx context.Context, cache client.Reader, key types.NamespacedName, gone error) error {
	err := cache.Get(ctx, key, &v1alpha1.Workflow{})
	if err == nil {
		return fmt.Errorf("the API server says that Workflow %s is gone, and its watch does not: %w", key, gone)
	}
	return client.IgnoreNotFound(err)
}
