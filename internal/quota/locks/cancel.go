// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// AnnotationCancelledFor says, on a run that was cancelled for another by a semaphore's onBusy
// CancelOldest, for which lock and which run.
const AnnotationCancelledFor = "syncopate.dev/cancelled-for"

// cancelAll cancels runs that hold locks which another run wants, with their clean-up. A run that
// was made anew under its name holds nothing yet, and is left alone. So is one whose part is over:
// what that held is on its way back.
//
// Where one of them is ending already, or needs a newer operator, nobody is cancelled: the other
// run cannot begin before that one has ended, and somebody may have taken a lock since that another
// gave up for it. A resync has the other run ask again.
func (c *Controller) cancelAll(ctx context.Context, all []store.Cancel, by string) error {
	runs := make([]*v1alpha1.WorkflowRun, len(all))
	for i, one := range all {
		o := &v1alpha1.WorkflowRun{}
		if err := c.client.Get(ctx, nameOf(one.Run), o, client.UnsafeDisableDeepCopy); err != nil { // it is read only
			if client.IgnoreNotFound(err) == nil {
				continue
			}
			return fmt.Errorf("read run %s: %w", one.Run, err)
		}
		_, part, _ := strings.Cut(one.Ticket, "/")
		switch {
		case o.UID != uidOf(one.Ticket) || PartOf(o, part).Over:
			continue
		case o.Spec.Shutdown != "":
			return nil
		case o.NeedsNewer() > 0:
			c.sayRefused(one.Run, one.Lock, errNewer)
			return nil
		}
		runs[i] = o
	}
	var failed error
	for i, o := range runs {
		if o != nil {
			failed = errors.Join(failed, c.cancel(ctx, o, all[i], by))
		}
	}
	return failed
}

// cancel cancels a run, also where the cache has not seen that it was made anew: the patch names
// the UID. A refusal is no error: a resync at once would be told the same, and the next one asks
// again anyway.
func (c *Controller) cancel(ctx context.Context, o *v1alpha1.WorkflowRun, one store.Cancel, by string) error {
	err := c.shutDown(ctx, o, map[string]string{AnnotationCancelledFor: one.Lock + " " + by})
	if resyncs.Refused(err) { // annotations have a bound: that it is cancelled matters more than for whom
		err = c.shutDown(ctx, o, nil)
	}
	switch {
	case err == nil || c.isGone(ctx, o):
		return nil
	case resyncs.Unmarked(err):
		c.sayRefused(one.Run, one.Lock, err)
		return nil
	}
	return fmt.Errorf("cancel run %s: %w", one.Run, err)
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
func (c *Controller) shutDown(ctx context.Context, run *v1alpha1.WorkflowRun, annotations map[string]string) error {
	meta := map[string]any{"uid": run.UID}
	if annotations != nil { // null would take away all that there are
		meta["annotations"] = annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "spec": map[string]any{"shutdown": v1alpha1.ShutdownCancel}})
	if err != nil {
		return err
	}
	return c.client.Patch(ctx, run.DeepCopy(), client.RawPatch(types.MergePatchType, patch), fieldOwner)
}

// isGone says whether the API server has no run of this UID, as far as it answers.
func (c *Controller) isGone(ctx context.Context, run *v1alpha1.WorkflowRun) bool {
	now := &v1alpha1.WorkflowRun{}
	err := c.live.Get(ctx, client.ObjectKeyFromObject(run), now)
	return apierrors.IsNotFound(err) || (err == nil && now.UID != run.UID)
}
