package lifecycle

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// InFlight names the attempts which status says are with workers, in step order.
func InFlight(run *v1alpha1.WorkflowRun) []protocol.JobID {
	if run == nil || run.Status == nil {
		return nil
	}
	var ids []protocol.JobID
	for i := range run.Status.Steps {
		if s := &run.Status.Steps[i]; withWorker(s) {
			ids = append(ids, jobID(run, s.Name, s.Attempt))
		}
	}
	return ids
}

// InFlightJobs are those attempts as what has to be taken back when their run is gone.
func InFlightJobs(run *v1alpha1.WorkflowRun) []Withdrawal {
	ids := InFlight(run)
	if len(ids) == 0 {
		return nil
	}
	p := planOf(run)
	all := make([]Withdrawal, 0, len(ids))
	for _, id := range ids {
		if i, ok := p.index[id.Step]; ok && p.steps[i].Job != nil {
			all = append(all, Withdrawal{ID: id, Topic: p.steps[i].Job.Topic})
		}
	}
	return all
}

// JobOf renders the job of an attempt in flight again, byte for byte as when it was dispatched, given the outputs that
// InputOutputs names. Its error wraps ErrNotInFlight, or is that of an expression (then status was not written by Decide, or an
// output is not in the object store any more).
func JobOf(run *v1alpha1.WorkflowRun, id protocol.JobID, payloads Payloads) (Job, error) {
	if run == nil || run.Status == nil || !aligned(stepsOf(run), run.Status.Steps) {
		return Job{}, fmt.Errorf("job %s: %w", id, ErrNotInFlight)
	}
	p := planOf(run)
	i, ok := p.index[id.Step]
	if !ok || p.steps[i].Job == nil {
		return Job{}, fmt.Errorf("job %s: %w", id, ErrNotInFlight)
	}
	s := &run.Status.Steps[i]
	if !withWorker(s) || jobID(run, s.Name, s.Attempt) != id || s.DispatchedAt == nil {
		return Job{}, fmt.Errorf("job %s: %w", id, ErrNotInFlight)
	}
	v := newView(run, run.Status, &p, payloads)
	input, err := v.render(i)
	if err != nil {
		return Job{}, fmt.Errorf("job %s: %w", id, err)
	}
	return Job{
		ID: id, Topic: p.steps[i].Job.Topic, Input: input,
		Deadline: attemptDeadline(run, run.Status, &p, i),
	}, nil
}

func jobID(run *v1alpha1.WorkflowRun, step string, attempt int32) protocol.JobID {
	return protocol.JobID{RunUID: string(run.UID), Step: step, Item: protocol.NoItem, Attempt: attempt}
}

// attemptDeadline is when nobody waits for the attempt any more, whatever its worker says in between.
func attemptDeadline(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus, p *plan, i int) time.Time {
	step := &p.steps[i]
	deadline := st.Steps[i].DispatchedAt.Add(startTimeout(step) + attemptTimeout(step))
	end := activeDeadline(run, st)
	if p.isFinally(i) {
		end = finallyEnd(run, st)
	}
	if !end.IsZero() && end.Before(deadline) {
		deadline = end
	}
	return deadline.UTC()
}

// view is what expressions see of a run.
type view struct {
	run      *v1alpha1.WorkflowRun
	steps    []v1alpha1.StepStatus
	ending   *v1alpha1.EndingStatus
	plan     *plan
	payloads Payloads
	info     map[string]any
	inputs   any
	outputs  map[int]any // decoded once per decision, however many steps read them
}

func newView(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus, p *plan, payloads Payloads) *view {
	return &view{
		run: run, steps: st.Steps, ending: st.Ending, plan: p, payloads: payloads,
		info: map[string]any{
			"name": run.Name, "namespace": run.Namespace, "uid": string(run.UID),
			"tenant": st.Tenant, "workloadClass": run.Spec.WorkloadClass,
		},
		outputs: make(map[int]any),
	}
}

