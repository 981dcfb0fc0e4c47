// SPDX-License-Identifier: Apache-2.0

package book

import (
	"fmt"
	"maps"
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Account is what a test hands to the judge when all is over.
type Account struct {
	Plan     map[string]map[string][]Ending // by names of run and step
	Attempts map[string]*Attempt            // by job id
	Effects  []effect
	Finals   []v1alpha1.WorkflowRun // read live
}

// Judge compares what was published with what became of it, and returns all that is wrong. Two
// accounts have to agree with the first: the effects, write by write, and the statuses in the end.
func Judge(a Account) []string {
	return slices.Concat(judgeEffects(a), judgeFinals(a))
}

// judgeEffects wants one effect of each attempt that has a confirmed result, by a result of this
// attempt, and no others; and one message with its job.
func judgeEffects(a Account) []string {
	var wrong []string
	count := map[string]int{}
	for _, e := range a.Effects {
		count[e.Job]++
		made := a.Attempts[e.Job]
		switch {
		case made == nil:
			wrong = append(wrong, fmt.Sprintf("job %s ended (%s, %q) though nobody published a result", e.Job, e.Kind, e.Value))
		case !made.Values[e.Value]:
			wrong = append(wrong, fmt.Sprintf("job %s has the value %q, which was never published for it", e.Job, e.Value))
		case made.Kind != e.Kind:
			wrong = append(wrong, fmt.Sprintf("job %s was answered %q and ended as %q", e.Job, made.Kind, e.Kind))
		}
	}
	for _, job := range slices.Sorted(maps.Keys(a.Attempts)) {
		n := count[job]
		if n == 0 && a.Attempts[job].Acked {
			wrong = append(wrong, fmt.Sprintf("lost: job %s, its result was confirmed and has no effect", job))
		}
		if n > 1 {
			wrong = append(wrong, fmt.Sprintf("%d times: job %s", n, job))
		}
		// An operator that loses a result may have the job done once more, and so hide the loss.
		if n := len(a.Attempts[job].Dispatches); n > 1 {
			wrong = append(wrong, fmt.Sprintf("dispatched %d times: job %s", n, job))
		}
	}
	return wrong
}

// judgeFinals wants every step to have had the attempts of the plan, each counted once, and to show
// the last one's value.
func judgeFinals(a Account) []string {
	var wrong []string
	if len(a.Finals) != len(a.Plan) {
		wrong = append(wrong, fmt.Sprintf("%d runs, %d were planned", len(a.Finals), len(a.Plan)))
	}
	for i := range a.Finals {
		run := &a.Finals[i]
		phase, steps := v1alpha1.RunSucceeded, []v1alpha1.StepStatus(nil)
		if !run.Unwritten() {
			steps = run.Status.Steps
		}
		for k := range steps {
			endings := a.Plan[run.Name][steps[k].Name]
			if slices.Contains(endings, endsRun) {
				phase = v1alpha1.RunFailed
			}
			for _, problem := range judgeStep(a, &steps[k], endings) {
				wrong = append(wrong, fmt.Sprintf("run %s, step %s: %s", run.Name, steps[k].Name, problem))
			}
		}
		if len(steps) != len(a.Plan[run.Name]) || run.Status.Phase != phase {
			wrong = append(wrong, fmt.Sprintf("run %s has %d steps, want %d, and should be %s", run.Name, len(steps), len(a.Plan[run.Name]), phase))
		}
	}
	return wrong
}

func judgeStep(a Account, s *v1alpha1.StepStatus, endings []Ending) []string {
	var wrong []string
	failures := 0
	phase := v1alpha1.StepSucceeded
	for _, e := range endings {
		if e == fails || e == endsRun {
			failures++
		}
		if e == endsRun {
			phase = v1alpha1.StepFailed
		}
	}
	if int(s.Attempt) != len(endings) || int(s.Failures) != failures || s.Phase != phase {
		wrong = append(wrong, fmt.Sprintf("%s, attempt %d, %d failures; planned are %s, %d, %d",
			s.Phase, s.Attempt, s.Failures, phase, len(endings), failures))
	}
	if made := a.Attempts[s.JobID]; made == nil || !made.Values[valueOf(s)] {
		wrong = append(wrong, fmt.Sprintf("value %q of job %s", valueOf(s), s.JobID))
	}
	return wrong
}
