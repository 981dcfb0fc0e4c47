// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// heldToken is how many bytes of a token are kept to be judged again. No key makes a token
// of so many.
const heldToken = 128

// Delivery is a result that waits to be settled. Its exported fields do not change.
type Delivery struct {
	ID          protocol.JobID
	Result      protocol.Result
	Rejected    error     // the token is valid but the body is no result; wraps protocol.ErrResult. Result is empty then
	PublishedAt time.Time // when the stream stored it
	Deliveries  uint64    // how often it was delivered when it was handed out, from 1; may restart after the server did
	Failures    int       // of its deliveries, how many failed as CountsAsFailure says; as far as this process remembers
	Size        int       // bytes of the body, as published: about what an authentic delivery holds in memory

	consumer *Consumer
	ledger   *ledger
	key      messageKey
	subject  string // that it was published to
	// token is that of a message which nobody knows to be authentic. The message itself is let go
	// in any case: what is needed of it later is in the stream.
	token string

	// Guarded by ledger.mu.
	receipt receipt // of the newest delivery of the message
	state   deliveryState
	buried  bool
}

// messageKey names a message. The time tells apart equal sequences of a stream that was made anew.
type messageKey struct {
	sequence uint64
	storedAt int64 // Unix nanoseconds
}

// deliveryState is the life of a delivery, see the package's documentation.
type deliveryState int

const (
	stateOpen deliveryState = iota
	stateSettling
	stateSettled
	stateDrained
)

// read makes a Delivery of a message. With an error it must not reach a handler: the Delivery is
// good for Settle only, or nil if the message does not come from JetStream.
func (c *Consumer) read(l *ledger, m *nats.Msg) (*Delivery, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	stream := c.conn.Names.ResultsStream()
	came := c.conn.Delivered(stream, meta.Sequence.Stream, meta.Timestamp)
	d := &Delivery{
		PublishedAt: meta.Timestamp, Deliveries: meta.NumDelivered, consumer: c, ledger: l,
		receipt: guarded{receipt: c.receiptOf(m.Reply), came: came}, Size: len(m.Data),
		key: messageKey{sequence: meta.Sequence.Stream, storedAt: meta.Timestamp.UnixNano()}, subject: m.Subject,
	}
	if d.ID, err = c.conn.Names.ParseResult(m.Subject); err != nil {
		return d, Permanent(deadletters.ReasonUndecodable, err)
	}
	if token := m.Header.Get(protocol.HeaderToken); !c.keys.Verify(d.ID, token) {
		d.token = strings.Clone(token[:min(len(token), heldToken)]) // it is a part of the headers, which are let go
		return d, Permanent(deadletters.ReasonRejected, fmt.Errorf("result of %s: %w", d.ID, ErrBadToken))
	}
	d.decode(m.Data)
	return d, nil
}

// decode reads what the body of an authentic message says.
func (d *Delivery) decode(body []byte) {
	if d.Result, d.Rejected = decodeResult(body); d.Rejected != nil {
		d.Result = protocol.Result{}
	}
}

// Settle ends a delivery as the retry contract says: nil acknowledges it and waits for the server's
// word; Permanent makes it a dead letter; everything else has it delivered again. Until then the
// bus keeps the server from delivering it again.
//
// It may be called from any goroutine, at any time. Only the first call counts, later ones return
// nil; if the end of Consume came first it returns ErrDrained. It works with a cancelled ctx, too:
// what is decided must not be lost at a shutdown.
//
// An error means that the settlement may not have reached the server; the message then comes again
// after at most AckWait, and nothing needs to be done.
func (d *Delivery) Settle(ctx context.Context, err error) error {
	if settle, earlier := d.ledger.claim(d); !settle {
		return earlier
	}
	// The caller's end must not turn a success into a redelivery. The time is bounded: by that of
	// one call, or of a write to a full socket before the outage is known.
	ctx, cancel := d.consumer.conn.Bounded(context.WithoutCancel(ctx))
	defer cancel()
	v := verdictOf(err, d.consumer.conn.Jittered(defaultNakDelay))
	switch v.action {
	case actionAck:
		return d.ack(ctx)
	case actionDeadLetter:
		return d.bury(ctx, v.reason, err)
	default:
		return d.nak(v)
	}
}

func (d *Delivery) ack(ctx context.Context) error {
	m := d.ledger.take(d)
	err := m.DoubleAck(ctx)
	d.ledger.finish(d)
	if err != nil {
		return fmt.Errorf("acknowledge result of %s: %w", d.ID, err)
	}
	return nil
}

func (d *Delivery) nak(v verdict) error {
	d.consumer.options.Metrics.retryDelay.WithLabelValues(v.class).Observe(v.delay.Seconds())
	d.consumer.conn.Log.V(1).Info("Result is to be delivered again", "run", d.ID.RunUID, "step", d.ID.Step, "attempt", d.ID.Attempt,
		"class", v.class, "delay", v.delay)
	if err := d.ledger.giveBack(d, v, d.consumer.conn.Clock.Now()); err != nil {
		return fmt.Errorf("give back result of %s: %w", d.ID, err)
	}
	return nil
}
