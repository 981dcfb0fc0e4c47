// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

const (
	// resyncPause is the time between two resyncs.
	resyncPause = resyncs.Pause
	// idleTime is how long a ticket may have what status does not say before a resync takes it: who
	// asked for it is about to write it.
	idleTime = 10 * time.Second
	// maxRebuilds bounds the rebuilds in one resync.
	maxRebuilds = 3
	// mostPassedOver is how many resyncs in a row leave rings that wait for others.
	mostPassedOver = 3
	// listPage is the number of runs per page of a live list.
	listPage = 500
	// runsPage is a page of whole runs, each of up to 1.5 MiB.
	runsPage = 50
)

// Start makes a resync at once, and then every 30 s, and whenever one is asked for, until ctx ends:
// by this process, within a second, and within two seconds of a loss of data by any. It should run
// in one process: two do no harm, but twice the work. It may be started again after its end.
func (c *Controller) Start(ctx context.Context) error {
	c.notes(map[string]bool{everySemaphore: true})
	defer c.notes(nil)
	defer c.metrics.forget()
	var failed resyncs.Failures
	for ctx.Err() == nil {
		c.kicks.Begin()
		kicked, pause := c.kicks.Asked(), resyncPause
		if err := c.Resync(ctx); err == nil {
			failed = resyncs.Failures{}
		} else if ctx.Err() == nil {
			pause, kicked = failed.Next(store.Unusable(err)), c.kicks.News()
			if failed.Logs() {
				c.log.Info("Locks across runs were not looked after, trying on", "delay", pause, "cause", err.Error())
			}
		}
		resyncs.Rest(ctx, c.clock, pause, kicked, c.lost)
	}
	return nil
}

// lost says whether the data is closed, whichever process has found out.
func (c *Controller) lost(ctx context.Context) bool {
	_, err := c.store.DropLocks(ctx) // of nobody
	_, closed := errors.AsType[*store.RebuildingError](err)
	return closed
}

// Resync rebuilds what was lost, compares all locks with the runs, repairs the differences, and
// wakes whoever can have its locks.
func (c *Controller) Resync(ctx context.Context) error {
	for range maxRebuilds {
		changed := c.takeChanged()
		s, err := c.store.SnapshotLocks(ctx)
		if err == nil {
			err = c.settle(ctx, s, changed)
		}
		_, closed := errors.AsType[*store.RebuildingError](err)
		if err != nil && !closed {
			c.note(slices.Collect(maps.Keys(changed))...)
			c.kicks.Kick() // after the next success: that a resync failed says nothing new
		}
		if !closed {
			return err
		}
		if err := c.rebuild(ctx); err != nil && !errors.Is(err, store.ErrRebuildLost) {
			return fmt.Errorf("rebuild locks: %w", err)
		}
	}
	return errors.New("data of locks keeps being lost while it is rebuilt")
}

// view is what there is according to the cache.
type view struct {
	runs       map[types.UID]fact
	parents    map[string]string                   // by name: the run above
	children   map[types.UID]*v1alpha1.WorkflowRun // runs that say that they have a parent
	semaphores map[string]*v1alpha1.Semaphore
}

func (v *view) limit(lock string) (int, bool) {
	if strings.HasPrefix(lock, mutexPrefix) {
		return 1, true
	}
	sem, ok := v.semaphores[semaphoreOf(lock)]
	if !ok {
		return 0, false
	}
	return int(sem.Spec.Permits), true
}

// rated is ratedOf by the semaphores that there are.
func (v *view) rated(lock string) bool {
	sem := v.semaphores[semaphoreOf(lock)]
	return sem != nil && sem.Spec.Rate != nil
}

// below is belowOf by the runs that there are. The cache tells of a child before it tells that the
// parent has let it in, so one that it does not have is gone. What runs themselves say of their
// parents holds nothing: their users may write that.
func (v *view) below(ticket string) bool {
	_, part, _ := strings.Cut(ticket, "/")
	seen := map[types.UID]bool{}
	for next := childrenOf(v.runs[uidOf(ticket)].status, part); len(next) > 0; {
		uid := types.UID(next[0].UID)
		child := v.children[uid]
		next = next[1:]
		switch {
		case seen[uid] || child == nil:
		case child.Status == nil || child.Status.CompletedAt == nil:
			return true
		default:
			next = append(next, childrenOf(child.Status, "")...)
		}
		seen[uid] = true
	}
	return false
}

