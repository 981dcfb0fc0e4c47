package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// ChildState is what is known of the child run of a step.
type ChildState int

// States of a child. The zero value says nothing.
const (
	ChildUnknown   ChildState = iota
	ChildThere                // it exists, and is the one that its parent named
	ChildGone                 // there is no run of that name and uid any more, by a live read
	ChildTaken                // another run has its name, by a live read
	ChildRefused              // the API server does not take it as it is
	ChildPostponed            // it could not be created now; the shell tries again
)

// Child is what was seen of the child run of a step.
type Child struct {
	State    ChildState
	UID      string // ChildThere
	Finished bool   // ChildThere; the rest says how it ended
	Phase    v1alpha1.RunPhase
	Reason   string
	Message  string

	Output    json.RawMessage           // what it returned, if that is in status
	OutputRef *v1alpha1.OutputReference // where it is otherwise

	Cause string // ChildTaken, ChildRefused, ChildPostponed: why, for people
}

// SeenChild is what a child run that exists tells its parent.
func SeenChild(run *v1alpha1.WorkflowRun) Child {
	c := Child{State: ChildThere, UID: string(run.UID), Finished: Finished(run) && run.NeedsNewer() == 0}
	if !c.Finished {
		return c
	}
	c.Phase, c.OutputRef = run.Status.Phase, run.Status.OutputsRef
	if run.Status.Outputs != nil {
		c.Output = run.Status.Outputs.Raw
	}
	if end := status.Condition(run.Status, v1alpha1.ConditionSucceeded); end != nil {
		c.Reason, c.Message = end.Reason, end.Message
	}
	return c
}

// ChildToCreate is a child run that status names, as it is to be created: by whoever holds the lock, until status has its uid.
type ChildToCreate struct {
	Step string
	Name string
	Spec v1alpha1.WorkflowRunSpec
}

// Children are the child runs under way that status names, by step, in step order.
func Children(run *v1alpha1.WorkflowRun) []v1alpha1.StepStatus {
	if run == nil || run.Status == nil || Finished(run) {
		return nil
	}
	var all []v1alpha1.StepStatus
	for i := range run.Status.Steps {
		if s := &run.Status.Steps[i]; s.ChildRun != nil && status.InFlight(s.Phase) {
			all = append(all, *s)
		}
	}
	return all
}

// ChildOf renders the child run of a step again, as when the step began, given the outputs that ChildInputs names. Its error wraps
// ErrNotInFlight, or is that of an expression (then an output is not in the object store any more).
func ChildOf(run *v1alpha1.WorkflowRun, step string, payloads Payloads) (ChildToCreate, error) {
	i, p, ok := childAt(run, step)
	if !ok || !status.InFlight(run.Status.Steps[i].Phase) || run.Status.Steps[i].ChildRun == nil {
		return ChildToCreate{}, fmt.Errorf("child run of step %s: %w", step, ErrNotInFlight)
	}
	inputs, err := newView(run, run.Status, p, payloads).render(i)
	if err != nil {
		return ChildToCreate{}, fmt.Errorf("child run of step %s: %w", step, err)
	}
	return childToCreate(run, &p.Steps[i], inputs), nil
}

// ChildInputs names the outputs in the object store that ChildOf needs.
func ChildInputs(run *v1alpha1.WorkflowRun, step string) []protocol.OutputRef {
	i, p, ok := childAt(run, step)
	if !ok {
		return nil
	}
	reads, err := expr.TemplateOutputs(bounds.Raw(p.Steps[i].Run.Inputs))
	if err != nil {
		return nil // ChildOf says so
	}
	return newView(run, run.Status, p, nil).offloaded(p.Sees(i), reads)
}

func childAt(run *v1alpha1.WorkflowRun, step string) (i int, p *dag.Plan, ok bool) {
	if run == nil || run.Status == nil || !status.Aligned(dag.Steps(run), run.Status.Steps) {
		return 0, nil, false
	}
	all := dag.Of(run)
	i, ok = all.Index[step]
	return i, &all, ok && all.Steps[i].Run != nil
}

// childToCreate is the child of a step that was validated. Of one that was not, the API server refuses what cannot be decoded.
func childToCreate(run *v1alpha1.WorkflowRun, step *v1alpha1.Step, inputs json.RawMessage) ChildToCreate {
	spec, _ := dag.ChildSpec(step.Run)
	if step.Run.Inputs != nil {
		spec.Inputs = &runtime.RawExtension{Raw: inputs}
	}
	return ChildToCreate{Step: step.Name, Name: childName(run, step.Name), Spec: spec}
}

const (
	maxChildName = 63 // a DNS label
	childHash    = 10 // hexadecimal digits: 2^40 steps of runs of one name
)

// childName is that of the child run of a step: a DNS label that tells parent and step, and is that of no other run of that parent's
// name.
func childName(run *v1alpha1.WorkflowRun, step string) string {
	sum := sha256.Sum256([]byte(string(run.UID) + "/" + step))
	tail := "-" + step + "-" + hex.EncodeToString(sum[:])[:childHash]
	parent := strings.ReplaceAll(run.Name, ".", "-")
	return parent[:max(0, min(len(parent), maxChildName-len(tail)))] + tail
}

