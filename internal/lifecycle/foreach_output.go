package lifecycle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/document"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// The outputs of items are kept in status while they are small, then in the object store, as many in one object as come with one
// decision: a write costs one object at most, and status has one reference for each. When the last item is over they are put
// together as the list that is the step's output.

// freshOutput is the output of an item that succeeds with this decision.
type freshOutput struct {
	raw     json.RawMessage // nil: none
	results []int           // by index of Input.Results: the ones that say so
}

// succeedItem notes that an item succeeds. Its verdict is final only if succeedItems finds a place for the output.
func (d *decider) succeedItem(k int, it *items, item int) Verdict {
	raw, lacking, problem := d.itemOutput(&d.in.Results[k])
	switch {
	case lacking:
		return Waiting
	case problem != nil && problem.Code == CodeResultRejected:
		d.rejectItem(k, it, item, problem.Message)
	case problem == nil && it.st.OutputBytes+int64(len(raw)) > bounds.MaxItemsOutput:
		problem = &v1alpha1.StepError{Code: CodeOutputTooLarge, Message: fmt.Sprintf(
			"the outputs of all items have more than %d bytes with this one", bounds.MaxItemsOutput)}
		fallthrough
	case problem != nil:
		d.itemFailed(it, item, *problem)
	default:
		it.st.OutputBytes += int64(len(raw))
		it.fresh[item] = &freshOutput{raw: raw, results: []int{k}}
	}
	return Applied
}

// itemOutput is the output of an item as it is kept; one that its worker put into the object store has to be loaded first.
func (d *decider) itemOutput(r *Result) (raw json.RawMessage, lacking bool, problem *v1alpha1.StepError) {
	raw = r.Result.Output
	if ref := r.Result.OutputRef; ref != nil {
		p := d.in.Payloads[ref.Name]
		switch problem = referenceProblem(r.ID, *ref); {
		case problem != nil:
			return nil, false, problem
		case p.Problem != "":
			return nil, false, rejected("outputRef: " + p.Problem)
		case p.Data == nil:
			return nil, d.lack(&missingError{[]protocol.OutputRef{*ref}}), nil
		}
		raw = p.Data
	}
	if len(raw) == 0 {
		return nil, false, nil
	}
	raw, err := bounds.Canonical(raw)
	if err != nil {
		return nil, false, rejected("output: " + err.Error())
	}
	if string(raw) == "null" {
		raw = nil
	}
	if len(raw) > bounds.MaxDepth && !document.Valid(slices.Concat([]byte("[["), raw, []byte("]]"))) {
		return nil, false, rejected("output: it is nested too deep to be put into a list")
	}
	return raw, false, nil
}

// succeedItems ends the items that succeed with this decision, once there is a place for their outputs. If the object store has to
// take or give something first, their results wait.
func (d *decider) succeedItems(it *items) {
	if len(it.fresh) == 0 {
		return
	}
	kept, problem := d.keepOutputs(it)
	if !kept && problem == nil {
		for _, f := range it.fresh {
			it.st.OutputBytes -= int64(len(f.raw))
			for _, k := range f.results {
				d.out.Verdicts[k] = Waiting
			}
		}
		clear(it.fresh)
		return
	}
	if problem != nil {
		it.problem = problem
	}
	for item := range it.fresh {
		it.take(item)
		it.st.Succeeded++
	}
	clear(it.fresh)
	if it.st.Failed == 0 {
		d.setError(&d.st.Steps[it.step], nil)
	}
}

// held are the outputs of items in status.
func (it *items) held() []byte {
	if it.st.Outputs == nil {
		return nil
	}
	return it.st.Outputs.Raw
}

// keepOutputs finds a place for the fresh outputs; not ok without a problem: the object store has to take or give something first. A
// problem means that outputs of earlier items are lost.
func (d *decider) keepOutputs(it *items) (ok bool, problem *v1alpha1.StepError) {
	text := it.withFresh()
	if it.st.Begun >= it.st.Total && it.underWay() == len(it.fresh) {
		return d.putTogether(it, text) // the last ones need no object of their own
	}
	if len(text) == len(it.held()) {
		return true, nil // none of them has an output
	}
	if len(text) <= bounds.MaxHeldBytes && d.outputBytes-len(it.held())+len(text) <= d.roomForOutputs() {
		d.hold(it, text)
		return true, nil
	}
	refs := it.st.OutputRefs
	if len(refs) >= share(bounds.MaxBatches, d.forEachSteps()) { // all are made one
		before, problem := d.loadOutputs(refs)
		if before == nil {
			return false, problem
		}
		text, refs = joined(append(before, text)), nil
	}
	stored, problem := d.moved(protocol.NewOutputRef(status.JobID(d.run, d.st.Steps[it.step].Name, 1), text), text)
	if stored.lacking || problem != nil {
		return false, problem
	}
	d.hold(it, nil)
	it.st.OutputRefs = append(slices.Clip(refs), *stored.ref)
	return true, nil
}

