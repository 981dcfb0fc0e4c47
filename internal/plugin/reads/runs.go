// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const (
	pageSize = 100 // a run may have 1.5 MiB
	maxPages = 1000
	// MaxRuns bounds the runs that are read for one answer.
	MaxRuns = pageSize * maxPages
)

// NotEnded is v1alpha1.FieldsNotEnded as an option of a list.
func NotEnded() client.ListOption {
	return client.MatchingFieldsSelector{Selector: fields.ParseSelectorOrDie(v1alpha1.FieldsNotEnded)}
}

// Seen are the runs under way that somebody may see.
type Seen struct {
	Runs []v1alpha1.WorkflowRun
	All  bool // of all namespaces; else of one
	More bool // there are others, beyond MaxRuns
}

// UnderWay lists the runs under way of all namespaces or, where that is forbidden, of one.
func UnderWay(ctx context.Context, c client.Reader, namespace string) (Seen, error) {
	seen, err := underWay(ctx, c, "")
	if apierrors.IsForbidden(err) {
		return underWay(ctx, c, namespace)
	}
	seen.All = true
	return seen, err
}

func underWay(ctx context.Context, c client.Reader, namespace string) (seen Seen, err error) {
	seen.More, err = Each(ctx, c, func(run *v1alpha1.WorkflowRun) bool {
		if st := run.Status; st != nil && st.CompletedAt == nil { // the others have no part in it
			seen.Runs = append(seen.Runs, *run)
		}
		return true
	}, client.InNamespace(namespace), NotEnded())
	return seen, err
}

// Each shows the runs that options select, page by page, until visit wants no more. more says that
// MaxRuns were read and there are others.
func Each(ctx context.Context, c client.Reader, visit func(*v1alpha1.WorkflowRun) bool, of ...client.ListOption) (more bool, err error) {
	next := ""
	for range maxPages {
		var list v1alpha1.WorkflowRunList
		if err := c.List(ctx, &list, append([]client.ListOption{client.Limit(pageSize), client.Continue(next)}, of...)...); err != nil {
			return false, fmt.Errorf("list runs: %w", err)
		}
		for i := range list.Items {
			if !visit(&list.Items[i]) {
				return false, nil
			}
		}
		if next = list.Continue; next == "" {
			return false, nil
		}
	}
	return true, nil
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
