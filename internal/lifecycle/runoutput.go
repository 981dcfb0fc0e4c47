package lifecycle

import (
	"encoding/json"
	"fmt"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// returnOutputs evaluates spec.outputs and says whether the run has succeeded by that: false if it failed, or if what the
// expressions read has to be loaded, or what they made to be stored, first.
func (d *decider) returnOutputs() bool {
	if d.run.Spec.Outputs == nil {
		return true
	}
	if d.asked {
		return false // what it lacked a moment ago it still lacks
	}
	d.asked = true
	output, err := d.view.returned(bounds.Raw(d.run.Spec.Outputs))
	if d.leave(err) {
		return false
	}
	if err != nil {
		if d.outputsLack = d.lack(err); !d.outputsLack {
			d.finish(v1alpha1.RunFailed, v1alpha1.ReasonOutputsFailed, bounds.Cut(err.Error(), bounds.MaxMessageChars))
		}
		return false
	}
	kept, problem := d.keep(&Result{ID: outputsID(d.run), Result: protocol.Result{Output: output}})
	switch {
	case kept.lacking:
		d.outputsLack = true
		return false
	case problem != nil:
		d.finish(v1alpha1.RunFailed, v1alpha1.ReasonOutputsFailed, bounds.Cut("outputs: "+problem.Message, bounds.MaxMessageChars))
		return false
	}
	d.outputBytes += len(bounds.Raw(kept.output))
	d.st.Outputs, d.st.OutputsRef = kept.output, kept.ref
	return true
}

// outputsID names the outputs of a run as if they were those of a job. A step of that name does no harm: an object's name has the
// digest of its content.
func outputsID(run *v1alpha1.WorkflowRun) protocol.JobID { return status.JobID(run, "outputs", 1) }

// returned evaluates spec.outputs, which see all of spec.steps.
func (v *view) returned(raw []byte) ([]byte, error) {
	steps := v.plan.MainSteps()
	reads, err := expr.TemplateOutputs(raw)
	if err == nil {
		err = v.loaded(steps, reads)
	}
	if err != nil {
		return nil, fmt.Errorf("outputs: %w", err)
	}
	return v.done.value(v.place("outputs", steps, false), len(raw), func() (json.RawMessage, int, error) {
		vars, err := v.vars(steps)
		if err != nil {
			return nil, 0, err
		}
		output, cost, err := v.templateBy(raw, vars)
		if err != nil {
			return nil, cost, fmt.Errorf("outputs: %w", err)
		}
		return output, cost, nil
	})
}
