package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/syncopate-dev/syncopate/internal/document"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Payload is what is known of one output in the object store.
type Payload struct {
	Data    []byte // its bytes; nil: they are as the reference says, and were not kept
	Problem string // why it cannot be used; "" if it can. Never of a store that could not be asked: that is no fact
}

// Payloads are the outputs in the object store that were looked at, by name of the object.
type Payloads map[string]Payload

// PayloadProblem says why bytes are not the output that a reference promises; "" if they are.
func PayloadProblem(ref protocol.OutputRef, data []byte) string {
	if err := ref.CheckBytes(data); err != nil {
		return strings.TrimPrefix(err.Error(), protocol.ErrOutputRef.Error()+": ") // whose job it is was checked before
	}
	if !utf8.Valid(data) || !document.Valid(data) {
		return "the object is not JSON in UTF-8"
	}
	return ""
}

// StoredOutput is an output to put into the object store.
type StoredOutput struct {
	Ref  protocol.OutputRef
	Data []byte
}

// Needs is what a decision lacks: the shell asks, stores and reads what is named, adds what it found to the input, and decides
// again. Each round is about outputs that the one before did not know, or about time-outs that were not due then, so it ends. If the
// object store or the stream cannot be asked, the decision holds as it is: what it lacks is left undone.
type Needs struct {
	Admission bool // the tenant's gate is to be asked: Input.Gate
	Claim     bool // the idempotency key is to be claimed: Input.Claim
	Answers   bool // the stream is to be asked for results of the run, since a time-out is due: Input.Answers and Results

	Store []StoredOutput       // outputs that are too large for status
	Check []protocol.OutputRef // outputs that a result refers to: whether they are there
	Load  []protocol.OutputRef // outputs that expressions read: their bytes
}

// Any says whether anything is lacking.
func (n *Needs) Any() bool { return n.Admission || n.Claim || n.Answers || n.Outputs() }

// Outputs says whether anything is lacking of the object store.
func (n *Needs) Outputs() bool { return len(n.Store) > 0 || len(n.Check) > 0 || len(n.Load) > 0 }

func (n *Needs) load(refs []protocol.OutputRef) {
	for _, r := range refs {
		if !slices.Contains(n.Load, r) {
			n.Load = append(n.Load, r)
		}
	}
}

// missingError stops an expression whose outputs are not loaded, and names them.
type missingError struct{ refs []protocol.OutputRef }

func (e *missingError) Error() string { return fmt.Sprintf("%d outputs are to be loaded", len(e.refs)) }

// lackParts notes which objects with outputs of items are to be loaded, to be made one. They have a bound of their own, beside that of
// lack: results that wait to be applied with them must not keep them out. What is too much for one decision is left to the next one.
func (d *decider) lackParts(refs []protocol.OutputRef) {
	wanted := int64(0)
	for _, r := range refs {
		wanted += r.Size
	}
	if d.partsAsked > 0 && d.partsAsked+wanted > bounds.MaxLoadedBytes {
		d.postponed = true
		return
	}
	d.partsAsked += wanted
	d.out.Needs.load(refs)
}

// lack notes which outputs an expression reads that are not loaded, and says whether that is why it failed. What is more than one
// decision may read is left to the next one.
func (d *decider) lack(err error) bool {
	missing, ok := errors.AsType[*missingError](err)
	if !ok {
		return false
	}
	loaded := int64(0)
	for name, p := range d.in.Payloads {
		if !d.parts[name] {
			loaded += int64(len(p.Data))
		}
	}
	for _, r := range d.out.Needs.Load {
		if !d.parts[r.Name] {
			loaded += r.Size
		}
	}
	wanted := int64(0)
	for _, r := range missing.refs {
		wanted += r.Size
	}
	if loaded > 0 && loaded+wanted > bounds.MaxLoadedBytes {
		d.postponed = true
		return true
	}
	d.out.Needs.load(missing.refs)
	return true
}

// offloaded are the outputs in the object store among those of some steps that an expression reads.
func (v *view) offloaded(steps []int, reads expr.Outputs) []protocol.OutputRef {
	var refs []protocol.OutputRef
	for _, j := range steps {
		s := &v.steps[j]
		if s.OutputRef != nil && (reads.All || slices.Contains(reads.Names, s.Name)) {
			refs = append(refs, protocol.OutputRef{Name: s.OutputRef.Name, Digest: s.OutputRef.Digest, Size: s.OutputRef.Size})
		}
	}
	return refs
}

// loaded makes sure that the outputs of some steps which an expression reads are there: a *missingError names those to be loaded.
func (v *view) loaded(steps []int, reads expr.Outputs) error {
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
		return &missingError{missing}
	default:
		return nil
	}
}
