// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// skew is how far apart the clocks of two operators may be. An end beyond that is not believed.
const skew = time.Minute

// EndsAhead says whether a run that has a time to live ended, by its status, at a time that is
// still to come: a clock that was ahead wrote it, and by that the run would be kept for as long as
// that was ahead. Input.EndStored is asked for then, and once status says that, it is so no more.
func EndsAhead(run *v1alpha1.WorkflowRun, now time.Time) bool {
	st := run.Status
	return run.Spec.TTLSecondsAfterFinished != nil && st != nil && st.CompletedAt != nil && st.EndStoredAt == nil && st.CompletedAt.Sub(now) > skew
}

// decideFinished is the decision about an ended run: it stays as it is until its time to
// live is over.
func decideFinished(in Input) Decision {
	// All attempts are over, which is all that status can say of results that are put aside.
	out := Decision{Status: stored(in.Run), Verdicts: make([]Verdict, len(in.Results)), Told: len(in.DeadLetters) > 0}
	var index map[string]int
	if len(in.Results) > 0 {
		index = status.Index(in.Run.Status.Steps)
	}
	for k := range in.Results {
		i, verdict := facts.Judge(in.Run, in.Run.Status.Steps, index, in.Results[k].ID)
		if verdict == Applied {
			verdict = Duplicate
		}
		if out.unapplied(k, &in.Results[k], in.Run.Status.Steps, i, verdict) == Ahead {
			verdict = Stale // nothing about this run will ever be applied
		}
		out.Verdicts[k] = verdict
	}
	at := status.Expiry(in.Run, in.Run.Status)
	if end := in.Run.Status.CompletedAt; EndsAhead(in.Run, in.Now) && !in.EndStored.IsZero() && in.EndStored.Before(end.Time) {
		at = at.Add(in.EndStored.Sub(end.Time))
	}
	switch {
	case at.IsZero():
	case in.Now.Before(at):
		out.Wake = at
	default:
		out.Delete = true
	}
	return out
}
