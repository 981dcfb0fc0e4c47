// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"fmt"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
)

// bury makes the message a dead letter. Until that is stored the message stays where it is.
func (d *Delivery) bury(ctx context.Context, reason string, cause error) error {
	err := d.putAside(ctx, reason, cause)
	if err != nil {
		d.consumer.conn.Log.Error(err, "Dead letter could not be stored, the message stays", "run", d.ID.RunUID, "reason", reason)
		return d.nak(unburied(d.consumer.conn.Jittered(defaultNakDelay)))
	}
	d.consumer.options.Metrics.deadLetters.WithLabelValues(reason).Inc()
	d.consumer.options.Metrics.CountResult(outcomeOf(reason))
	d.consumer.conn.Log.Info("Message became a dead letter", "run", d.ID.RunUID, "step", d.ID.Step, "attempt", d.ID.Attempt,
		"reason", reason, "cause", deadletters.Text(cause))
	if err := d.ledger.terminate(d, reason); err != nil {
		return fmt.Errorf("terminate result of %s: %w", d.ID, err)
	}
	return nil
}

// Buried says whether the message was settled as a dead letter and this is stored: false after
// Settle with Permanent means that the message stays, and comes again.
func (d *Delivery) Buried() bool {
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	return d.buried
}

func outcomeOf(reason string) string {
	if proved(reason) {
		return OutcomeDeadLettered
	}
	return OutcomeRejected
}

// proved says whether a message that is put aside for a reason has the token of its job.
func proved(reason string) bool {
	return reason != deadletters.ReasonUndecodable && reason != deadletters.ReasonRejected
}

// putAside returns after the dead letter of a delivery is stored.
func (d *Delivery) putAside(ctx context.Context, reason string, cause error) error {
	return d.consumer.readBack(ctx, d.key, proved(reason), func(m *bus.Message) error {
		return d.consumer.dead.Write(ctx, deadletters.Entry{
			Reason: reason, Cause: cause, RunUID: d.ID.RunUID, Subject: d.subject, Sequence: d.key.sequence, StoredAt: d.PublishedAt,
			Deliveries: d.Deliveries, Header: m.Header, Body: m.Data,
		})
	})
}

// readBack reads a result that was delivered, and let go, from the stream: it stays there until it
// is settled. use must not keep its headers: in memory they may take many times their size, so
// few messages are held whole at a time, and fewer that are not proved to be of their job. Errors:
// *bus.RetryError, those of use.
func (c *Consumer) readBack(ctx context.Context, key messageKey, proved bool, use func(*bus.Message) error) error {
	const what = "read a result once more"
	leave, err := c.enter(ctx, proved)
	if err != nil {
		return c.conn.Retryable(what, err)
	}
	defer leave()
	m, err := c.conn.Read(ctx, c.conn.Names.ResultsStream(), bus.Query{Seq: key.sequence})
	switch {
	case err != nil:
		return c.conn.Retryable(what, err)
	case m == nil || m.Time.UnixNano() != key.storedAt:
		return c.conn.Retryable(what, errMessageGone)
	}
	return use(m)
}

// enter waits for a place among the messages that are held whole. Who waits for the second of two
// keeps none of the others from theirs.
func (c *Consumer) enter(ctx context.Context, proved bool) (leave func(), err error) {
	first := func() {}
	if !proved {
		select {
		case c.poison <- struct{}{}:
			first = func() { <-c.poison }
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	select {
	case c.whole <- struct{}{}:
		return func() { <-c.whole; first() }, nil
	case <-ctx.Done():
		first()
		return nil, context.Cause(ctx)
	}
}
