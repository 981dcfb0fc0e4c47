package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// InFlight names the attempts which status says are with workers, in step order.
func InFlight(run *v1alpha1.WorkflowRun) []protocol.JobID {
	return inFlightWhere(run, func(v1alpha1.DeadLetterReason) bool { return true })
}

// Unanswered names those attempts in flight of which job or answer has to be with NATS. The others were answered, and the answer was
// put aside: neither is there any more, and the attempt must not be published again.
func Unanswered(run *v1alpha1.WorkflowRun) []protocol.JobID {
	return inFlightWhere(run, func(aside v1alpha1.DeadLetterReason) bool { return aside == "" })
}

func inFlightWhere(run *v1alpha1.WorkflowRun, wanted func(v1alpha1.DeadLetterReason) bool) []protocol.JobID {
	if run == nil || run.Status == nil {
		return nil
	}
	var ids []protocol.JobID
	for i := range run.Status.Steps {
		switch s := &run.Status.Steps[i]; {
		case status.WithWorker(s) && wanted(s.DeadLetter):
			ids = append(ids, status.JobID(run, s.Name, s.Attempt))
		case status.IsForEach(s) && !status.Ended(s.Phase):
			ids = append(ids, itemsInFlight(run, s, wanted)...)
		}
	}
	return ids
}

// Over says whether status knows an attempt as one that is not in flight any more.
func Over(run *v1alpha1.WorkflowRun, id protocol.JobID) bool {
	if run == nil || run.Status == nil {
		return false
	}
	i, verdict := judge(run, run.Status.Steps, dag.Of(run).Index, id)
	if verdict != Ahead && status.IsForEach(&run.Status.Steps[i]) {
		_, verdict = judgeItem(&run.Status.Steps[i], groupsOf(run.Status.Steps[i].ForEach), id)
	}
	return verdict == Duplicate || verdict == Stale
}

// InFlightJobs are those attempts as what has to be taken back when their run is gone.
func InFlightJobs(run *v1alpha1.WorkflowRun) []Withdrawal {
	ids := InFlight(run)
	if len(ids) == 0 {
		return nil
	}
	p := dag.Of(run)
	all := make([]Withdrawal, 0, len(ids))
	for _, id := range ids {
		if i, ok := p.Index[id.Step]; ok && p.Steps[i].Job != nil {
			all = append(all, Withdrawal{ID: id, Topic: p.Steps[i].Job.Topic})
		}
	}
	return all
}

// Outlines are the jobs of those attempts without their inputs, so that nothing is evaluated or loaded for them.
func Outlines(run *v1alpha1.WorkflowRun) []Job {
	ids := InFlight(run)
	r := NewRendering(run, nil, nil)
	all := make([]Job, 0, len(ids))
	for _, id := range ids {
		if i, _, at, ok := r.find(id); ok {
			all = append(all, r.outline(id, i, at))
		}
	}
	return all
}

func (r *Rendering) outline(id protocol.JobID, i int, dispatchedAt time.Time) Job {
	return Job{ID: id, Topic: r.plan.Steps[i].Job.Topic, Deadline: dag.AttemptDeadline(r.run, r.run.Status, &r.plan, i, dispatchedAt)}
}

func itemsInFlight(run *v1alpha1.WorkflowRun, s *v1alpha1.StepStatus, wanted func(v1alpha1.DeadLetterReason) bool) []protocol.JobID {
	var ids []protocol.JobID
	groups := groupsOf(s.ForEach)
	for k := range groups {
		if !status.InFlight(groups[k].phase) || !wanted(groups[k].deadLetter) {
			continue
		}
		for item := range groups[k].set.All() {
			ids = append(ids, status.ItemJobID(run, s.Name, item, groups[k].attempt))
		}
	}
	return ids
}

// Rendering renders jobs of a run again, byte for byte as when they were dispatched, but for the deadline of an item, which may be
// later. It is not safe for concurrent use.
type Rendering struct {
	run   *v1alpha1.WorkflowRun
	plan  dag.Plan
	view  *view
	lists map[string][]any
	items map[int]*itemRenderer // by step
}

