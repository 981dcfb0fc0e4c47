package bus

import (
	"context"
	"time"
)

// guarded is a message that is settled only while its stream is the one that it came from. In the one after, its sequence may be that
// of a result which nobody has applied, and the server asks for no more than the sequence.
type guarded struct {
	receipt
	of     *losses
	stream string
	losses uint64
}

func (l *losses) guard(stream string, m receipt) receipt {
	return guarded{receipt: m, of: l, stream: stream, losses: l.of(stream)}
}

func (g guarded) check() error {
	if g.of.of(g.stream) != g.losses {
		return errStreamLost
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
