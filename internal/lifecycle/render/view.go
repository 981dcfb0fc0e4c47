// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// MaxRendered bounds what a step is given, after evaluation.
func MaxRendered(step *v1alpha1.Step) int {
	if step.Run != nil {
		return bounds.MaxInputsBytes
	}
	return bounds.MaxRenderedBytes
}

// View is what expressions see of a run.
type View struct {
	run      *v1alpha1.WorkflowRun
	steps    []v1alpha1.StepStatus
	Ending   *v1alpha1.EndingStatus
	plan     *dag.Plan
	payloads facts.Payloads
	info     map[string]any
	inputs   any
	outputs  map[int]any    // decoded once per decision, however many steps read them
	states   map[int]uint64 // hashes of what is seen of the steps
	runHash  uint64         // that of what is seen of the run; 0: not computed yet
	Done     *Evaluations
}

// NewView is the view of a run with a status, and the outputs in the object store that are loaded.
func NewView(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus, p *dag.Plan, payloads facts.Payloads) *View {
	return &View{
		run: run, steps: st.Steps, Ending: st.Ending, plan: p, payloads: payloads,
		info: map[string]any{
			"name": run.Name, "namespace": run.Namespace, "uid": string(run.UID),
			"tenant": st.Tenant, "workloadClass": run.Spec.WorkloadClass,
		},
		outputs: make(map[int]any), states: make(map[int]uint64), Done: &Evaluations{},
	}
}

// vars are the variables of an expression that sees some steps, and reads outputs of them.
func (v *View) vars(sees []int, reads expr.Outputs) (expr.Vars, error) {
	vars, err := v.varsBut(sees, reads)
	if err != nil {
		return expr.Vars{}, err
	}
	if v.inputs == nil {
		if v.inputs, err = bounds.ParseJSON(bounds.Raw(v.run.Spec.Inputs), nil); err != nil {
			return expr.Vars{}, fmt.Errorf("spec.inputs: %w", err)
		}
	}
	vars.Inputs = v.inputs
	return vars, nil
}

// varsBut are all variables but inputs.
func (v *View) varsBut(sees []int, reads expr.Outputs) (expr.Vars, error) {
	steps := make(map[string]any)
	for _, j := range sees {
		name := v.steps[j].Name
		output, err := v.output(j, reads.All || slices.Contains(reads.Names, name))
		if err != nil {
			return expr.Vars{}, err
		}
		steps[name] = output
	}
	return expr.Vars{Steps: steps, Run: v.info}, nil
}

// varsOf are the variables of step i: of the other steps only those that do not change any more.
func (v *View) varsOf(i int, reads expr.Outputs) (expr.Vars, error) {
	vars, err := v.vars(v.plan.Sees(i), reads)
	vars.Run = v.infoFor(i)
	return vars, err
}

// infoFor is what step i sees of its run.
func (v *View) infoFor(i int) map[string]any {
	if v.plan.IsFinally(i) {
		return v.infoOfEnd()
	}
	return v.info
}

// infoOfEnd is what finally steps see of their run. The outcome is as it was when they began: it
// stands from then on.
func (v *View) infoOfEnd() map[string]any {
	info := maps.Clone(v.info)
	if e := v.Ending; e != nil {
		info["phase"], info["reason"], info["message"] = string(e.Phase), e.Reason, e.Message
	}
	return info
}

// output is a step as expressions see it: all keys always, null where there is nothing. Nobody
// reads an output that is in the object store and not loaded: see loaded. One that is only handed
// on may be in memory, too, and is large: it is not decoded.
func (v *View) output(j int, read bool) (any, error) {
	if known, ok := v.outputs[j]; ok {
		return known, nil
	}
	s := &v.steps[j]
	seen := map[string]any{"phase": string(s.Phase), "output": nil, "outputRef": nil, "error": nil, "approval": nil, "items": nil}
	var found facts.Payload
	if s.Output != nil {
		found.Data = s.Output.Raw
	}
	if s.OutputRef != nil {
		seen["outputRef"] = map[string]any{"name": s.OutputRef.Name, "digest": s.OutputRef.Digest, "size": s.OutputRef.Size}
		if read {
			found = v.payloads[s.OutputRef.Name]
		}
	}
	if len(found.Data) > 0 {
		value, err := found.Parse(v.Done.Pause)
		if err != nil {
			return nil, fmt.Errorf("output of %s: %w", s.Name, err)
		}
		seen["output"] = value
	}
	seeState(seen, s)
	if s.OutputRef == nil || len(found.Data) > 0 { // else it may be loaded later
		v.outputs[j] = seen
	}
	return seen, nil
}

// seeState adds what is known of a step beside its output.
func seeState(seen map[string]any, s *v1alpha1.StepStatus) {
	if f := s.ForEach; f != nil {
		seen["items"] = map[string]any{"total": int64(f.Total), "succeeded": int64(f.Succeeded), "failed": int64(f.Failed)}
	}
	if a := s.Approval; a != nil {
		seen["approval"] = map[string]any{"decision": string(a.Decision), "approver": a.Approver, "comment": a.Comment}
	}
	if s.Error != nil {
		seen["error"] = map[string]any{"code": s.Error.Code, "message": s.Error.Message}
	}
}

// Wanted evaluates the when expression of step i.
func (v *View) Wanted(i int) (bool, error) {
	src := v.plan.Steps[i].When
	if src == "" {
		return true, nil
	}
	said, err := v.Done.value(v.place(fmt.Sprintf("%d/when", i), v.plan.Sees(i), v.plan.IsFinally(i)), len(src), func() (json.RawMessage, int, error) {
		reads, err := expr.ConditionOutputs(src, v.Done.metered())
		if err == nil {
			err = v.loaded(v.plan.Sees(i), reads)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("when: %w", unread(err))
		}
		return v.wantedBy(i, reads)
	})
	return string(said) == "true", err
}

// Render evaluates the input of step i.
func (v *View) Render(i int) (json.RawMessage, error) {
	raw, field := Template(&v.plan.Steps[i])
	return v.Done.value(v.place(fmt.Sprintf("%d/input", i), v.plan.Sees(i), v.plan.IsFinally(i)), len(raw), func() (json.RawMessage, int, error) {
		reads, err := v.readsOf(v.plan.Sees(i), raw)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", field, err)
		}
		vars, err := v.varsOf(i, reads)
		if err != nil {
			return nil, 0, err
		}
		input, cost, err := v.templateBy(raw, vars)
		if err != nil {
			return nil, cost, fmt.Errorf("%s: %w", field, err)
		}
		return input, cost, nil
	})
}

// readsOf are the outputs that a template reads, which are loaded.
func (v *View) readsOf(sees []int, raw []byte, with ...expr.Option) (expr.Outputs, error) {
	reads, err := expr.TemplateOutputs(raw, append(with, v.Done.metered())...)
	if err != nil {
		return reads, unread(err)
	}
	return reads, v.loaded(sees, reads)
}

// Template is what is evaluated when a step that takes a place starts, and the field in
// which it stands.
func Template(step *v1alpha1.Step) (raw []byte, field string) {
	if step.Run != nil {
		return bounds.Raw(step.Run.Inputs), "run.inputs"
	}
	return bounds.Raw(step.Job.Input), "job.input"
}
