// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// confirmGone gives the answer that a Workflow is gone back as an error while the cache has it. A
// load balancer says so of anything for a moment, and nobody could make its history again.
func confirmGone(ctx context.Context, cache client.Reader, key types.NamespacedName, gone error) error {
	_, err := inCache(ctx, cache, key)
	if err == nil {
		return fmt.Errorf("the API server says that Workflow %s is gone, and its watch does not: %w", key, gone)
	}
	return client.IgnoreNotFound(err)
}

// inCache is what the cache has of a Workflow, which is its metadata. To ask for more would have
// this process watch all Workflows of the cluster a second time, whole.
func inCache(ctx context.Context, cache client.Reader, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	w := &metav1.PartialObjectMetadata{}
	w.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Workflow"))
	return w, cache.Get(ctx, key, w)
}