// maxRendered bounds what a step is given, after evaluation.
func maxRendered(step *v1alpha1.Step) int {
	if step.Run != nil {
		return bounds.MaxInputsBytes
	}
	return bounds.MaxRenderedBytes
}

// commitChild names the child run of a step in status, before it is created. Its name can be foreseen, so whoever finds a run of that
// name looks whether it is as it would have been created.
func (d *decider) commitChild(l launch) {
	s := &d.st.Steps[l.step]
	child := childToCreate(d.run, &d.plan.Steps[l.step], l.input)
	s.Phase, s.StartedAt = v1alpha1.StepRunning, bounds.Micro(d.now)
	s.ChildRun = &v1alpha1.ChildRunStatus{Name: child.Name}
	if d.st.StartedAt == nil {
		d.st.StartedAt = bounds.Second(d.now)
	}
	d.out.Create = append(d.out.Create, child)
	d.event(EventNormal, "StepStarted", fmt.Sprintf("Step %s begins as child run %s", s.Name, child.Name))
}

// children applies what became of child runs. All of them count before one ends the run.
func (d *decider) children() {
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		if d.plan.Steps[i].Run == nil || s.ChildRun == nil || !status.InFlight(s.Phase) {
			continue
		}
		c := d.in.Children[s.ChildRun.Name]
		d.child(i, &c)
	}
	d.endIfDone()
}

func (d *decider) child(i int, c *Child) {
	if s := &d.st.Steps[i]; s.ChildRun.UID == "" {
		d.unconfirmed(i, s.ChildRun, c)
		return
	}
	switch {
	case c.State == ChildThere && c.UID == d.st.Steps[i].ChildRun.UID:
		d.childEnded(i, c)
	case c.State == ChildThere, c.State == ChildGone: // also if another one has its name
		d.childFailed(i, CodeChildDeleted, "it was deleted before it ended")
	}
}

// unconfirmed is for a child that status names without a uid.
func (d *decider) unconfirmed(i int, named *v1alpha1.ChildRunStatus, c *Child) {
	switch c.State {
	case ChildThere:
		named.UID = bounds.Cut(c.UID, bounds.MaxCodeChars)
		d.childEnded(i, c)
	case ChildTaken:
		d.childFailed(i, CodeNameTaken, c.Cause)
	case ChildRefused:
		d.childFailed(i, CodeInvalidSpec, c.Cause)
	case ChildUnknown, ChildGone, ChildPostponed:
	}
}

// childEnded gives a step the end of its child, if it has ended.
func (d *decider) childEnded(i int, c *Child) {
	if !c.Finished {
		return
	}
	code := CodeChildFailed
	switch c.Phase {
	case v1alpha1.RunSucceeded:
		d.childSucceeded(i, c)
		return
	case v1alpha1.RunCancelled:
		code = CodeChildCancelled
	case v1alpha1.RunTimedOut:
		code = CodeChildTimedOut
	case v1alpha1.RunFailed, v1alpha1.RunPending, v1alpha1.RunQueued, v1alpha1.RunRunning, v1alpha1.RunSuspended:
	}
	d.childFailed(i, code, c.Reason+": "+c.Message)
}

func (d *decider) childFailed(i int, code, why string) {
	s := &d.st.Steps[i]
	d.stepFailed(i, v1alpha1.StepError{Code: code, Message: "child run " + s.ChildRun.Name + ": " + why}, v1alpha1.ReasonStepFailed)
}

// childSucceeded makes the child's outputs the output of the step.
func (d *decider) childSucceeded(i int, c *Child) {
	s := &d.st.Steps[i]
	output, problem := c.Output, ""
	if ref := c.OutputRef; ref != nil {
		p := d.in.Payloads[ref.Name]
		if p.Problem == "" && p.Data == nil {
			d.lack(&missingError{[]protocol.OutputRef{{Name: ref.Name, Digest: ref.Digest, Size: ref.Size}}})
			return
		}
		output, problem = p.Data, p.Problem
	}
	if problem != "" {
		d.childFailed(i, CodeResultRejected, "output: "+problem)
		return
	}
	kept, refused := d.keep(&Result{ID: status.JobID(d.run, s.Name, 1), Result: protocol.Result{Output: output}})
	switch {
	case kept.lacking:
		return // the object store has to take it first
	case refused != nil:
		d.childFailed(i, refused.Code, refused.Message)
		return
	}
	d.outputBytes += len(bounds.Raw(kept.output))
	s.Phase, s.Output, s.OutputRef, s.CompletedAt = v1alpha1.StepSucceeded, kept.output, kept.ref, bounds.Micro(d.now)
	d.event(EventNormal, "StepSucceeded", fmt.Sprintf("Step %s: child run %s succeeded", s.Name, s.ChildRun.Name))
}

// childText says why a child run was not created yet; "" if nothing is known to keep it.
func (d *decider) childText(i int) string {
	s := &d.st.Steps[i]
	if s.ChildRun == nil || s.ChildRun.UID != "" {
		return ""
	}
	if c := d.in.Children[s.ChildRun.Name]; c.State == ChildPostponed {
		return ", which cannot be created now: " + bounds.Cut(bounds.Printable(c.Cause), bounds.MaxMessageChars/2)
	}
	return ""
}

// moreText is what is to be added to what a step under way does.
func (d *decider) moreText(i int) string { return d.workersText(i) + d.childText(i) }
