// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Delivery is a result that waits to be applied and is then settled, once, by whoever took it.
type Delivery interface {
	// Settle acks with nil, and otherwise maps the error by the retry contract.
	Settle(ctx context.Context, err error) error
}

// Pending is a result that waits to be applied.
type Pending struct {
	Fact     lifecycle.Result
	Since    time.Time
	Delivery Delivery // nil: it was read in the stream, and is not ours to settle
	Failures int      // of earlier deliveries, those that failed and count
	Size     int      // bytes of its body
	// Refreshed says that the run was to be read live for this result already.
	Refreshed bool
	// Kept is the verdict of a decision that is not written yet: it is settled once that
	// is. "": none.
	Kept lifecycle.Verdict
	// rejected is why that decision takes the result for unusable; "": it does not.
	rejected string
	// Exhausted is the settlement of a result whose deliveries are used up, which waits until
	// status says so; nil: they are not.
	Exhausted *busresults.PermanentError
	// tenant is whose share of the inbox it takes.
	tenant string
}

// NewPending is a result as it was delivered.
func NewPending(d *busresults.Delivery, now time.Time) *Pending {
	p := &Pending{
		Fact: lifecycle.Result{ID: d.ID, Result: d.Result, PublishedAt: d.PublishedAt}, Since: now, Delivery: d, Failures: d.Failures, Size: d.Size,
	}
	if d.Rejected != nil {
		p.Fact.Rejected = d.Rejected.Error()
	}
	return p
}

// Bytes is what the result holds of the memory.
func (p *Pending) Bytes() int64 { return int64(p.Size + pendingBytes) }

// referred is how large the result says its output in the object store is.
func (p *Pending) referred() int64 {
	ref := p.Fact.Result.OutputRef
	if ref == nil || p.Fact.Rejected != "" {
		return 0
	}
	return min(max(ref.Size, 0), protocol.MaxPayloadBytes)
}

// Rejection sends the bytes of an unusable result to the dead letters once the failed attempt is in
// status; nil: it is usable.
func (p *Pending) Rejection() error {
	if p.Fact.Rejected == "" {
		return nil
	}
	return busresults.Permanent(deadletters.ReasonResultRejected, errors.New(p.Fact.Rejected))
}
