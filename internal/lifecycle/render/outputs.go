// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/syncopate-dev/syncopate/internal/document"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// PayloadOf is what is to be said of the bytes for which a reference stands, with the bytes if they
// are the output that it promises. pause is called now and then if it is not nil.
func PayloadOf(ref protocol.OutputRef, data []byte, pause func()) facts.Payload {
	if err := ref.CheckBytes(data); err != nil {
		return facts.Payload{Problem: strings.TrimPrefix(err.Error(), protocol.ErrOutputRef.Error()+": ")} // whose job it is was checked before
	}
	checked, ok := document.Check(data, pause)
	if !ok || !utf8.Valid(data) {
		return facts.Payload{Problem: "the object is not JSON in UTF-8"}
	}
	return facts.Payload{Data: data, JSON: checked}
}

// StoredOutput is an output to put into the object store.
type StoredOutput struct {
	Ref  protocol.OutputRef
	Data []byte
	// Of is the name that the output has as its worker sent it, for Payload.Stored; "": it is of
	// no worker's result.
	Of string
}

// Needs is what a decision lacks: the shell asks, stores and reads what is named, adds what it
// found to the input, and decides again. Each round is about outputs that the one before did not
// know, or about time-outs that were not due then, so it ends. If the object store, the stream
// or the API server cannot be asked, the decision holds as it is: what it lacks is left undone.
type Needs struct {
	Admission bool             // the tenant's gate is to be asked: Input.Gate
	Claim     bool             // the idempotency key is to be claimed: Input.Claim
	Locks     []facts.LocksAsk // locks across runs are to be taken: Input.Locks
	Answers   bool             // the stream is to be asked for results of the run, since a time-out is due: Input.Answers and Results
	Signals   bool             // what was sent for steps of the run is to be asked for, since the time of one, or of the run, is over: Input.Signals and SignalsAsOf

	Store []StoredOutput       // outputs that are too large for status
	Check []protocol.OutputRef // outputs that a result refers to: whether they are there
	Load  []protocol.OutputRef // outputs that expressions read: their bytes
}

// Any says whether anything is lacking.
func (n *Needs) Any() bool {
	return n.Admission || n.Claim || len(n.Locks) > 0 || n.Answers || n.Signals || n.Outputs()
}

// Outputs says whether anything is lacking of the object store.
func (n *Needs) Outputs() bool { return len(n.Store) > 0 || len(n.Check) > 0 || len(n.Load) > 0 }

// AddLoad adds outputs whose bytes are to be loaded, each once.
func (n *Needs) AddLoad(refs []protocol.OutputRef) {
	for _, r := range refs {
		if !slices.Contains(n.Load, r) {
			n.Load = append(n.Load, r)
		}
	}
}

// MissingError stops an expression whose outputs are not loaded, and names them.
type MissingError struct{ Refs []protocol.OutputRef }

func (e *MissingError) Error() string { return fmt.Sprintf("%d outputs are to be loaded", len(e.Refs)) }

// offloaded are the outputs in the object store among those of some steps that an expression reads.
func (v *View) offloaded(steps []int, reads expr.Outputs) []protocol.OutputRef {
	var refs []protocol.OutputRef
	for _, j := range steps {
		s := &v.steps[j]
		if s.OutputRef != nil && (reads.All || slices.Contains(reads.Names, s.Name)) {
			refs = append(refs, protocol.OutputRef{Name: s.OutputRef.Name, Digest: s.OutputRef.Digest, Size: s.OutputRef.Size})
		}
	}
	return refs
}

// loaded makes sure that the outputs of some steps which an expression reads are there: a
// *MissingError names those to be loaded.
func (v *View) loaded(steps []int, reads expr.Outputs) error {
	refs := v.offloaded(steps, reads)
	total := int64(0)
	var missing []protocol.OutputRef
	for _, r := range refs {
		total += r.Size
		p, known := v.payloads[r.Name]
		switch {
		case known && p.Problem != "":
			return fmt.Errorf("output %s: %s", r.Name, p.Problem)
		case p.Data == nil:
			missing = append(missing, r)
		}
	}
	switch {
	case total > bounds.MaxLoadedBytes:
		return fmt.Errorf("the outputs that it reads have %d bytes in all, more than %d; outputRef hands one on without reading it", total, bounds.MaxLoadedBytes)
	case len(missing) > 0:
		return &MissingError{missing}
	default:
		return nil
	}
}

// Returned evaluates spec.outputs, which see all of spec.steps.
func (v *View) Returned(raw []byte) ([]byte, error) {
	steps := v.plan.MainSteps()
	return v.Done.value(v.place("outputs", steps, false), len(raw), func() (json.RawMessage, int, error) {
		reads, err := v.readsOf(steps, raw)
		if err != nil {
			return nil, 0, fmt.Errorf("outputs: %w", err)
		}
		vars, err := v.vars(steps, reads)
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
