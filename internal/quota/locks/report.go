// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// maxBusiest bounds the keys in the status of a semaphore.
const maxBusiest = 10

// tell is report, last in a resync: all else is done, and to do it again each second would cost
// more than a status is worth.
func (c *Controller) tell(ctx context.Context, v *view, s store.LocksSnapshot) {
	if err := c.report(ctx, v, s); err != nil && ctx.Err() == nil {
		c.log.Info("The status of a semaphore is not written before the next resync", "cause", err.Error())
	}
}

// report writes how each semaphore is used into its status, if that changed, and sets the gauges.
//
// Errors: those of the API server, and that ctx ended. The next report does what was not done.
func (c *Controller) report(ctx context.Context, v *view, s store.LocksSnapshot) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("report how semaphores are used: %w", err) // another replica may do by now
	}
	keys := map[string]*v1alpha1.KeyStatus{} // by lock
	of := func(lock string) *v1alpha1.KeyStatus {
		if keys[lock] == nil {
			_, key, _ := strings.Cut(lock, "/")
			keys[lock] = &v1alpha1.KeyStatus{Key: key}
		}
		return keys[lock]
	}
	waiting := 0
	for _, w := range s.Waiters {
		for _, want := range w.Wants {
			of(want.Name).Queued++
		}
		if w.Refused == "" {
			waiting++
		}
	}
	age, ages := c.ages(s.Holds), map[string]time.Duration{}
	for i, h := range s.Holds { // in the order of their fences
		for _, l := range h.Locks {
			k := of(l.Name)
			k.Held = sum(k.Held, l.Permits)
			k.Holder = cmp.Or(k.Holder, h.Ticket.Run)
			if k.Queued > 0 {
				ages[l.Name] = max(ages[l.Name], age[i])
			}
		}
	}
	c.metrics.held.Set(float64(len(s.Holds)))
	c.metrics.waiting.Set(float64(waiting))
	c.metrics.contended(ages)
	var failed error
	all := bySemaphore(keys)
	for name, sem := range v.semaphores {
		failed = errors.Join(failed, c.write(ctx, sem, statusOf(all[name])))
	}
	return failed
}

// aheadTime is how far ahead of the clock a fence tells nothing of the time of its hold: clocks
// differ by less.
const aheadTime = time.Minute

// holdID is a hold: a ticket may have several, one after the other.
type holdID struct {
	ticket string
	fence  int64
}

// ages is for how long each hold lasts. A fence is the milliseconds of its hold, or more: fences
// only rise, so when a clock was ahead for a moment, all fences are until that time has come. The
// age of such a hold counts from when this process saw it first. What is over is forgotten.
func (c *Controller) ages(holds []store.Holding) []time.Duration {
	now, seen := c.clock.Now(), map[holdID]time.Time{}
	all := make([]time.Duration, len(holds))
	for i, h := range holds {
		id := holdID{h.Ticket.ID, h.Fence}
		all[i] = now.Sub(time.UnixMilli(h.Fence))
		if _, was := c.ahead[id]; was || all[i] < -aheadTime {
			all[i] = max(all[i], resyncs.Lasts(c.ahead, seen, id, now))
		}
	}
	c.ahead = seen
	return all
}

// bySemaphore are the keys of each semaphore. Mutexes have none.
func bySemaphore(keys map[string]*v1alpha1.KeyStatus) map[string][]v1alpha1.KeyStatus {
	all := map[string][]v1alpha1.KeyStatus{}
	for lock, k := range keys {
		if !strings.HasPrefix(lock, mutexPrefix) {
			name := semaphoreOf(lock)
			all[name] = append(all[name], *k)
		}
	}
	return all
}

// statusOf is the status of a semaphore with such keys.
func statusOf(keys []v1alpha1.KeyStatus) v1alpha1.SemaphoreStatus {
	st := v1alpha1.SemaphoreStatus{Keys: int32(len(keys))}
	for _, k := range keys {
		st.Held, st.Queued = sum(st.Held, int(k.Held)), sum(st.Queued, int(k.Queued))
	}
	slices.SortFunc(keys, func(a, b v1alpha1.KeyStatus) int {
		return cmp.Or(cmp.Compare(b.Queued, a.Queued), cmp.Compare(b.Held, a.Held), cmp.Compare(a.Key, b.Key))
	})
	st.Busiest = keys[:min(maxBusiest, len(keys))]
	return st
}

// sum is cut at what a field of status can say: one run may hold 100,000 permits of each of many
// keys.
func sum(a int32, b int) int32 { return int32(min(int64(a)+int64(b), math.MaxInt32)) }

func (c *Controller) write(ctx context.Context, sem *v1alpha1.Semaphore, st v1alpha1.SemaphoreStatus) error {
	if sem.Status != nil && equality.Semantic.DeepEqual(*sem.Status, st) {
		return nil
	}
	next := sem.DeepCopy()
	next.Status = &st
	if err := c.client.Status().Update(ctx, next, fieldOwner); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("write status of semaphore %s: %w", sem.Name, err)
	}
	return nil
}
