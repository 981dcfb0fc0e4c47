// SPDX-License-Identifier: Apache-2.0

package render

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
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// ChildToCreate is a child run that status names, as it is to be created: by whoever holds the
// lock, until status has its uid.
type ChildToCreate struct {
	Step string
	Name string
	Spec v1alpha1.WorkflowRunSpec
}

// ChildOf renders the child run of a step again, as when the step began, given the outputs that
// ChildInputs names. Its error wraps ErrNotInFlight, a *LostError, or a *MissingError. pause is
// called now and then by what takes long if it is not nil.
func ChildOf(run *v1alpha1.WorkflowRun, step string, payloads facts.Payloads, pause func()) (ChildToCreate, error) {
	i, p, ok := childAt(run, step)
	if !ok || !status.InFlight(run.Status.Steps[i].Phase) || run.Status.Steps[i].ChildRun == nil {
		return ChildToCreate{}, fmt.Errorf("child run of step %s: %w", step, ErrNotInFlight)
	}
	view := NewView(run, run.Status, p, payloads)
	view.Done.Pause = pause
	inputs, err := view.Render(i)
	if err != nil {
		return ChildToCreate{}, fmt.Errorf("child run of step %s: %w", step, lost(err))
	}
	return ToCreate(run, &p.Steps[i], inputs), nil
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
	return NewView(run, run.Status, p, nil).offloaded(p.Sees(i), reads)
}

func childAt(run *v1alpha1.WorkflowRun, step string) (i int, p *dag.Plan, ok bool) {
	if run == nil || run.Status == nil || !status.Aligned(dag.Steps(run), run.Status.Steps) {
		return 0, nil, false
	}
	all := dag.Of(run)
	i, ok = all.Index[step]
	return i, &all, ok && all.Steps[i].Run != nil
}

// ToCreate is the child of a step that was validated. Of one that was not, the API server refuses
// what cannot be decoded.
func ToCreate(run *v1alpha1.WorkflowRun, step *v1alpha1.Step, inputs json.RawMessage) ChildToCreate {
	spec, _ := dag.ChildSpec(step.Run)
	if step.Run.Inputs != nil {
		spec.Inputs = &runtime.RawExtension{Raw: inputs}
	}
	return ChildToCreate{Step: step.Name, Name: ChildName(run, step.Name), Spec: spec}
}

const (
	maxChildName = 63 // a DNS label
	childHash    = 10 // hexadecimal digits: 2^40 steps of runs of one name
)

// ChildName is that of the child run of a step: a DNS label that tells parent and step, and is that
// of no other run of that parent's name.
func ChildName(run *v1alpha1.WorkflowRun, step string) string {
	sum := sha256.Sum256([]byte(string(run.UID) + "/" + step))
	tail := "-" + step + "-" + hex.EncodeToString(sum[:])[:childHash]
	parent := strings.ReplaceAll(run.Name, ".", "-")
	return parent[:max(0, min(len(parent), maxChildName-len(tail)))] + tail
}
