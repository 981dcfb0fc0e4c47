package dag

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
)

// TakesPlace says whether a step takes a place of maxParallelSteps.
func TakesPlace(step *v1alpha1.Step) bool { return step.Job != nil || step.Run != nil }

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
	n := kindsOf(s)
	switch {
	case finally && (n != 1 || s.Approval != nil || s.Run != nil):
		return "a finally step needs exactly one of job and delay"
	case n != 1:
		return "a step needs exactly one of job, approval, delay and run"
	default:
		return ""
	}
}

func kindsOf(s *v1alpha1.Step) (n int) {
	for _, has := range []bool{s.Job != nil, s.Approval != nil, s.Delay != nil, s.Run != nil} {
		if has {
			n++
		}
	}
	return n
}