// NewRendering is that of a run as it is, with outputs in the object store, which may become more while it is used, and the Lists of
// a decision about the run, which may be nil.
func NewRendering(run *v1alpha1.WorkflowRun, payloads Payloads, lists map[string][]any) *Rendering {
	r := &Rendering{run: run, lists: lists, items: map[int]*itemRenderer{}}
	if run != nil && run.Status != nil && status.Aligned(dag.Steps(run), run.Status.Steps) {
		r.plan = dag.Of(run)
		r.view = newView(run, run.Status, &r.plan, payloads)
	}
	return r
}

// find is the step of an attempt in flight, the item or -1, and when the attempt was dispatched.
func (r *Rendering) find(id protocol.JobID) (step, item int, dispatchedAt time.Time, ok bool) {
	if r.view == nil {
		return 0, 0, time.Time{}, false
	}
	i, ok := r.plan.Index[id.Step]
	if !ok || r.plan.Steps[i].Job == nil {
		return 0, 0, time.Time{}, false
	}
	s := &r.run.Status.Steps[i]
	if status.IsForEach(s) && r.plan.Steps[i].ForEach != nil {
		item, at, ok := itemDispatched(s, id)
		return i, item, at, ok && id == status.ItemJobID(r.run, s.Name, item, id.Attempt)
	}
	if !status.WithWorker(s) || status.JobID(r.run, s.Name, s.Attempt) != id || s.DispatchedAt == nil {
		return 0, 0, time.Time{}, false
	}
	return i, -1, s.DispatchedAt.Time, true
}

// Job is an attempt in flight, given the outputs that Needs names. Its error wraps ErrNotInFlight, or is that of an expression (then
// status was not written by Decide, or an output is not in the object store any more).
func (r *Rendering) Job(id protocol.JobID) (Job, error) {
	i, item, at, ok := r.find(id)
	if !ok {
		return Job{}, fmt.Errorf("job %s: %w", id, ErrNotInFlight)
	}
	input, err := r.input(i, item)
	if err != nil {
		return Job{}, fmt.Errorf("job %s: %w", id, err)
	}
	j := r.outline(id, i, at)
	j.Input = input
	return j, nil
}

func (r *Rendering) input(i, item int) (json.RawMessage, error) {
	if item < 0 {
		return r.view.render(i)
	}
	if r.items[i] == nil {
		list, known := r.lists[r.plan.Steps[i].Name]
		if !known {
			var err error
			if list, err = r.view.list(i); err != nil {
				return nil, err
			}
		}
		made, err := r.view.itemRenderer(i, list)
		if err != nil {
			return nil, err
		}
		r.items[i] = made
	}
	input, problem, err := r.items[i].render(item)
	if problem != nil {
		return nil, errors.New(problem.Message)
	}
	return input, err
}

// Needs names the outputs in the object store that Job needs for an attempt.
func (r *Rendering) Needs(id protocol.JobID) []protocol.OutputRef {
	i, item, _, ok := r.find(id)
	if !ok {
		return nil
	}
	if item >= 0 && r.items[i] != nil {
		return nil
	}
	step := &r.plan.Steps[i]
	reads, err := expr.TemplateOutputs(bounds.Raw(step.Job.Input), dag.WithItem(step)...)
	if err != nil {
		return nil // Job says so
	}
	refs := r.view.offloaded(r.plan.Sees(i), reads)
	if _, known := r.lists[step.Name]; item >= 0 && !known {
		if reads, err = expr.ListOutputs(step.ForEach.Items); err == nil {
			refs = append(refs, r.view.offloaded(r.plan.Sees(i), reads)...)
		}
	}
	return refs
}

// view is what expressions see of a run.
type view struct {
	run      *v1alpha1.WorkflowRun
	steps    []v1alpha1.StepStatus
	ending   *v1alpha1.EndingStatus
	plan     *dag.Plan
	payloads Payloads
	info     map[string]any
	inputs   any
	outputs  map[int]any    // decoded once per decision, however many steps read them
	states   map[int]uint64 // hashes of what is seen of the steps
	done     *evaluations
}

