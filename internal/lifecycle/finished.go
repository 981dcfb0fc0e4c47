// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

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
	switch {
	case at.IsZero():
	case in.Now.Before(at):
		out.Wake = at
	default:
		out.Delete = true
	}
	return out
}
