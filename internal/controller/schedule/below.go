// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// look is when it was looked below a run that ended, and whether a run there was under way. None
// begins there any more: once none is, none will be.
type look struct {
	at   time.Time
	busy bool
}

// due says whether it is time for another one. The clock may have been set back.
func (l look) due(now time.Time) bool {
	age := now.Sub(l.at)
	return l.busy && (age < 0 || age >= cleanUpPause)
}

// lookBelow looks below the runs that ended: a child may be at its clean-up, beside which no other
// run is to be. It ends between two looks when the schedule is to be handed over. It is ErrLater
// while there are runs of which nothing is known yet: the next pass looks below more of them.
func (r *Reconciler) lookBelow(ctx context.Context, s *v1alpha1.Schedule, mem *memory, runs []v1alpha1.WorkflowRun) error {
	early, cancel := r.Driven.Early(ctx, s.UID)
	defer cancel()
	now, looks, unknown := r.Clock.Now(), 0, false
	mem.keepLooks(runs)
	for i := range runs {
		run := &runs[i]
		if !mem.wantsLook(run, now) {
			continue
		}
		if looks == maxWaits {
			_, known := mem.below[run.UID]
			unknown = unknown || !known
			continue
		}
		if err := handedOver(early); err != nil {
			return err
		}
		busy, err := r.Below(ctx, run)
		if err != nil {
			return fmt.Errorf("look below run %s, which has ended: %w", run.Name, err)
		}
		looks++
		mem.below[run.UID] = look{at: now, busy: busy}
	}
	if unknown {
		return passes.ErrLater
	}
	return nil
}

// wantsLook says whether it is to be looked below a run now.
func (m *memory) wantsLook(run *v1alpha1.WorkflowRun, now time.Time) bool {
	was, known := m.below[run.UID]
	return status.Finished(run) && hasChildren(run) && (!known || was.due(now))
}

// hasChildren says whether a run made child runs. One that status names without a uid was never let
// in.
func hasChildren(run *v1alpha1.WorkflowRun) bool {
	return slices.ContainsFunc(run.Status.Steps, func(s v1alpha1.StepStatus) bool { return s.ChildRun != nil && s.ChildRun.UID != "" })
}

// keepLooks forgets what is known of runs that are gone.
func (m *memory) keepLooks(runs []v1alpha1.WorkflowRun) {
	if len(m.below) == 0 {
		return
	}
	there := make(map[types.UID]bool, len(runs))
	for i := range runs {
		there[runs[i].UID] = true
	}
	maps.DeleteFunc(m.below, func(uid types.UID, _ look) bool { return !there[uid] })
}

// lookAgain is the wait until it is looked again below a run; 0: nothing is under way there. Nobody
// is woken by the end of a child.
func (m *memory) lookAgain(now time.Time) (wait time.Duration) {
	for _, l := range m.below {
		if l.busy {
			wait = sooner(wait, min(cleanUpPause, max(time.Millisecond, l.at.Add(cleanUpPause).Sub(now))))
		}
	}
	return wait
}
