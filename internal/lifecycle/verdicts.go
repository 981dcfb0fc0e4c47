// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func verdicts(results []Result, v Verdict) []Verdict {
	all := make([]Verdict, len(results))
	for i := range all {
		all[i] = v
	}
	return all
}

// rejectResult has a result put aside, and gives what is kept of the reason.
func (out *Decision) rejectResult(k int, why string) string {
	if out.Rejected == nil {
		out.Rejected = map[int]string{}
	}
	out.Rejected[k] = bounds.Cut(why, bounds.MaxErrorChars)
	return out.Rejected[k]
}

// unapplied is the verdict on a result that has no effect; i is its step, if that is known.
func (out *Decision) unapplied(k int, r *Result, steps []v1alpha1.StepStatus, i int, v Verdict) Verdict {
	if v != Ahead {
		out.rejectAgain(k, r, &steps[i], v)
	}
	return v
}

// rejectAgain has a result put aside that was rejected before, by a process that died before it was
// settled. By now the step may be at another attempt, and of an item nothing is known any more: so
// the result itself has to say that it was. Only what was wrong with an object in the store is not
// seen in its reference: the step's error names that object, unless another took its place.
// Whatever else was said of the attempt is good, and a duplicate.
func (out *Decision) rejectAgain(k int, r *Result, s *v1alpha1.StepStatus, v Verdict) {
	switch why := unusable(r); {
	case why != "":
		out.rejectResult(k, why)
	case v == Duplicate && !status.IsForEach(s) && r.Result.OutputRef != nil && s.Error != nil && s.Error.Code == facts.CodeResultRejected &&
		strings.HasSuffix(s.Error.Message, objectOf(*r.Result.OutputRef)):
		out.rejectResult(k, s.Error.Message)
	}
}

// unusable says why a result is rejected whatever the state of its attempt; "": it may be usable.
// Of an output in the object store only the reference is looked at.
func unusable(r *Result) string {
	switch {
	case r.Rejected != "" || r.Result.Status != protocol.StatusSucceeded:
		return r.Rejected
	case r.Result.OutputRef != nil:
		if problem := referenceProblem(r.ID, *r.Result.OutputRef); problem != nil && problem.Code == facts.CodeResultRejected {
			return problem.Message
		}
	case len(r.Result.Output) > 0:
		if _, err := bounds.Canonical(r.Result.Output, nil); err != nil {
			return "output: " + err.Error()
		}
	}
	return ""
}
