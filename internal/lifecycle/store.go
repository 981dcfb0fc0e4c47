// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/document"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// store is the account of a decision with the object store: what it knows of outputs there, and
// what it lacks.
type store struct {
	known Payloads
	needs *Needs

	used, room int // bytes of outputs in status, and what they may take

	partNames map[string]bool // objects with outputs of items
	postponed bool            // something waits for the next decision, which can load what it reads

	pause func() // called now and then by what takes long; nil: never

	keys map[string][]any // of locks, by keysOf: what they read is not loaded again
}

// storeOf is the account of a status with outputs of so many bytes.
func storeOf(known Payloads, needs *Needs, used int, steps []v1alpha1.Step) store {
	// Each step may need a reference, and items of steps what they may.
	room := bounds.MaxOutputsBytes - bounds.RefBytes*len(steps)
	if slices.ContainsFunc(steps, func(s v1alpha1.Step) bool { return s.ForEach != nil }) {
		room -= bounds.ItemsBytes
	}
	return store{known: known, needs: needs, used: used, room: room, keys: map[string][]any{}}
}

// noteParts remembers which objects have outputs of items.
func (o *store) noteParts(refs []v1alpha1.OutputReference) {
	for k := range refs {
		if o.partNames == nil {
			o.partNames = map[string]bool{}
		}
		o.partNames[refs[k].Name] = true
	}
}

// shownDigest is how many bytes of a digest people are shown: enough to tell two outputs of
// one attempt apart.
const shownDigest = len("sha256:") + 12

// kept is where the output of a step is: in status, in the object store, or nowhere if
// there is none.
type kept struct {
	output  *runtime.RawExtension
	ref     *v1alpha1.OutputReference
	lacking bool // not known yet: it is in Decision.Needs
}

// keep finds the place of a result's output. Its problem has the code ResultRejected
// or OutputTooLarge.
func (o *store) keep(r *Result) (kept, *v1alpha1.StepError) {
	if ref := r.Result.OutputRef; ref != nil {
		return o.referred(r.ID, *ref)
	}
	if len(r.Result.Output) == 0 {
		return kept{}, nil
	}
	plain, err := bounds.Plain(r.Result.Output, o.pause)
	o.rest()
	switch {
	case err != nil:
		return kept{}, rejected("output: " + err.Error())
	case string(plain) == "null": // the schema has no null: a null output is an absent one
		return kept{}, nil
	}
	if text := o.fitting(plain, bounds.MaxOutputBytes, 0); text != nil {
		return kept{output: &runtime.RawExtension{Raw: text}}, nil
	}
	return o.moved(protocol.NewOutputRef(r.ID, plain), plain)
}

// fitting is an output as status has it, in the place of so many bytes there; nil: it has more than
// most bytes, finds no room, or is nested too deep for tools that list runs. Then it goes to the
// object store, where nothing is lost.
func (o *store) fitting(plain []byte, most, had int) []byte {
	if len(plain) > most || document.Deeper(plain, bounds.MaxInputDepth) {
		return nil
	}
	if text := bounds.InStatus(plain); len(text) <= most && o.used-had+len(text) <= o.room {
		return text
	}
	return nil
}

// keepOne is keep for what a decision may have two hundred of: results of 95 KiB, of which each may
// have four times that in canonical form: 1e20 has 21 digits. What goes beyond the bytes that are
// stored at once waits: the next decision knows by the bytes as they came which of them are stored,
// and does not make these canonical again.
func (o *store) keepOne(r *Result) (kept, *v1alpha1.StepError) {
	if len(r.Result.Output) <= bounds.MaxOutputBytes {
		return o.keep(r)
	}
	as := protocol.NewOutputRef(r.ID, r.Result.Output)
	switch p := o.known[as.Name]; {
	case p.Stored != nil:
		return kept{ref: reference(*p.Stored)}, nil
	case o.stores() >= bounds.MaxLoadedBytes:
		return kept{lacking: true}, nil
	}
	before := len(o.needs.Store)
	place, problem := o.keep(r)
	if len(o.needs.Store) > before {
		o.needs.Store[before].Of = as.Name
	}
	return place, problem
}

// stores is how many bytes the decision wants to have stored.
func (o *store) stores() (bytes int64) {
	for i := range o.needs.Store {
		bytes += o.needs.Store[i].Ref.Size
	}
	return bytes
}

// moved is an output that is too large for status, and goes to the object store.
func (o *store) moved(ref protocol.OutputRef, data []byte) (kept, *v1alpha1.StepError) {
	p, known := o.known[ref.Name]
	switch {
	case !known:
		if !slices.ContainsFunc(o.needs.Store, func(s StoredOutput) bool { return s.Ref == ref }) {
			o.needs.Store = append(o.needs.Store, StoredOutput{Ref: ref, Data: data})
		}
		return kept{lacking: true}, nil
	case p.Problem != "":
		return kept{}, rejected("output: " + p.Problem)
	default:
		return kept{ref: reference(ref)}, nil
	}
}

// referred is an output that its worker put into the object store.
func (o *store) referred(id protocol.JobID, ref protocol.OutputRef) (kept, *v1alpha1.StepError) {
	if problem := referenceProblem(id, ref); problem != nil {
		return kept{}, problem
	}
	p, known := o.known[ref.Name]
	switch {
	case !known:
		o.needs.Check = append(o.needs.Check, ref)
		return kept{lacking: true}, nil
	case p.Problem != "":
		return kept{}, rejected("outputRef: " + p.Problem + objectOf(ref))
	default:
		return kept{ref: reference(ref)}, nil
	}
}

