// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"fmt"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// receipt says to the server what becomes of a message.
type receipt interface {
	DoubleAck(ctx context.Context) error
	Nak() error
	NakWithDelay(d time.Duration) error
	InProgress() error
	TermWithReason(reason string) error
}

// What JetStream's protocol of acknowledgements has on the wire, in the reply to a message.
const (
	wireAck        = "+ACK"
	wireNak        = "-NAK"
	wireInProgress = "+WPI"
	wireTerm       = "+TERM"
)

// slip is the receipt of a message that is not kept: the library's own would keep its body, beside
// the one that was decoded.
type slip struct {
	conn  *bus.Conn
	reply string // names the consumer, the message and its delivery
}

// receiptOf gives the receipt of a message that can be let go.
func (c *Consumer) receiptOf(reply string) receipt { return slip{conn: c.conn, reply: reply} }

// answers fails during an outage: what is sent then fills the socket, until who sends waits for it.
// AckWait brings the message again.
func (s slip) answers(text string) error {
	if !s.conn.Outage().IsZero() {
		return fmt.Errorf("send %s: %w", text, bus.ErrUnreachable)
	}
	return nil
}

func (s slip) publish(text string) error {
	if err := s.answers(text); err != nil {
		return err
	}
	if err := s.conn.NATS.Publish(s.reply, []byte(text)); err != nil {
		return fmt.Errorf("send %s: %w", text, err)
	}
	return nil
}

// DoubleAck waits until the server has noted the acknowledgement.
func (s slip) DoubleAck(ctx context.Context) error {
	if err := s.answers(wireAck); err != nil {
		return err
	}
	if _, err := s.conn.NATS.RequestWithContext(ctx, s.reply, []byte(wireAck)); err != nil {
		return fmt.Errorf("send %s: %w", wireAck, err)
	}
	return nil
}

// Nak has the message delivered again at once.
func (s slip) Nak() error { return s.publish(wireNak) }

// NakWithDelay has the message delivered again after d; with 0 at once.
func (s slip) NakWithDelay(d time.Duration) error {
	if d <= 0 {
		return s.Nak()
	}
	return s.publish(fmt.Sprintf(`%s {"delay": %d}`, wireNak, d.Nanoseconds()))
}

// InProgress begins AckWait anew.
func (s slip) InProgress() error { return s.publish(wireInProgress) }

// TermWithReason ends the message.
func (s slip) TermWithReason(reason string) error { return s.publish(wireTerm + " " + reason) }
