// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const (
	// roundPause is the time between two rounds.
	roundPause = time.Minute
	// pageSize bounds the objects of one answer of the API server.
	pageSize = 500
	// runsPage is a page of whole runs, each of up to 1.5 MiB.
	runsPage = 50
	// maxRetiring bounds the revisions of one Workflow that a round deletes.
	maxRetiring = 100
	// defaultHistory is that of the schema, for objects that did not pass it.
	defaultHistory = 10
)

// Sweeper deletes revisions that nobody needs. It is to run in one replica.
type Sweeper struct {
	// Client reads runs from the cache, and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Clock tells the time.
	Clock clock.Clock
	// Owner names who writes.
	Owner client.FieldOwner
}

// Start makes rounds until ctx ends.
func (s *Sweeper) Start(ctx context.Context) error {
	for {
		if err := s.Round(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("Revisions of Workflows are looked at again", "delay", roundPause, "cause", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(roundPause):
		}
	}
}

// revision is what is known of a ControllerRevision.
type revision struct {
	name    string // of the object
	created metav1.Time
	uid     types.UID
	version string
}

func (r revision) of(workflow string) string { return strings.TrimPrefix(r.name, workflow+"-") }

// Round looks at all revisions once.
func (s *Sweeper) Round(ctx context.Context) error {
	all, err := s.list(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for key, revisions := range all {
		if ctx.Err() != nil {
			break
		}
		if err := s.sweep(ctx, key, revisions); err != nil {
			errs = append(errs, fmt.Errorf("workflow %s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

// list lists the revisions of all Workflows, without their content.
func (s *Sweeper) list(ctx context.Context) (map[types.NamespacedName][]revision, error) {
	all := map[types.NamespacedName][]revision{}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevisionList"))
	for {
		if err := s.Live.List(ctx, page, client.HasLabels{v1alpha1.LabelWorkflow}, client.Limit(pageSize), client.Continue(page.Continue)); err != nil {
			return nil, fmt.Errorf("list revisions: %w", err)
		}
		for i := range page.Items {
			o := &page.Items[i]
			key := types.NamespacedName{Namespace: o.Namespace, Name: o.Labels[v1alpha1.LabelWorkflow]}
			all[key] = append(all[key], revision{o.Name, o.CreationTimestamp, o.UID, o.ResourceVersion})
		}
		if page.Continue == "" {
			return all, nil
		}
	}
}

// sweep deletes the revisions of one Workflow that nobody needs. They were listed before.
func (s *Sweeper) sweep(ctx context.Context, key types.NamespacedName, listed []revision) error {
	w, settled, err := s.workflow(ctx, key)
	if err != nil || !settled {
		return err
	}
	old, err := s.unused(ctx, s.Client, key, candidates(w, key.Name, listed), client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	old = old[:min(len(old), maxRetiring)]
	if err := s.write(ctx, w, key.Name, old, len(listed)); err != nil || len(old) == 0 {
		return err
	}
	byName := client.MatchingFields{"spec.workflowRef.name": key.Name}
	if old, err = s.unused(ctx, s.Live, key, old, byName, client.Limit(runsPage)); err != nil {
		return err
	}
	for _, r := range old {
		if err := s.delete(ctx, key.Namespace, r); err != nil {
			return err
		}
	}
	return s.write(ctx, w, key.Name, nil, len(listed)-len(old))
}

// workflow reads a Workflow, nil if it is gone. It is not settled while its current revision is
// about to be written.
func (s *Sweeper) workflow(ctx context.Context, key types.NamespacedName) (w *v1alpha1.Workflow, settled bool, err error) {
	w = &v1alpha1.Workflow{}
	err = s.Live.Get(ctx, key, w)
	if apierrors.IsNotFound(err) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read: %w", err)
	}
	return w, w.Status != nil && w.Status.ObservedGeneration == w.Generation, nil
}

// candidates are the revisions that are not the current one, and not among the last. Of a Workflow
// that is gone, w is nil, all are.
func candidates(w *v1alpha1.Workflow, name string, listed []revision) []revision {
	old := slices.Clone(listed)
	slices.SortStableFunc(old, func(a, b revision) int {
		return cmp.Or(b.created.Compare(a.created.Time), cmp.Compare(a.name, b.name))
	})
	if w == nil {
		return old
	}
	old = slices.DeleteFunc(old, func(r revision) bool { return r.of(name) == w.Status.Revision })
	limit := defaultHistory
	if l := w.Spec.RevisionHistoryLimit; l != nil {
		limit = int(*l)
	}
	return old[min(len(old), limit):]
}

// unused are the revisions that no run names, by a list of runs; none while a run may still choose.
func (s *Sweeper) unused(ctx context.Context, from client.Reader, key types.NamespacedName, old []revision, options ...client.ListOption) ([]revision, error) {
	if len(old) == 0 {
		return nil, nil
	}
	page := &v1alpha1.WorkflowRunList{}
	for {
		if err := from.List(ctx, page, append(options, client.InNamespace(key.Namespace), client.Continue(page.Continue))...); err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		for i := range page.Items {
			if old = without(old, key.Name, &page.Items[i]); len(old) == 0 {
				return nil, nil
			}
		}
		if page.Continue == "" {
			return old, nil
		}
	}
}

// without are the revisions that a run does not keep. One that may still choose keeps all.
func without(old []revision, workflow string, run *v1alpha1.WorkflowRun) []revision {
	ref, st := run.Spec.WorkflowRef, run.Status
	switch {
	case ref == nil || ref.Name != workflow:
		return old
	case st != nil && st.Workflow != nil:
		return slices.DeleteFunc(old, func(r revision) bool { return r.of(workflow) == st.Workflow.Revision })
	case st == nil || st.CompletedAt == nil:
		return nil
	default:
		return old
	}
}

// write says in status which revisions are about to be deleted, and how many there are. The API
// server refuses it if the Workflow changed since it was read.
func (s *Sweeper) write(ctx context.Context, w *v1alpha1.Workflow, name string, retiring []revision, kept int) error {
	if w == nil {
		return nil
	}
	next := w.Status.DeepCopy()
	next.Retiring, next.Revisions = nil, int32(kept)
	for _, r := range retiring {
		next.Retiring = append(next.Retiring, r.of(name))
	}
	if equality.Semantic.DeepEqual(w.Status, next) {
		return nil
	}
	w.Status = next
	if err := s.Client.Status().Update(ctx, w, s.Owner); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

// delete deletes a revision, if it is what was listed.
func (s *Sweeper) delete(ctx context.Context, namespace string, r revision) error {
	o := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.name}}
	err := s.Client.Delete(ctx, o, client.Preconditions{UID: &r.uid, ResourceVersion: &r.version})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete revision %s: %w", r.name, err)
	}
	return nil
}