func newView(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus, p *dag.Plan, payloads Payloads) *view {
	return &view{
		run: run, steps: st.Steps, ending: st.Ending, plan: p, payloads: payloads,
		info: map[string]any{
			"name": run.Name, "namespace": run.Namespace, "uid": string(run.UID),
			"tenant": st.Tenant, "workloadClass": run.Spec.WorkloadClass,
		},
		outputs: make(map[int]any), states: make(map[int]uint64), done: &evaluations{},
	}
}

// vars are the variables of an expression that may read some steps.
func (v *view) vars(reads []int) (expr.Vars, error) {
	vars, err := v.varsBut(reads)
	if err != nil {
		return expr.Vars{}, err
	}
	if v.inputs == nil {
		if v.inputs, err = bounds.ParseJSON(bounds.Raw(v.run.Spec.Inputs)); err != nil {
			return expr.Vars{}, fmt.Errorf("spec.inputs: %w", err)
		}
	}
	vars.Inputs = v.inputs
	return vars, nil
}

// varsBut are all variables but inputs.
func (v *view) varsBut(reads []int) (expr.Vars, error) {
	steps := make(map[string]any)
	for _, j := range reads {
		output, err := v.output(j)
		if err != nil {
			return expr.Vars{}, err
		}
		steps[v.steps[j].Name] = output
	}
	return expr.Vars{Steps: steps, Run: v.info}, nil
}

// varsOf are the variables of step i: of the other steps only those that do not change any more.
func (v *view) varsOf(i int) (expr.Vars, error) {
	vars, err := v.vars(v.plan.Sees(i))
	vars.Run = v.infoFor(i)
	return vars, err
}

// infoFor is what step i sees of its run.
func (v *view) infoFor(i int) map[string]any {
	if v.plan.IsFinally(i) {
		return v.infoOfEnd()
	}
	return v.info
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
	seen := map[string]any{"phase": string(s.Phase), "output": nil, "outputRef": nil, "error": nil, "approval": nil, "items": nil}
	var raw []byte
	if s.Output != nil {
		raw = s.Output.Raw
	}
	if s.OutputRef != nil {
		seen["outputRef"] = map[string]any{"name": s.OutputRef.Name, "digest": s.OutputRef.Digest, "size": s.OutputRef.Size}
		raw = v.payloads[s.OutputRef.Name].Data
	}
	if len(raw) > 0 {
		value, err := bounds.ParseJSON(raw)
		if err != nil {
			return nil, fmt.Errorf("output of %s: %w", s.Name, err)
		}
		seen["output"] = value
	}
	seeState(seen, s)
	if s.OutputRef == nil || len(raw) > 0 { // else it may be loaded later
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

// wanted evaluates the when expression of step i.
func (v *view) wanted(i int) (bool, error) {
	src := v.plan.Steps[i].When
	if src == "" {
		return true, nil
	}
	reads, err := expr.ConditionOutputs(src)
	if err == nil {
		err = v.loaded(v.plan.Sees(i), reads)
	}
	if err != nil {
		return false, fmt.Errorf("when: %w", err)
	}
	said, err := v.done.value(v.place(fmt.Sprintf("%d/when", i), v.plan.Sees(i), v.plan.IsFinally(i)), len(src), func() (json.RawMessage, int, error) {
		return v.wantedBy(i)
	})
	return string(said) == "true", err
}

// render evaluates the input of step i.
func (v *view) render(i int) (json.RawMessage, error) {
	raw, field := template(&v.plan.Steps[i])
	reads, err := expr.TemplateOutputs(raw)
	if err == nil {
		err = v.loaded(v.plan.Sees(i), reads)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return v.done.value(v.place(fmt.Sprintf("%d/input", i), v.plan.Sees(i), v.plan.IsFinally(i)), len(raw), func() (json.RawMessage, int, error) {
		vars, err := v.varsOf(i)
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

// template is what is evaluated when a step that takes a place starts, and the field in which it stands.
func template(step *v1alpha1.Step) (raw []byte, field string) {
	if step.Run != nil {
		return bounds.Raw(step.Run.Inputs), "run.inputs"
	}
	return bounds.Raw(step.Job.Input), "job.input"
}