// look reads the cache. Nothing is copied but what is needed.
func (c *Controller) look(ctx context.Context) (*view, error) {
	var sems v1alpha1.SemaphoreList
	if err := c.client.List(ctx, &sems); err != nil {
		return nil, fmt.Errorf("list semaphores: %w", err)
	}
	var list v1alpha1.WorkflowRunList
	if err := c.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	v := &view{runs: map[types.UID]fact{}, parents: map[string]string{}, children: map[types.UID]*v1alpha1.WorkflowRun{}, semaphores: map[string]*v1alpha1.Semaphore{}}
	for i := range sems.Items {
		v.semaphores[sems.Items[i].Name] = &sems.Items[i]
	}
	for i := range list.Items {
		if run := &list.Items[i]; HasLocks(run) {
			v.runs[run.UID] = factOf(run)
		}
		if run := &list.Items[i]; run.ClaimsParent() != nil {
			v.children[run.UID] = run
		}
		if run := &list.Items[i]; run.Status != nil && run.Status.Parent != nil {
			v.parents[run.Namespace+"/"+run.Name] = run.Namespace + "/" + run.Status.Parent.Name
		}
	}
	return v, nil
}

// settle compares a snapshot with the runs, which are read after it, and repairs the differences. A
// status of a semaphore that is not taken is no error.
func (c *Controller) settle(ctx context.Context, s store.LocksSnapshot, changed map[string]bool) error {
	v, err := c.look(ctx)
	if err != nil {
		return err
	}
	f := audit(v.runs, s, v.limit, v.rated, v.below)
	// First: nobody gets in before they are counted. What was reserved goes last: it was
	// for them all.
	if err := c.restore(ctx, v, slices.Concat(f.missing, f.real)); err != nil {
		return err
	}
	gone, listed, err := c.gone(ctx, f.unknown)
	if err != nil {
		return err
	}
	if listed {
		f.heads = nil // whoever is gone is among gone
	}
	if err := c.dropAll(ctx, slices.Concat(f.drop, gone)); err != nil {
		return err
	}
	failed := errors.Join(c.wakeAll(ctx, f.heads), c.takeIdle(ctx, v, f), c.endRings(ctx, v, s, f.wake))
	for _, w := range s.Waiters {
		if asksAgain(v, w, changed) {
			f.wake[uidOf(w.Ticket.ID)] = true
		}
	}
	for uid := range f.wake {
		if run, ok := v.runs[uid]; ok {
			c.wake(run.name)
		}
	}
	c.tell(ctx, v, s)
	return failed
}

// endRings refuses steps that wait for themselves by way of other runs. A snapshot is not of one
// moment, and a refusal is for good: so a ring must also be one by what lasted until a second
// snapshot, and by what runs and semaphores say after that. There may be more holds and waits than
// those, but they only make more rings. A refusal is of that wait only: a step that was granted
// its locks since, or waits for others, is left alone. After one the next resync is asked for:
// there may be a ring by another way, which it hides until its run goes on. A ring that waits for
// another one is left for a few of those: somebody may have new ones before it all the time.
func (c *Controller) endRings(ctx context.Context, v *view, s store.LocksSnapshot, wake map[types.UID]bool) error {
	if all, _, err := deadlocked(ctx, s, v.limit, v, c.ending(v, s), true); len(all) == 0 {
		c.ended.passedOver = 0
		return errors.Join(err, c.lookSoon(ctx, v, s))
	}
	later, err := c.store.SnapshotLocks(ctx)
	if err != nil {
		return fmt.Errorf("look at a ring again: %w", err)
	}
	now, err := c.lookAgain(ctx)
	if err != nil {
		return fmt.Errorf("look at a ring again: %w", err)
	}
	all, left, err := deadlocked(ctx, s.Lasting(later), now.limit, now, c.ending(now, s, later), c.ended.passedOver >= mostPassedOver)
	if err != nil {
		return err
	}
	c.ended.passedOver++
	if !left {
		c.ended.passedOver = 0
	}
	refused, err := c.refuse(ctx, all)
	for _, ticket := range refused {
		wake[uidOf(ticket)] = true
	}
	if len(refused) > 0 { // those behind them in the line of an Ordered lock were not among whom to wake
		s.Waiters = slices.DeleteFunc(slices.Clone(s.Waiters), func(o store.Waiter) bool { return slices.Contains(refused, o.Ticket.ID) })
		for _, one := range runnable(s, now.limit, now.rated) {
			wake[uidOf(one.Ticket.ID)] = true
		}
	}
	return err
}

