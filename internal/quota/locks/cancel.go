// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// AnnotationCancelledFor says, on a run that was cancelled for another by a semaphore's onBusy
// CancelOldest, for which lock and which run.
const AnnotationCancelledFor = "syncopate.dev/cancelled-for"

// cancelParallel bounds the patches that cancel runs for one other run, at once.
const cancelParallel = 16

// dryRunTime bounds the dry run of very many runs that are to be cancelled for another one.
const dryRunTime = 2 * time.Second

// cancelAll cancels runs that hold locks which another run wants, with their clean-up: all of them,
// or none, so that no run ends for one that waits on. One that may not be changed, by a policy or
// as it has no room, is found by a dry run of all before the first is cancelled, of very many as
// far as there is time for that. Only etcd's bound of an object is none of a dry run: so the
// largest is cancelled first, alone. What fails later than that leaves the others alone, and a
// resync has the other run ask again.
func (c *Controller) cancelAll(ctx context.Context, all []store.Cancel, by string) error {
	some, err := c.toCancel(ctx, all)
	if err != nil || len(some) == 0 {
		return err
	}
	if len(some) > 1 {
		for i := range some {
			some[i].size = sizeOf(some[i].run)
		}
		slices.SortStableFunc(some, func(a, b doomed) int { return cmp.Compare(b.size, a.size) })
		if refused, err := c.tryEach(ctx, some, by); refused || err != nil {
			return err
		}
	}
	if refused, err := c.cancelEach(ctx, some[:1], by); refused || err != nil {
		return err
	}
	_, err = c.cancelEach(ctx, some[1:], by)
	return err
}

// tryEach cancels runs by a dry run. Of few all must be answered of, within a third of the time
// that is left: then they are cancelled in the rest. Very many would take all of the time, each
// time, and nobody would ever be cancelled: of those that there is no time for in 2 seconds, or a
// quarter of what is left, it is not known whether they may be changed.
func (c *Controller) tryEach(ctx context.Context, all []doomed, by string) (refused bool, err error) {
	few, left := len(all) <= cancelParallel, 3*dryRunTime
	if end, bounded := ctx.Deadline(); bounded { // a deadline is of the real clock
		left = end.Sub(clock.RealClock{}.Now())
	}
	most := min(dryRunTime, left/4)
	if few {
		most = left / 3
	}
	trying, stop := context.WithTimeout(ctx, most)
	defer stop()
	refused, err = c.cancelEach(trying, all, by, client.DryRunAll)
	if answer := apierrors.APIStatus(nil); err == nil || errors.As(err, &answer) {
		return refused, err
	}
	if trying.Err() != nil || strings.Contains(err.Error(), queuesTooLong) {
		return few, nil // as if one were refused: soon it would be the same
	}
	return false, err
}

// queuesTooLong is in the error of a request that would wait too long for this process' own bound
// of requests a second. There is no type of it.
const queuesTooLong = "would exceed context deadline"

// doomed is a run that is to be cancelled.
type doomed struct {
	store.Cancel
	run  *v1alpha1.WorkflowRun
	size int // bytes; 0: it does not matter
}

// toCancel are those of some holders that are to be cancelled. A run that was made
// anew under its name holds nothing yet, and is left alone.
//
// Where one of them is ending already, or needs a newer operator, it is nobody: the other run
// cannot begin before that one has ended, and somebody may have taken a lock since that another
// gave up for it. The same goes for one whose part is over, as its locks may be kept for a child
// run at its clean-up. A resync has the other run ask again.
func (c *Controller) toCancel(ctx context.Context, all []store.Cancel) (some []doomed, err error) {
	for _, one := range all {
		o := &v1alpha1.WorkflowRun{}
		if err := c.client.Get(ctx, nameOf(one.Run), o, client.UnsafeDisableDeepCopy); err != nil { // it is read only
			if client.IgnoreNotFound(err) == nil {
				continue
			}
			return nil, fmt.Errorf("read run %s: %w", one.Run, err)
		}
		_, part, _ := strings.Cut(one.Ticket, "/")
		switch {
		case o.UID != uidOf(one.Ticket):
			continue
		case PartOf(o, part).Over || o.Spec.Shutdown != "":
			return nil, nil
		case o.NeedsNewer() > 0:
			c.sayRefused(one.Run, one.Lock, errNewer)
			return nil, nil
		}
		some = append(some, doomed{Cancel: one, run: o})
	}
	return some, nil
}

