// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// noteDeadLetters notes the attempts in flight whose answers are about to be put aside. The answer
// leaves the queue after this write: whoever looks for it then, in JOBS and RESULTS, would find
// neither, and give the attempt to another worker.
func noteDeadLetters(d *draft) {
	for k := range d.in.DeadLetters {
		dead := &d.in.DeadLetters[k]
		if dead.Started {
			continue // the job is in JOBS until it is answered
		}
		i, verdict := facts.Judge(d.run, d.st.Steps, d.plan.Index, dead.ID)
		switch {
		case verdict == Applied:
			d.st.Steps[i].DeadLetter = v1alpha1.DeadLetterExhausted
		case verdict == Duplicate && d.items[i] != nil:
			d.items[i].PutAside(&d.st.Steps[i], dead.ID)
		}
	}
}

// forgetDeadLetters ends what is said of the answers of attempts that are over. (Groups of items
// are made anew with each attempt.)
func forgetDeadLetters(d *draft) {
	for i := range d.st.Steps {
		if s := &d.st.Steps[i]; !status.WithWorker(s) {
			s.DeadLetter = ""
		}
	}
}

// newDeadLetters are the results to put aside of which the persisted status does not say so.
func newDeadLetters(d *draft) []DeadLetter {
	if len(d.in.DeadLetters) == 0 {
		return nil
	}
	inFlight, unanswered := InFlight(d.run), Unanswered(d.run)
	return slices.DeleteFunc(slices.Clone(d.in.DeadLetters), func(dead DeadLetter) bool {
		return !dead.Started && slices.Contains(inFlight, dead.ID) && !slices.Contains(unanswered, dead.ID)
	})
}
