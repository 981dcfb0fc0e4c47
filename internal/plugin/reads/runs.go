// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const (
	pageSize = 500
	maxPages = 200 // of runs: 100,000
)

// UnderWay lists the runs of all namespaces or, where that is forbidden, of one; all says which.
func UnderWay(ctx context.Context, c client.Reader, namespace string) (runs []v1alpha1.WorkflowRun, all bool, err error) {
	runs, err = runsIn(ctx, c, "")
	if apierrors.IsForbidden(err) {
		runs, err = runsIn(ctx, c, namespace)
		return runs, false, err
	}
	return runs, true, err
}

func runsIn(ctx context.Context, c client.Reader, namespace string) ([]v1alpha1.WorkflowRun, error) {
	var runs []v1alpha1.WorkflowRun
	next := ""
	for range maxPages {
		var list v1alpha1.WorkflowRunList
		if err := c.List(ctx, &list, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		for i := range list.Items {
			if st := list.Items[i].Status; st != nil && st.CompletedAt == nil { // the others have no part in it
				runs = append(runs, list.Items[i])
			}
		}
		if next = list.Continue; next == "" {
			break
		}
	}
	return runs, nil
}

// maxChildren bounds the child runs that are read for one answer.
const maxChildren = 50

// Children are the child runs that a run has under way, as far as an answer tells of them: who they
// are, and how far. Those that are gone are left out. Each may be more than a MiB: no more than one
// is there as a whole at a time.
func Children(ctx context.Context, c client.Reader, run *v1alpha1.WorkflowRun) ([]v1alpha1.WorkflowRun, error) {
	names := runview.Children(run)
	var all []v1alpha1.WorkflowRun
	for _, name := range names[:min(len(names), maxChildren)] {
		var child v1alpha1.WorkflowRun
		err := c.Get(ctx, types.NamespacedName{Namespace: run.Namespace, Name: name}, &child)
		switch {
		case err == nil:
			all = append(all, brief(&child))
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("child run %s/%s: %w", run.Namespace, name, err)
		}
	}
	return all, nil
}

// brief is what a run's parent tells of it.
func brief(run *v1alpha1.WorkflowRun) v1alpha1.WorkflowRun {
	b := v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: run.Namespace, Name: run.Name, UID: run.UID}}
	if st := run.Status; st != nil {
		b.Status = &v1alpha1.WorkflowRunStatus{Phase: st.Phase, Progress: st.Progress}
	}
	return b
}
