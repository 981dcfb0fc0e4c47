// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// TemplatePatience is how long after its creation a run waits for a Workflow, or a revision of it,
// that does not exist: manifests may be applied in any order.
const TemplatePatience = time.Minute

// Template is what was found of the Workflow that a run follows. The zero value: the run has steps
// of its own.
type Template struct {
	Revision *v1alpha1.WorkflowRevision // what the run follows, to be pinned in status
	Problems []string                   // what is wrong with its inputs, each with its field; only used at first sight
	Inputs   []string                   // which it may read: the parameters; nil: any
	Missing  string                     // why the run has no steps of a template: nothing but its end can be decided; "": it has
	Patient  bool                       // what is missing exists, and is not to be had for now: the run waits, without an end but queueTimeoutSeconds. Of a run that pinned it nothing but an end may be decided: it is given without the lock
}

// WithoutTemplate is a run whose revision is gone, as far as its status tells of its steps: enough
// to end it, and to keep what is known of them.
func WithoutTemplate(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	next := *run
	next.Spec.Steps, next.Spec.Finally = nil, nil
	if run.Status == nil || status.Finished(run) {
		return &next
	}
	for i := range run.Status.Steps {
		next.Spec.Steps = append(next.Spec.Steps, v1alpha1.Step{Name: run.Status.Steps[i].Name})
	}
	return &next
}
