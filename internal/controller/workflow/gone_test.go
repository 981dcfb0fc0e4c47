// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// One wrong answer that a Workflow is gone had all of its revisions deleted.
//
// mutation: workflow that does not ask confirmGone.
func TestSweeper_AWorkflowIsNotGoneByOneAnswer(t *testing.T) {
	w := newWorld(t)
	var all []string
	for version := range 3 {
		all = append(all, w.workflow("report", fmt.Sprint("v", version), 5).Status.Revision)
	}
	live, asked := w.s.Live, 0
	w.s.Live = interceptor.NewClient(w.client, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
		asked++
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflows").GroupResource(), key.Name)
	}})
	if err := w.s.Round(t.Context()); err == nil || asked == 0 {
		t.Errorf("a round with %d wrong answers: %v; want an error", asked, err)
	}
	w.keeps("report", all, []int{0, 1, 2})
	w.s.Live = live
	w.gone("report")
	w.sweep()
	w.keeps("report", all, nil)
}
