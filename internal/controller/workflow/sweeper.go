// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/template"
)

const (
	// firstRound is when the first round begins: at a take-over all runs want their passes.
	firstRound = 10 * time.Second
	// roundPause is the time between two rounds.
	roundPause = time.Minute
	// pageSize bounds the objects of one answer of the API server.
	pageSize = 500
	// runsPage is a page of whole runs, each of up to 1.5 MiB.
	runsPage = 50
	// maxRetiring bounds the revisions of one Workflow that are deleted under one mark.
	maxRetiring = 100
	// longestSweep is how long a round goes on to delete those of one Workflow.
	longestSweep = 5 * time.Second
	// spare is how many revisions more than its history a Workflow may have whose current one is
	// about to be written. Beyond that they are deleted all the same: it is edited all the time.
	spare = 20
	// defaultHistory is that of the schema, for objects that did not pass it.
	defaultHistory = 10
)

// Sweeper deletes revisions that nobody needs. It is to run in one replica.
type Sweeper struct {
	// Client reads runs, and Workflows that may be gone, from the cache, and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Clock tells the time.
	Clock clock.Clock
	// Owner names who writes.
	Owner client.FieldOwner

	seen map[types.NamespacedName]seen
	next map[string]string // by namespace: the Workflow that the last round did not come to
}

// Start makes rounds until ctx ends.
func (s *Sweeper) Start(ctx context.Context) error {
	for pause := firstRound; ; pause = roundPause {
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(pause):
		}
		if err := s.Round(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("Revisions of Workflows are looked at again", "delay", roundPause, "cause", err.Error())
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

// Round looks at all revisions once, but for those of namespaces that took too long.
func (s *Sweeper) Round(ctx context.Context) error {
	all, err := s.list(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for namespace, workflows := range all {
		errs = append(errs, s.sweepNamespace(ctx, namespace, workflows))
	}
	maps.DeleteFunc(s.next, func(namespace, _ string) bool { return all[namespace] == nil })
	maps.DeleteFunc(s.seen, func(key types.NamespacedName, _ seen) bool { return all[key.Namespace][key.Name] == nil })
	return errors.Join(errs...)
}

// list lists the revisions of all Workflows, by namespace and name, without their content. What has
// their label and is another's is not among them.
func (s *Sweeper) list(ctx context.Context) (map[string]map[string][]revision, error) {
	all := map[string]map[string][]revision{}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevisionList"))
	for {
		if err := s.Live.List(ctx, page, client.HasLabels{v1alpha1.LabelWorkflow}, client.Limit(pageSize), client.Continue(page.Continue)); err != nil {
			return nil, fmt.Errorf("list revisions: %w", err)
		}
		for i := range page.Items {
			o := &page.Items[i]
			name, _, ours := revisions.Of(o)
			if !ours {
				continue
			}
			of := all[o.Namespace]
			if of == nil {
				of = map[string][]revision{}
				all[o.Namespace] = of
			}
			of[name] = append(of[name], revision{o.Name, o.CreationTimestamp, o.UID, o.ResourceVersion})
		}
		if page.Continue == "" {
			return all, nil
		}
	}
}

// sweep deletes the revisions of one Workflow that nobody needs. They were listed before. Whatever
// fails after the mark, the mark is taken away, also where ctx ends in the middle: runs would wait
// until the next owner's round comes to this Workflow.
func (s *Sweeper) sweep(ctx context.Context, key types.NamespacedName, listed []revision, cached func() (keeps, error)) error {
	if s.unchanged(ctx, key, len(listed)) {
		return nil
	}
	delete(s.seen, key)
	w, settled, err := s.workflow(ctx, key, len(listed))
	if err != nil {
		return err
	}
	if !settled {
		return s.unmark(ctx, w, key.Name, len(listed))
	}
	old, err := candidates(w, key.Name, listed)
	if err != nil {
		return err
	}
	surplus := len(old) > 0 // which runs keep for now, perhaps
	if old, err = unkept(key.Name, old, cached); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // the round ends
	}
	if err := s.deleteAll(ctx, key, w, old, len(listed)); err != nil || w == nil || surplus {
		return err
	}
	s.note(key, w, len(listed))
	return nil
}

// deleteAll deletes revisions of a Workflow that has so many, as many at a time as a mark may name.
// Those for which there is no time are left for the next round: others wait for their turn.
func (s *Sweeper) deleteAll(ctx context.Context, key types.NamespacedName, w *v1alpha1.Workflow, old []revision, kept int) error {
	later, cancel := s.outlast(ctx)
	defer cancel()
	began := s.Clock.Now()
	var failed error
	for marked := range slices.Chunk(old, maxRetiring) {
		deleted := 0
		if failed = s.write(later, w, key.Name, marked, kept); failed == nil {
			deleted, failed = s.retire(ctx, key, marked)
		}
		if kept -= deleted; failed != nil || s.Clock.Since(began) >= longestSweep {
			break
		}
	}
	return errors.Join(failed, s.takeMark(later, key, w, kept))
}

// lastWrite is how long a write may take after its round was cut off. Who hands over waits for it,
// for no longer than for a pass.
const lastWrite = time.Second

// outlast is a context that ends lastWrite after ctx. Call cancel when the work has ended.
func (s *Sweeper) outlast(ctx context.Context) (later context.Context, cancel func()) {
	later, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-s.Clock.After(lastWrite):
			end()
		case <-later.Done():
		}
	})
	return later, func() {
		stop()
		end()
	}
}