// vars are the variables of an expression that may read some steps.
func (v *view) vars(reads []int) (expr.Vars, error) {
	if v.inputs == nil {
		inputs, err := decodeJSON(rawOf(v.run.Spec.Inputs))
		if err != nil {
			return expr.Vars{}, fmt.Errorf("spec.inputs: %w", err)
		}
		v.inputs = inputs
	}
	steps := make(map[string]any)
	for _, j := range reads {
		output, err := v.output(j)
		if err != nil {
			return expr.Vars{}, err
		}
		steps[v.steps[j].Name] = output
	}
	return expr.Vars{Inputs: v.inputs, Steps: steps, Run: v.info}, nil
}

// varsOf are the variables of step i: of the other steps only those that do not change any more.
func (v *view) varsOf(i int) (expr.Vars, error) {
	vars, err := v.vars(v.plan.sees(i))
	if err == nil && v.plan.isFinally(i) {
		vars.Run = v.infoOfEnd()
	}
	return vars, err
}

// infoOfEnd is what finally steps see of their run. The outcome is as it was when they began: it stands from then on.
func (v *view) infoOfEnd() map[string]any {
	info := maps.Clone(v.info)
	if e := v.ending; e != nil {
		info["phase"], info["reason"], info["message"] = string(e.Phase), e.Reason, e.Message
	}
	return info
}

// output is a step as expressions see it: all keys always, null where there is nothing. Nobody reads an output that is in
// the object store and not loaded: see loaded.
func (v *view) output(j int) (any, error) {
	if known, ok := v.outputs[j]; ok {
		return known, nil
	}
	s := &v.steps[j]
	seen := map[string]any{"phase": string(s.Phase), "output": nil, "outputRef": nil, "error": nil, "approval": nil}
	var raw []byte
	if s.Output != nil {
		raw = s.Output.Raw
	}
	if s.OutputRef != nil {
		seen["outputRef"] = map[string]any{"name": s.OutputRef.Name, "digest": s.OutputRef.Digest, "size": s.OutputRef.Size}
		raw = v.payloads[s.OutputRef.Name].Data
	}
	if len(raw) > 0 {
		value, err := decodeJSON(raw)
		if err != nil {
			return nil, fmt.Errorf("output of %s: %w", s.Name, err)
		}
		seen["output"] = value
	}
	if a := s.Approval; a != nil {
		seen["approval"] = map[string]any{"decision": string(a.Decision), "approver": a.Approver, "comment": a.Comment}
	}
	if s.Error != nil {
		seen["error"] = map[string]any{"code": s.Error.Code, "message": s.Error.Message}
	}
	v.outputs[j] = seen
	return seen, nil
}

// wanted evaluates the when expression of step i.
func (v *view) wanted(i int) (bool, error) {
	src := v.plan.steps[i].When
	if src == "" {
		return true, nil
	}
	reads, err := expr.ConditionOutputs(src)
	if err == nil {
		err = v.loaded(v.plan.sees(i), reads)
	}
	if err != nil {
		return false, fmt.Errorf("when: %w", err)
	}
	vars, err := v.varsOf(i)
	if err != nil {
		return false, err
	}
	ok, err := expr.EvalCondition(src, vars)
	if err != nil {
		return false, fmt.Errorf("when: %w", err)
	}
	return ok, nil
}

// render evaluates the input of step i.
func (v *view) render(i int) (json.RawMessage, error) {
	raw, field := template(&v.plan.steps[i])
	reads, err := expr.TemplateOutputs(raw)
	if err == nil {
		err = v.loaded(v.plan.sees(i), reads)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	vars, err := v.varsOf(i)
	if err != nil {
		return nil, err
	}
	input, err := expr.Render(raw, vars)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return input, nil
}

// template is what is evaluated when a step that takes a place starts, and the field in which it stands.
func template(step *v1alpha1.Step) (raw []byte, field string) {
	if step.Run != nil {
		return rawOf(step.Run.Inputs), "run.inputs"
	}
	return rawOf(step.Job.Input), "job.input"
}
