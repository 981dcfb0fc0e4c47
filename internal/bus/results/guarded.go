// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/losses"
)

// guarded is a message that is settled only while its stream is the one that it came from. In the
// one after, its sequence may be that of a result which nobody has applied, and the server asks for
// no more than the sequence.
type guarded struct {
	receipt
	came losses.Sighting
}

func (g guarded) check() error {
	if !g.came.Intact() {
		return bus.ErrStreamLost
	}
	return nil
}

func (g guarded) DoubleAck(ctx context.Context) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.receipt.DoubleAck(ctx)
}

func (g guarded) Nak() error {
	if err := g.check(); err != nil {
		return err
	}
	return g.receipt.Nak()
}

func (g guarded) NakWithDelay(d time.Duration) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.receipt.NakWithDelay(d)
}

func (g guarded) InProgress() error {
	if err := g.check(); err != nil {
		return err
	}
	return g.receipt.InProgress()
}

func (g guarded) TermWithReason(reason string) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.receipt.TermWithReason(reason)
}
