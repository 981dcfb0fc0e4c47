// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// livePage is the number of runs per page of a live list.
const livePage = 500

// LiveRuns lists all runs live: UID to name.
func LiveRuns(ctx context.Context, api client.Reader) (map[types.UID]types.NamespacedName, error) {
	all := map[types.UID]types.NamespacedName{}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkflowRunList"))
	for {
		if err := api.List(ctx, page, client.Limit(livePage), client.Continue(page.Continue)); err != nil {
			return nil, fmt.Errorf("list runs live: %w", err)
		}
		for i := range page.Items {
			all[page.Items[i].UID] = client.ObjectKeyFromObject(&page.Items[i])
		}
		if page.Continue == "" {
			return all, nil
		}
	}
}
