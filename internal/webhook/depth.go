// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/document"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// maxChildDepth is for the spec of a child run with all below it. Four levels of runs, each of
// which is a list of steps, a step, its run, and a spec, stand around the deepest input.
const maxChildDepth = bounds.MaxInputDepth + 4*4

// tooDeep names a field of a spec that is nested deeper than the operator takes, with the bound.
// Tools that read lists of runs stop at some depth: with one run of 9,000 levels in it jq reads
// nothing of the list. "": there is none.
func tooDeep(spec *v1alpha1.WorkflowRunSpec) (field string, bound int) {
	switch {
	case deeper(spec.Inputs, bounds.MaxInputDepth):
		return "spec.inputs", bounds.MaxInputDepth
	case deeper(spec.Outputs, bounds.MaxInputDepth):
		return "spec.outputs", bounds.MaxInputDepth
	}
	for _, list := range []struct {
		name  string
		steps []v1alpha1.Step
	}{{"spec.steps", spec.Steps}, {"spec.finally", spec.Finally}} {
		for i := range list.steps {
			if field, bound := stepTooDeep(&list.steps[i]); field != "" {
				return fmt.Sprintf("%s[%d].%s", list.name, i, field), bound
			}
		}
	}
	return "", 0
}

func stepTooDeep(s *v1alpha1.Step) (field string, bound int) {
	switch {
	case s.Job != nil && deeper(s.Job.Input, bounds.MaxInputDepth):
		return "job.input", bounds.MaxInputDepth
	case s.Run != nil && deeper(s.Run.Inputs, bounds.MaxInputDepth):
		return "run.inputs", bounds.MaxInputDepth
	case s.Run != nil && deeper(&s.Run.Spec, maxChildDepth):
		return "run.spec", maxChildDepth
	default:
		return "", 0
	}
}

func deeper(e *runtime.RawExtension, n int) bool { return e != nil && document.Deeper(e.Raw, n) }

// invalid refuses a run that could only end as InvalidSpec, and that its neighbours in a list
// would suffer from.
func invalid(field string, bound int) answer {
	return answer{
		outcome: outcomeInvalid, code: http.StatusUnprocessableEntity, reason: metav1.StatusReasonInvalid, cause: v1alpha1.ReasonInvalidSpec,
		message: fmt.Sprintf("%s: nested more than %d deep", field, bound),
	}
}
