package lifecycle

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// shownDigest is how many bytes of a digest people are shown: enough to tell two outputs of one attempt apart.
const shownDigest = len("sha256:") + 12

// kept is where the output of a step is: in status, in the object store, or nowhere if there is none.
type kept struct {
	output  *runtime.RawExtension
	ref     *v1alpha1.OutputReference
	lacking bool // not known yet: it is in Decision.Needs
}

// keep finds the place of a result's output. Its problem has the code ResultRejected or OutputTooLarge.
func (d *decider) keep(r *Result) (kept, *v1alpha1.StepError) {
	if ref := r.Result.OutputRef; ref != nil {
		return d.referred(r.ID, *ref)
	}
	if len(r.Result.Output) == 0 {
		return kept{}, nil
	}
	canonical, err := bounds.Canonical(r.Result.Output)
	switch {
	case err != nil:
		return kept{}, rejected("output: " + err.Error())
	case string(canonical) == "null": // the schema has no null: a null output is an absent one
		return kept{}, nil
	case len(canonical) <= bounds.MaxOutputBytes && d.outputBytes+len(canonical) <= d.roomForOutputs():
		return kept{output: &runtime.RawExtension{Raw: canonical}}, nil
	}
	return d.moved(protocol.NewOutputRef(r.ID, canonical), canonical)
}

// roomForOutputs is what outputs in status may take, if each step should need a reference, and items of steps what they may.
func (d *decider) roomForOutputs() int {
	room := bounds.MaxOutputsBytes - bounds.RefBytes*len(d.st.Steps)
	if slices.ContainsFunc(d.plan.Steps, func(s v1alpha1.Step) bool { return s.ForEach != nil }) {
		room -= bounds.ItemsBytes
	}
	return room
}

// moved is an output that is too large for status, and goes to the object store.
func (d *decider) moved(ref protocol.OutputRef, data []byte) (kept, *v1alpha1.StepError) {
	p, known := d.in.Payloads[ref.Name]
	switch {
	case !known:
		if !slices.ContainsFunc(d.out.Needs.Store, func(s StoredOutput) bool { return s.Ref == ref }) {
			d.out.Needs.Store = append(d.out.Needs.Store, StoredOutput{Ref: ref, Data: data})
		}
		return kept{lacking: true}, nil
	case p.Problem != "":
		return kept{}, rejected("output: " + p.Problem)
	default:
		return kept{ref: reference(ref)}, nil
	}
}

// referred is an output that its worker put into the object store.
func (d *decider) referred(id protocol.JobID, ref protocol.OutputRef) (kept, *v1alpha1.StepError) {
	if problem := referenceProblem(id, ref); problem != nil {
		return kept{}, problem
	}
	p, known := d.in.Payloads[ref.Name]
	switch {
	case !known:
		d.out.Needs.Check = append(d.out.Needs.Check, ref)
		return kept{lacking: true}, nil
	case p.Problem != "":
		return kept{}, rejected("outputRef: " + p.Problem + objectOf(ref))
	default:
		return kept{ref: reference(ref)}, nil
	}
}

// objectOf ends what is said of an object, and names it: by the beginning of its digest.
func objectOf(ref protocol.OutputRef) string {
	return " (object " + ref.Digest[:min(len(ref.Digest), shownDigest)] + ")"
}

// referenceProblem says why a result of a job may not have a reference.
func referenceProblem(id protocol.JobID, ref protocol.OutputRef) *v1alpha1.StepError {
	if ref.Size > protocol.MaxPayloadBytes {
		return &v1alpha1.StepError{Code: CodeOutputTooLarge, Message: fmt.Sprintf(
			"the output has %d bytes, more than the %d that the object store takes of one step", ref.Size, protocol.MaxPayloadBytes)}
	}
	if err := ref.Check(id); err != nil {
		return rejected("outputRef: " + err.Error())
	}
	return nil
}

func rejected(why string) *v1alpha1.StepError {
	return &v1alpha1.StepError{Code: CodeResultRejected, Message: why}
}

func reference(r protocol.OutputRef) *v1alpha1.OutputReference {
	return &v1alpha1.OutputReference{Name: r.Name, Digest: r.Digest, Size: r.Size}
}