// retire deletes those of the marked revisions that no run keeps, as the API server has the runs.
func (s *Sweeper) retire(ctx context.Context, key types.NamespacedName, old []revision) (deleted int, err error) {
	old, err = unkept(key.Name, old, func() (keeps, error) { return s.live(ctx, key) })
	if err != nil {
		return 0, err
	}
	for i, r := range old {
		if err := s.delete(ctx, key.Namespace, r); err != nil {
			return i, err
		}
	}
	return len(old), nil
}

// workflow reads a Workflow, nil if it is gone. It is not settled while its current revision is
// about to be written. Where that is refused, it is: old revisions may be what fills the quota. So
// it is where there are too many.
func (s *Sweeper) workflow(ctx context.Context, key types.NamespacedName, kept int) (w *v1alpha1.Workflow, settled bool, err error) {
	w = &v1alpha1.Workflow{}
	err = s.Live.Get(ctx, key, w)
	if apierrors.IsNotFound(err) {
		return nil, true, confirmGone(ctx, s.Client, key, err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("read: %w", err)
	}
	return w, w.Status != nil && (w.Status.ObservedGeneration == w.Generation || refused(w) || kept > historyOf(w)+spare), nil
}

// historyOf is how many revisions of a Workflow are kept that nobody needs.
func historyOf(w *v1alpha1.Workflow) int {
	if l := w.Spec.RevisionHistoryLimit; l != nil {
		return int(*l)
	}
	return defaultHistory
}

// refused says whether the API server refuses the current revision.
func refused(w *v1alpha1.Workflow) bool {
	c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Reason == v1alpha1.ReasonRevisionNotKept && c.ObservedGeneration == w.Generation
}

// named are the revisions that new runs of a Workflow may follow: that of its status, and while
// that is not of this generation, the one that it is about to have.
func named(w *v1alpha1.Workflow) ([]string, error) {
	if w.Status.ObservedGeneration == w.Generation {
		return []string{w.Status.Revision}, nil
	}
	_, next, err := template.Encode(&w.Spec)
	return []string{w.Status.Revision, next}, err
}

// candidates are the revisions that a Workflow does not name, and that are not among the last. Of a
// Workflow that is gone, w is nil, all are.
func candidates(w *v1alpha1.Workflow, name string, listed []revision) ([]revision, error) {
	old := slices.Clone(listed)
	slices.SortStableFunc(old, func(a, b revision) int {
		return cmp.Or(b.created.Compare(a.created.Time), cmp.Compare(a.name, b.name))
	})
	if w == nil {
		return old, nil
	}
	current, err := named(w)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	old = slices.DeleteFunc(old, func(r revision) bool { return slices.Contains(current, r.of(name)) })
	return old[min(len(old), historyOf(w)):], nil
}

// keeps are the revisions that runs keep, by Workflow. A run that may still choose has mayChoose.
type keeps map[string]map[string]bool

// mayChoose is no revision: it keeps all.
const mayChoose = ""

// add adds what some runs keep.
func (k keeps) add(runs []v1alpha1.WorkflowRun) {
	for i := range runs {
		ref, st, revision := runs[i].Spec.WorkflowRef, runs[i].Status, mayChoose
		switch {
		case ref == nil:
			continue
		case st != nil && st.Workflow != nil:
			revision = st.Workflow.Revision
		case st != nil && st.CompletedAt != nil:
			continue
		}
		if k[ref.Name] == nil {
			k[ref.Name] = map[string]bool{}
		}
		k[ref.Name][revision] = true
	}
}

// unkept are the revisions of a Workflow that no run keeps. Without revisions it asks for no runs.
func unkept(workflow string, old []revision, runs func() (keeps, error)) ([]revision, error) {
	if len(old) == 0 {
		return nil, nil
	}
	all, err := runs()
	if err != nil {
		return nil, err
	}
	kept := all[workflow]
	if kept[mayChoose] {
		return nil, nil
	}
	return slices.DeleteFunc(old, func(r revision) bool { return kept[r.of(workflow)] }), nil
}

// cached is what the runs of a namespace keep, as the cache has them. It gives all in one answer,
// which says all the same that there are more: it knows no pages.
func (s *Sweeper) cached(ctx context.Context, namespace string) (keeps, error) {
	all, kept := &v1alpha1.WorkflowRunList{}, keeps{}
	if err := s.Client.List(ctx, all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list runs of the cache: %w", err)
	}
	kept.add(all.Items)
	return kept, nil
}

// live is what the runs that name a Workflow keep, as the API server has them.
func (s *Sweeper) live(ctx context.Context, key types.NamespacedName) (keeps, error) {
	page, kept := &v1alpha1.WorkflowRunList{}, keeps{}
	follow := client.MatchingFields{"spec.workflowRef.name": key.Name}
	for {
		if err := s.Live.List(ctx, page, client.InNamespace(key.Namespace), follow, client.Limit(runsPage), client.Continue(page.Continue)); err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		if kept.add(page.Items); page.Continue == "" {
			return kept, nil
		}
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
