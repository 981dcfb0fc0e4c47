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

// What is kept of runs under way, in bytes.
const (
	maxWeight = MaxRuns * 4 << 10 // of outlines: of as many runs as are read, with a few locks each
	maxWhole  = 64 << 20          // of runs that are kept as a whole
)

// Detail is how much is kept of each run under way.
type Detail int

const (
	// Bare is who a run is, whose it is, and how far.
	Bare Detail = iota
	// Locks is also which locks across runs it has and waits for, and its steps and their items.
	Locks
)

// Seen are the runs under way that somebody may see.
type Seen struct {
	// Runs are outlines: runs may have a MiB each, and there may be very many.
	Runs []v1alpha1.WorkflowRun
	// Whole says which of them are there as a whole, since expressions tell which locks they wait
	// for: as many as have room.
	Whole map[types.UID]bool
	All   bool // of all namespaces; else of one
	More  bool // there are others, beyond MaxRuns or the memory that they may take
	// Bound is the number of runs beyond which others are not seen, if there are More.
	Bound int

	left, leftWhole int // bytes that more may take
}

// UnderWay lists the runs under way of all namespaces or, where that is forbidden, of one.
func UnderWay(ctx context.Context, c client.Reader, namespace string, detail Detail) (Seen, error) {
	seen, err := underWay(ctx, c, "", detail)
	if apierrors.IsForbidden(err) {
		return underWay(ctx, c, namespace, detail)
	}
	seen.All = true
	return seen, err
}

func underWay(ctx context.Context, c client.Reader, namespace string, detail Detail) (Seen, error) {
	seen, full := Seen{Whole: map[types.UID]bool{}, Bound: MaxRuns, left: maxWeight, leftWhole: maxWhole}, false
	more, err := Each(ctx, c, func(run *v1alpha1.WorkflowRun) bool {
		if run.Status == nil || run.Status.CompletedAt != nil { // these have no part in it
			return true
		}
		if full = seen.left <= 0; full {
			seen.Bound = len(seen.Runs)
			return false
		}
		seen.keep(run, detail)
		return true
	}, client.InNamespace(namespace), NotEnded())
	seen.More = more || full
	return seen, err
}

// keep adds a run: as a whole if that is of use, and has room.
func (s *Seen) keep(run *v1alpha1.WorkflowRun, detail Detail) {
	if detail == Locks && s.leftWhole > 0 && runview.WaitsByExpressions(run) {
		if weight := weightOfWhole(run); weight <= s.leftWhole {
			s.leftWhole -= weight
			s.Whole[run.UID] = true
			s.Runs = append(s.Runs, *run)
			return
		}
	}
	outline := outlineOf(run, detail)
	s.left -= WeightOf(&outline)
	s.Runs = append(s.Runs, outline)
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
// are, and how far. Those that are gone are left out. With an error these are those that were read
// before. Each may be more than a MiB: no more than one is there as a whole at a time.
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
			return all, fmt.Errorf("child run %s/%s: %w", run.Namespace, name, err)
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