// sizeOf is about how many bytes etcd keeps of a run.
func sizeOf(run *v1alpha1.WorkflowRun) int {
	text, _ := json.Marshal(run) // what was read can be written
	return len(text)
}

// errRefused ends the cancels of runs of which one may not be changed.
var errRefused = errors.New("a run may not be cancelled")

// cancelEach cancels runs, some at once, until one is refused, or fails.
func (c *Controller) cancelEach(ctx context.Context, all []doomed, by string, opts ...client.PatchOption) (refused bool, err error) {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(cancelParallel)
	for _, one := range all {
		if within.Err() != nil {
			break
		}
		group.Go(func() error {
			refused, err := c.cancel(within, one, by, opts...)
			if refused {
				return errRefused
			}
			return err
		})
	}
	switch err = group.Wait(); {
	case errors.Is(err, errRefused):
		return true, nil
	case err == nil:
		err = ctx.Err() // it ended before the last of them was begun
	}
	return false, err
}

// cancel cancels a run, also where the cache has not seen that it was made anew: the patch names
// the UID. A refusal is no error: a resync at once would be told the same, and the next one asks
// again anyway.
func (c *Controller) cancel(ctx context.Context, one doomed, by string, opts ...client.PatchOption) (refused bool, err error) {
	err = c.shutDown(ctx, one.run, map[string]string{AnnotationCancelledFor: one.Lock + " " + by}, opts)
	if resyncs.Refused(err) { // annotations have a bound: that it is cancelled matters more than for whom
		err = c.shutDown(ctx, one.run, nil, opts)
	}
	switch {
	case err == nil || c.isGone(ctx, one.run):
		return false, nil
	case resyncs.Unmarked(err):
		c.sayRefused(one.Run, one.Lock, err)
		return true, nil
	}
	return false, fmt.Errorf("cancel run %s: %w", one.Run, err)
}

// sayRefused logs that a run may not be cancelled, of all such runs one between two resyncs: each
// run that waits for them asks again after a resync.
func (c *Controller) sayRefused(run, lock string, err error) {
	c.mu.Lock()
	now := c.clock.Now()
	silent := now.Sub(c.refused).Abs() < resyncPause // the clock may be set back
	if !silent {
		c.refused = now
	}
	c.mu.Unlock()
	if !silent {
		c.log.Info("A run may not be cancelled for one that waits for its lock", "run", run, "lock", lock, "cause", err.Error())
	}
}

// shutDown has a run cancelled, and annotates it if there are annotations.
func (c *Controller) shutDown(ctx context.Context, run *v1alpha1.WorkflowRun, annotations map[string]string, opts []client.PatchOption) error {
	meta := map[string]any{"uid": run.UID}
	if annotations != nil { // null would take away all that there are
		meta["annotations"] = annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "spec": map[string]any{"shutdown": v1alpha1.ShutdownCancel}})
	if err != nil {
		return err
	}
	return c.client.Patch(ctx, run.DeepCopy(), client.RawPatch(types.MergePatchType, patch), append(slices.Clone(opts), fieldOwner)...)
}

// isGone says whether the API server has no run of this UID, as far as it answers.
func (c *Controller) isGone(ctx context.Context, run *v1alpha1.WorkflowRun) bool {
	now := &v1alpha1.WorkflowRun{}
	err := c.live.Get(ctx, client.ObjectKeyFromObject(run), now)
	return apierrors.IsNotFound(err) || (err == nil && now.UID != run.UID)
}
