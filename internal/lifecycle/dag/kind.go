// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

// TakesPlace says whether a step takes a place of maxParallelSteps.
func TakesPlace(step *v1alpha1.Step) bool { return step.Job != nil || step.Run != nil }

// HasPlace says whether a step has a place of maxParallelSteps. One that holds locks keeps it until
// it is over, also while it backs off. Else it could wait for the place of one that waits for these
// locks, and no resync sees such a ring.
func HasPlace(step *v1alpha1.Step, s *v1alpha1.StepStatus) bool {
	return status.InFlight(s.Phase) || len(s.Locks) > 0 && TakesPlace(step) && !status.Ended(s.Phase)
}

// FansOut says whether a step is to be one job for each item. Validation refuses forEach
// without a job.
func FansOut(step *v1alpha1.Step) bool { return step.ForEach != nil && step.Job != nil }

// WithItem says whether the expressions of a step's job may read item.
func WithItem(step *v1alpha1.Step) []expr.Option {
	if step.ForEach == nil {
		return nil
	}
	return []expr.Option{expr.WithItem}
}

// kindsAllowed says what a step needs that has another number or sort of kinds.
func kindsAllowed(s *v1alpha1.Step, finally bool) string {
	n, fields := kindsOf(s), append([]string{"job"}, waits.Fields(finally)...)
	k := waits.Of(s)
	switch {
	case finally && (n != 1 || s.Run != nil || k != nil && !k.Finally):
		return "a finally step needs exactly one of " + listed(fields)
	case n != 1:
		return "a step needs exactly one of " + listed(append(fields, "run"))
	default:
		return ""
	}
}

// kindsOf counts the kinds of a step.
func kindsOf(s *v1alpha1.Step) (n int) {
	for _, k := range waits.All {
		if k.Is(s) {
			n++
		}
	}
	if s.Job != nil {
		n++
	}
	if s.Run != nil {
		n++
	}
	return n
}

// listed is two names or more as a text has them.
func listed(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
