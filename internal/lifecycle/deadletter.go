package lifecycle

import (
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// deadLetters notes the attempts in flight whose answers are about to be put aside. The answer leaves the queue after this write:
// whoever looks for it then, in JOBS and RESULTS, would find neither, and give the attempt to another worker.
func (d *decider) deadLetters() {
	for k := range d.in.DeadLetters {
		dead := &d.in.DeadLetters[k]
		if dead.Started {
			continue // the job is in JOBS until it is answered
		}
		i, verdict := judge(d.run, d.st.Steps, d.plan.Index, dead.ID)
		switch {
		case verdict == Applied:
			d.st.Steps[i].DeadLetter = v1alpha1.DeadLetterExhausted
		case verdict == Duplicate && d.items[i] != nil:
			d.items[i].deadLetter(&d.st.Steps[i], dead)
		}
	}
}

func (it *items) deadLetter(s *v1alpha1.StepStatus, dead *DeadLetter) {
	item, verdict := judgeItem(s, it.groups, dead.ID)
	if verdict != Applied {
		return
	}
	g := it.groups[it.find(item)]
	g.deadLetter = v1alpha1.DeadLetterExhausted
	it.take(item)
	it.put(item, g)
}

// forgetLetters ends what is said of the answers of attempts that are over. (Groups of items are made anew with each attempt.)
func (d *decider) forgetLetters() {
	for i := range d.st.Steps {
		if s := &d.st.Steps[i]; !status.WithWorker(s) {
			s.DeadLetter = ""
		}
	}
}

// freshLetters are the results to put aside of which the persisted status does not say so.
func (d *decider) freshLetters() []DeadLetter {
	if len(d.in.DeadLetters) == 0 {
		return nil
	}
	inFlight, unanswered := InFlight(d.run), Unanswered(d.run)
	return slices.DeleteFunc(slices.Clone(d.in.DeadLetters), func(dead DeadLetter) bool {
		return !dead.Started && slices.Contains(inFlight, dead.ID) && !slices.Contains(unanswered, dead.ID)
	})
}
