// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// annotationRebuilt marks runs with locks when the data of locks was rebuilt; its value is that of
// the last rebuild. All it is for is to change the run's resourceVersion.
const annotationRebuilt = "syncopate.dev/locks-rebuilt"

// fieldOwner names the operator in managedFields.
const fieldOwner = client.FieldOwner("syncopate")

// rebuild opens locks whose data was lost, or that were never used: it begins, lists the runs
// that have not ended live, marks those that may still take locks, and enters what they hold by the
// answers. Whatever was granted before cannot be written after that.
//
// Errors: store.ErrRebuildLost: begin anew.
func (c *Controller) rebuild(ctx context.Context) (err error) {
	defer func() { c.metrics.rebuilt(err) }()
	token, err := c.store.BeginLocks(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	r := rebuilding{Controller: c, id: c.newID()}
	if err := r.countAll(ctx); err != nil {
		return err
	}
	r.fenced()
	if _, err := c.store.RestoreLocks(ctx, token, r.fence, r.holds); err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	c.log.Info("Locks across runs were counted anew from the runs", "marked", r.marked, "holds", len(r.holds))
	return nil
}

// markParallel is how many runs a rebuild marks at a time: nobody has a lock before it ends.
const markParallel = 16

// rebuilding is one rebuild.
type rebuilding struct {
	*Controller
	id string

	mu     sync.Mutex
	marked int
	holds  []store.Holding
	fence  int64 // the greatest of them
	// granted may be held by runs that may not be marked; without fences.
	granted []store.Holding
}

// countAll counts all runs that may still take locks. They are listed first: a list takes no
// notice of what is written meanwhile, and ends when the API server has forgotten its time.
func (r *rebuilding) countAll(ctx context.Context) error {
	runs, err := r.runs(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(markParallel)
	for _, run := range runs {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return r.count(ctx, run)
		})
	}
	return group.Wait()
}

// runs names the runs that may still take locks, and nothing else of them. Nobody has a lock before
// they are read, and most runs that there are have ended: the API server keeps those.
func (r *rebuilding) runs(ctx context.Context) (runs []fact, err error) {
	page, notEnded := &v1alpha1.WorkflowRunList{}, client.MatchingFieldsSelector{Selector: fields.ParseSelectorOrDie(v1alpha1.FieldsNotEnded)}
	for more := true; more; more = page.Continue != "" {
		next := page.Continue
		page = &v1alpha1.WorkflowRunList{}
		if err := r.live.List(ctx, page, client.Limit(runsPage), client.Continue(next), notEnded); err != nil {
			return nil, fmt.Errorf("list runs live: %w", err)
		}
		for i := range page.Items {
			if run := &page.Items[i]; HasLocks(run) && (run.Status == nil || run.Status.CompletedAt == nil) {
				runs = append(runs, fact{uid: run.UID, name: client.ObjectKeyFromObject(run), newer: run.NeedsNewer() > 0})
			}
		}
	}
	return runs, nil
}

// marks marks a run. One that may not be marked, or that needs a newer operator, keeps what it may
// have been granted: see unmarked.
func (r *rebuilding) marks(ctx context.Context, run fact) (now *fact, granted []store.Holding, err error) {
	newer := fmt.Errorf("run %s: %w", run.name, errNewer)
	if run.newer {
		return unmarked(ctx, r.Controller, run, newer)
	}
	now, err = r.mark(ctx, run, r.id)
	switch {
	case resyncs.Unmarked(err):
		return unmarked(ctx, r.Controller, run, err)
	case now != nil && now.unread(): // since the list
		return unmarked(ctx, r.Controller, run, newer)
	}
	return now, nil, err
}

// count adds what a run holds once it is marked.
func (r *rebuilding) count(ctx context.Context, run fact) error {
	now, granted, err := r.marks(ctx, run)
	if err != nil || now == nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marked++
	r.granted = append(r.granted, granted...)
	for ticket := range now.tickets {
		if h, ok := now.holding(ticket); ok {
			r.holds, r.fence = append(r.holds, h), max(r.fence, h.Fence)
		}
	}
	return nil
}

// fenced adds what runs may have been granted that may not be marked, with new fences: what those
// had nobody knows. They are reserved: such a run may only have waited, and another may hold them.
func (r *rebuilding) fenced() {
	for _, h := range r.granted {
		r.fence = max(r.fence+1, r.clock.Now().UnixMilli())
		h.Fence = r.fence
		h.Locks = store.Reserved(h.Locks)
		r.holds = append(r.holds, h)
	}
}

// mark changes the resourceVersion of a run and returns what it is then; nil if it is gone. A write
// that was prepared before is refused from then on.
func (c *Controller) mark(ctx context.Context, run fact, id string) (*fact, error) {
	o, err := c.marker.Mark(ctx, run.name, run.uid, id)
	if err != nil || o == nil {
		return nil, err
	}
	now := factOf(o)
	return &now, nil
}