// putTogether finds a place for the output of the step, given the outputs of items that are not in objects yet.
func (d *decider) putTogether(it *items, text []byte) (ok bool, problem *v1alpha1.StepError) {
	parts, problem := d.loadOutputs(it.st.OutputRefs)
	if parts == nil {
		return false, problem
	}
	list, err := listOf(append(parts, text), int(it.st.Total))
	if err != nil {
		return false, lostOutputs(err.Error())
	}
	place, problem := d.keep(&Result{ID: status.JobID(d.run, d.st.Steps[it.step].Name, 1), Result: protocol.Result{Output: list}})
	if place.lacking || problem != nil {
		return false, problem
	}
	it.output = &place
	return true, nil
}

// hold makes a text the outputs of items in status.
func (d *decider) hold(it *items, text []byte) {
	d.outputBytes += len(text) - len(it.held())
	it.st.Outputs = nil
	if len(text) > 0 {
		it.st.Outputs = &runtime.RawExtension{Raw: text}
	}
}

// loadOutputs are the texts in some objects; nil without a problem: they have to be loaded first.
func (d *decider) loadOutputs(refs []v1alpha1.OutputReference) (parts [][]byte, problem *v1alpha1.StepError) {
	var missing []protocol.OutputRef
	parts = make([][]byte, 0, len(refs)+1)
	for _, r := range refs {
		p := d.in.Payloads[r.Name]
		switch {
		case p.Problem != "":
			return nil, lostOutputs(p.Problem)
		case p.Data == nil:
			missing = append(missing, protocol.OutputRef{Name: r.Name, Digest: r.Digest, Size: r.Size})
		default:
			parts = append(parts, p.Data)
			d.partsAsked += int64(len(p.Data))
		}
	}
	if len(missing) > 0 {
		d.lackParts(missing)
		return nil, nil
	}
	return parts, nil
}

// Outputs of items are kept as the JSON text [[item, output], ...], so that more are added without a look at those before: what a
// result costs must not depend on how many came earlier. The API server gives the text back as it was.

// withFresh is the outputs in status and the fresh ones; nil if there are none.
func (it *items) withFresh() []byte {
	var parts [][]byte
	for _, item := range slices.Sorted(maps.Keys(it.fresh)) {
		if raw := it.fresh[item].raw; raw != nil {
			parts = append(parts, slices.Concat(fmt.Appendf(nil, "[%d,", item), raw, []byte("]")))
		}
	}
	if parts == nil {
		return it.held()
	}
	all := slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]"))
	return joined([][]byte{it.held(), all})
}

// joined is one text of several; a nil one has no outputs.
func joined(parts [][]byte) []byte {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	text := append(make([]byte, 0, size+len("[]")), '[')
	for _, p := range parts {
		if len(p) < len("[]") {
			continue
		}
		if len(text) > len("[") {
			text = append(text, ',')
		}
		text = append(text, p[1:len(p)-1]...)
	}
	return append(text, ']')
}

// listOf is the outputs of items as a JSON list, null where there is none.
func listOf(parts [][]byte, total int) ([]byte, error) {
	all := make([][]byte, total)
	for i := range all {
		all[i] = []byte("null")
	}
	for _, p := range parts {
		if len(p) == 0 {
			continue
		}
		var some [][2]json.RawMessage
		if err := json.Unmarshal(p, &some); err != nil {
			return nil, fmt.Errorf("not a list of outputs: %w", err)
		}
		for _, pair := range some {
			item, err := strconv.Atoi(string(pair[0]))
			if err != nil || item < 0 || item >= total {
				return nil, fmt.Errorf("there is no item %.20q", pair[0])
			}
			all[item] = pair[1]
		}
	}
	return slices.Concat([]byte("["), bytes.Join(all, []byte(",")), []byte("]")), nil
}

func lostOutputs(why string) *v1alpha1.StepError {
	return &v1alpha1.StepError{Code: CodeOutputLost, Message: "outputs of items: " + why}
}

func (d *decider) forEachSteps() (n int) {
	for _, it := range d.items {
		if it != nil {
			n++
		}
	}
	return n
}

// finishItems ends a step whose items are all over: it succeeds with the list of their outputs, once that has its place.
func (d *decider) finishItems(it *items) {
	s := &d.st.Steps[it.step]
	if it.output == nil {
		if _, it.problem = d.putTogether(it, it.held()); it.problem == nil && it.output == nil {
			d.assembling = true
			return
		}
	}
	if it.problem != nil {
		d.settleItems(it)
		return
	}
	place := it.output
	d.dropItems(it.step)
	d.outputBytes += len(bounds.Raw(place.output))
	s.Phase, s.Output, s.OutputRef, s.CompletedAt = v1alpha1.StepSucceeded, place.output, place.ref, bounds.Micro(d.now)
	text := fmt.Sprintf("Step %s succeeded with %d items", s.Name, it.st.Total)
	if it.st.Failed > 0 {
		text += fmt.Sprintf(", %d of them failed", it.st.Failed)
	}
	d.event(EventNormal, "StepSucceeded", text)
}