// rest is for results, and outputs, that are short: many take long together.
func (o *store) rest() {
	if o.pause != nil {
		o.pause()
	}
}

// objectOf ends what is said of an object, and names it: by the beginning of its digest.
func objectOf(ref protocol.OutputRef) string {
	return " (object " + ref.Digest[:min(len(ref.Digest), shownDigest)] + ")"
}

// referenceProblem says why a result of a job may not have a reference.
func referenceProblem(id protocol.JobID, ref protocol.OutputRef) *v1alpha1.StepError {
	if ref.Size > protocol.MaxPayloadBytes {
		return report.OutputTooLarge(ref.Size)
	}
	if err := ref.Check(id); err != nil {
		return rejected("outputRef: " + err.Error())
	}
	return nil
}

func rejected(why string) *v1alpha1.StepError {
	return &v1alpha1.StepError{Code: facts.CodeResultRejected, Message: why}
}

func reference(r protocol.OutputRef) *v1alpha1.OutputReference {
	return &v1alpha1.OutputReference{Name: r.Name, Digest: r.Digest, Size: r.Size}
}

// lackParts notes which objects with outputs of items are to be loaded, to be made one. They have a
// bound of their own, beside that of lack: results that wait to be applied with them must not keep
// them out. What is too much for one decision is left to the next one.
func (o *store) lackParts(refs []protocol.OutputRef) {
	wanted := int64(0)
	for _, r := range refs {
		wanted += r.Size
	}
	if had := o.reads(true); had > 0 && had+wanted > bounds.MaxLoadedBytes {
		o.postponed = true
		return
	}
	o.needs.AddLoad(refs)
}

// reads is how many bytes of outputs are in memory, or will be for the next decision of the pass:
// of those that are parts of the outputs of items, or of all others.
func (o *store) reads(parts bool) (bytes int64) {
	for name, p := range o.known {
		if o.partNames[name] == parts {
			bytes += int64(len(p.Data))
		}
	}
	for _, r := range o.needs.Load {
		if o.partNames[r.Name] == parts {
			bytes += r.Size
		}
	}
	return bytes
}

// lack notes which outputs an expression reads that are not loaded, and says whether that is why it
// failed. What is more than one decision may read is left to the next one.
func (o *store) lack(err error) bool {
	missing, ok := errors.AsType[*render.MissingError](err)
	if !ok {
		return false
	}
	wanted := int64(0)
	for _, r := range missing.Refs {
		wanted += r.Size
	}
	if had := o.reads(false); had > 0 && had+wanted > bounds.MaxLoadedBytes {
		o.postponed = true
		return true
	}
	o.needs.AddLoad(missing.Refs)
	return true
}

// parts are the texts in some objects; nil without a problem: they have to be loaded first.
func (o *store) parts(refs []v1alpha1.OutputReference) (all [][]byte, problem *v1alpha1.StepError) {
	var missing []protocol.OutputRef
	all = make([][]byte, 0, len(refs)+1)
	for _, r := range refs {
		p := o.known[r.Name]
		switch {
		case p.Problem != "":
			return nil, report.OutputsLost(p.Problem)
		case p.Data == nil:
			missing = append(missing, protocol.OutputRef{Name: r.Name, Digest: r.Digest, Size: r.Size})
		default:
			all = append(all, p.Data)
		}
	}
	if len(missing) > 0 {
		o.lackParts(missing)
		return nil, nil
	}
	return all, nil
}

// listsAround is how many lists are around the output of an item as it is kept: [[item, output]].
const listsAround = 2

// ofItem is the output of an item as it is kept, of which so many bytes are left; one that its
// worker put into the object store has to be loaded first.
func (o *store) ofItem(r *Result, left int) (raw json.RawMessage, lacking bool, problem *v1alpha1.StepError) {
	found, lacking, problem := o.asSent(r)
	if len(found.Data) == 0 {
		return nil, lacking, problem
	}
	value, err := found.Parse(o.pause)
	if err != nil {
		return nil, false, rejected("output: " + err.Error())
	}
	if value.Kind() == document.Null {
		return nil, false, nil
	}
	raw, err = bounds.PlainOf(value, left, o.pause)
	switch {
	case errors.Is(err, document.ErrTooLarge):
		return nil, false, report.ItemsTooLarge()
	case err != nil:
		return nil, false, rejected("output: " + err.Error())
	case document.Deeper(raw, document.MaxNesting-listsAround):
		return nil, false, rejected("output: it is nested too deep to be put into a list")
	default:
		return raw, false, nil
	}
}

// asSent is the output of an item as its worker sent it; none has no data.
func (o *store) asSent(r *Result) (found facts.Payload, lacking bool, problem *v1alpha1.StepError) {
	ref := r.Result.OutputRef
	if ref == nil {
		return facts.Payload{Data: r.Result.Output}, false, nil
	}
	p := o.known[ref.Name]
	switch problem = referenceProblem(r.ID, *ref); {
	case problem != nil:
		return facts.Payload{}, false, problem
	case p.Problem != "":
		return facts.Payload{}, false, rejected("outputRef: " + p.Problem)
	case p.Data == nil:
		return facts.Payload{}, o.lack(&render.MissingError{Refs: []protocol.OutputRef{*ref}}), nil
	default:
		return p, false, nil
	}
}
