// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// reportedAfter is after how long the vote of a run that was seen to have ended is in status: who
// wrote its end reports each refreshEvery, and once more after a conflict or an error.
const reportedAfter = 2 * refreshEvery

// trials are the runs that have a part in rollouts under way, as of one look.
type trials struct {
	underWay map[ballot.Entry]rollout.UnderWay
	// endedAt is when each of those that ended was seen first, by this process's clock. When they
	// ended is by the clock of another, and their end may have been written long after it.
	endedAt map[types.UID]time.Time
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
		next.add(&list.Items[i], r.trials.endedAt, now)
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

// add counts a run, if it has a part in one of the rollouts. before is endedAt of the last look.
func (t trials) add(run *v1alpha1.WorkflowRun, before map[types.UID]time.Time, now time.Time) {
	if run.Status == nil || run.Status.Policy == nil || run.Status.Policy.Trial == nil {
		return
	}
	trial := run.Status.Policy.Trial
	e := ballot.Entry{Policy: run.Status.Policy.Name, Candidate: trial.Candidate}
	n, tried := t.underWay[e]
	if !tried {
		return
	}
	canary, control := &n.Canary, &n.Control
	if lifecycle.Finished(run) {
		at, seen := before[run.UID]
		if !seen {
			at = now
		}
		if t.endedAt[run.UID] = at; now.Sub(at) >= reportedAfter {
			return
		}
		canary, control = &n.EndedCanary, &n.EndedControl
	}
	switch rollout.Arm(trial.Arm) {
	case rollout.Canary:
		*canary++
	case rollout.Control:
		*control++
	default: // of no arm
	}
	t.underWay[e] = n
}

func triesRuns(s rollout.State) bool { return s.Active() && s.Unit != rollout.TenantMinute }

// underWayOf is how many runs are under way that have a part in the rollout of a candidate.
func (r *Reconciler) underWayOf(policyName string, st *v1alpha1.LockPolicyRolloutStatus) rollout.UnderWay {
	if r.trials.underWay == nil || !triesRuns(stateOf(st)) {
		return rollout.UnderWay{}
	}
	return r.trials.underWay[ballot.Entry{Policy: policyName, Candidate: st.Candidate.Name}]
}
