// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// reportedAfter is after how long the vote of a run that was seen to have ended is in status: who
// wrote its end reports each refreshEvery, and once more after a conflict or an error.
const reportedAfter = 2 * refreshEvery

// mostDeletes bounds the deleted runs that are kept: some megabytes. Of more the oldest are taken
// for runs that were deleted before they ended.
const mostDeletes = 20_000

// trials are the runs that have a part in rollouts under way, as of one look.
type trials struct {
	underWay map[ballot.Entry]rollout.UnderWay
	// endedAt is when each of those that ended was seen first, by this process's clock. When they
	// ended is by the clock of another, and their end may have been written long after it.
	endedAt map[types.UID]time.Time
}

// part is that of a run in a rollout.
type part struct {
	run   types.UID
	of    ballot.Entry
	arm   rollout.Arm
	ended bool
}

// partOf is that of a run; ok: it has one.
func partOf(run *v1alpha1.WorkflowRun) (p part, ok bool) {
	if run.Status == nil || run.Status.Policy == nil || run.Status.Policy.Trial == nil {
		return part{}, false
	}
	trial := run.Status.Policy.Trial
	return part{
		run: run.UID, of: ballot.Entry{Policy: run.Status.Policy.Name, Candidate: trial.Candidate},
		arm: rollout.Arm(trial.Arm), ended: lifecycle.Finished(run),
	}, true
}

// deletedRun is one that ended before it was deleted, at a time by this process's clock.
type deletedRun struct {
	part
	at time.Time
}

// deletes are the runs that ended and were deleted in the last reportedAfter. A list of runs lacks
// them, and those that are deleted as soon as they end are hardly ever in one. Each replica keeps
// them, as it may decide next.
type deletes struct {
	mu   sync.Mutex
	runs []deletedRun // the oldest first
}

// add keeps what an event tells of. What was under way until it was deleted has no vote. An event
// that missed the last state of its run may be of one that ended.
func (d *deletes) add(e event.DeleteEvent, c clock.PassiveClock) {
	run, ok := e.Object.(*v1alpha1.WorkflowRun)
	if !ok {
		return
	}
	p, ok := partOf(run)
	if p.ended = p.ended || e.DeleteStateUnknown; !ok || !p.ended {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := c.Now()
	d.forget(now)
	d.runs = append(d.runs[max(0, len(d.runs)+1-mostDeletes):], deletedRun{p, now})
}

// lately are those that are kept.
func (d *deletes) lately(now time.Time) []deletedRun {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(now)
	return slices.Clone(d.runs)
}

// forget drops those whose votes must be there.
func (d *deletes) forget(now time.Time) {
	for len(d.runs) > 0 && now.Sub(d.runs[0].at) >= reportedAfter {
		d.runs = d.runs[1:]
	}
}

// lookAtTrials counts the runs that have a part in a rollout, while there is one. It does so in
// each pass: what is older than a decision would leave out runs that began since. After an error
// they are not known.
func (r *Reconciler) lookAtTrials(ctx context.Context, policies []v1alpha1.LockPolicy, now time.Time) error {
	r.trials.underWay = nil
	tried := triedIn(policies)
	if len(tried) == 0 {
		r.trials = trials{}
		return nil
	}
	var list v1alpha1.WorkflowRunList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // they are only read
		return fmt.Errorf("list runs of rollouts: %w", err)
	}
	next := trials{underWay: tried, endedAt: map[types.UID]time.Time{}}
	for i := range list.Items {
		if p, ok := partOf(&list.Items[i]); ok {
			next.add(p, r.trials.endedAt, now, now)
		}
	}
	for _, run := range r.deleted.lately(now) { // after the list: a run is in neither only while its event comes
		if _, listed := next.endedAt[run.run]; !listed {
			next.add(run.part, r.trials.endedAt, run.at, now)
		}
	}
	r.trials = next
	return nil
}

// triedIn are the candidates that are tried on runs.
func triedIn(policies []v1alpha1.LockPolicy) map[ballot.Entry]rollout.UnderWay {
	tried := map[ballot.Entry]rollout.UnderWay{}
	for i := range policies {
		if p := &policies[i]; p.Status != nil && triesRuns(stateOf(p.Status.Rollout)) {
			tried[ballot.Entry{Policy: p.Name, Candidate: p.Status.Rollout.Candidate.Name}] = rollout.UnderWay{Known: true}
		}
	}
	return tried
}

// add counts a run, if its rollout is one of these. before is endedAt of the last look; a run that
// ended and is not in it was first seen to have done so at the time seen.
func (t trials) add(p part, before map[types.UID]time.Time, seen, now time.Time) {
	n, tried := t.underWay[p.of]
	if !tried {
		return
	}
	canary, control := &n.Canary, &n.Control
	if p.ended {
		if at, known := before[p.run]; known {
			seen = at
		}
		if t.endedAt[p.run] = seen; now.Sub(seen) >= reportedAfter {
			return
		}
		canary, control = &n.EndedCanary, &n.EndedControl
	}
	switch p.arm {
	case rollout.Canary:
		*canary++
	case rollout.Control:
		*control++
	default: // of no arm
	}
	t.underWay[p.of] = n
}

func triesRuns(s rollout.State) bool { return s.Active() && s.Unit != rollout.TenantMinute }

// underWayOf is how many runs are under way that have a part in the rollout of a candidate.
func (r *Reconciler) underWayOf(policyName string, st *v1alpha1.LockPolicyRolloutStatus) rollout.UnderWay {
	if r.trials.underWay == nil || !triesRuns(stateOf(st)) {
		return rollout.UnderWay{}
	}
	return r.trials.underWay[ballot.Entry{Policy: policyName, Candidate: st.Candidate.Name}]
}