// refuse refuses steps, and returns those that waited still. After one the next resync
// is asked for.
func (c *Controller) refuse(ctx context.Context, all []*store.Waiter) (tickets []string, err error) {
	for _, w := range all {
		refused, err := c.store.RefuseLocks(ctx, *w, store.LocksDeadlock)
		if err != nil {
			return tickets, fmt.Errorf("refuse a step: %w", err)
		}
		if refused {
			c.log.Info("A step waits for itself by way of other runs; it is refused", "ticket", w.Ticket.ID)
			tickets = append(tickets, w.Ticket.ID)
			c.ended.refused[w.Ticket.ID] = refusal{w.Ticket, c.clock.Now()}
			c.kicks.Kick()
		}
	}
	return tickets, nil
}

// lookAgain is look with semaphores that are read live: a limit that was raised a moment ago ends a
// ring, and the cache may not have it. Rings are rare.
func (c *Controller) lookAgain(ctx context.Context) (*view, error) {
	v, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	v.semaphores = map[string]*v1alpha1.Semaphore{}
	for page := (&v1alpha1.SemaphoreList{}); ; {
		if err := c.live.List(ctx, page, client.Limit(listPage), client.Continue(page.Continue)); err != nil {
			return nil, fmt.Errorf("list semaphores live: %w", err)
		}
		for i := range page.Items {
			v.semaphores[page.Items[i].Name] = page.Items[i].DeepCopy()
		}
		if page.Continue == "" {
			return v, nil
		}
	}
}

// asksAgain says whether one that waits is to ask again: its semaphore changed, or cancels others
// for it, which a process that died may not have done.
func asksAgain(v *view, w store.Waiter, changed map[string]bool) bool {
	for _, want := range w.Wants {
		name := semaphoreOf(want.Name)
		if sem := v.semaphores[name]; changed[name] || sem != nil && (changed[everySemaphore] || sem.Spec.OnBusy == v1alpha1.OnBusyCancelOldest) {
			return true
		}
	}
	return false
}

// restore enters what runs hold by their status, as they are now. What one holds that is doubted is
// for the next resync, and keeps none of the others from theirs.
func (c *Controller) restore(ctx context.Context, v *view, missing []string) (doubted error) {
	for _, ticket := range missing {
		uid := uidOf(ticket)
		run, err := c.marker.Doubts.Read(ctx, c.live, c.client, v.runs[uid].name, uid)
		if errors.Is(err, resyncs.ErrDoubted) {
			doubted = err
			continue
		}
		if err != nil {
			return err
		}
		if run == nil || run.UID != uid {
			continue
		}
		if h, ok := factOf(run).holding(ticket); ok {
			added, err := c.store.RestoreLocks(ctx, "", h.Fence, []store.Holding{h})
			if err != nil {
				return fmt.Errorf("restore a hold: %w", err)
			}
			c.metrics.missing.Add(float64(added)) // it may have been granted since the snapshot
		}
	}
	return doubted
}

// gone is which of the tickets are of runs that do not exist. Runs are listed, live, only when
// one of those is unknown for a while, or very many are. The list is younger than the snapshot, so
// it tells of the others, too.
func (c *Controller) gone(ctx context.Context, unknown []string) (all []store.Dropping, listed bool, err error) {
	now, seen, late := c.clock.Now(), map[types.UID]time.Time{}, false
	for _, ticket := range unknown {
		late = resyncs.Lasts(c.unknown, seen, uidOf(ticket), now) >= resyncs.UnknownTime || late
	}
	if c.unknown = seen; !late && len(seen) <= mostLooks {
		return nil, false, nil
	}
	there, err := liveUIDs(ctx, c.live)
	if err != nil {
		return nil, false, err
	}
	for _, ticket := range unknown {
		if !there[uidOf(ticket)] {
			all = append(all, store.Dropping{Ticket: ticket})
		}
	}
	return all, true, nil
}

// liveUIDs are those of all runs, by a live list.
func liveUIDs(ctx context.Context, live client.Reader) (map[types.UID]bool, error) {
	there := map[types.UID]bool{}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkflowRunList"))
	for {
		if err := live.List(ctx, page, client.Limit(listPage), client.Continue(page.Continue)); err != nil {
			return nil, fmt.Errorf("list runs live: %w", err)
		}
		for i := range page.Items {
			there[page.Items[i].UID] = true
		}
		if page.Continue == "" {
			return there, nil
		}
	}
}
