package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Reasons of the dead letters that the bus writes by itself.
const (
	reasonUndecodable = "undecodable" // the subject names no job
	reasonRejected    = "rejected"    // the token is missing or wrong
)

// Headers that a dead letter has on top of those of its message.
const (
	HeaderDeadReason     = "Syncopate-Dead-Letter-Reason"
	HeaderDeadError      = "Syncopate-Dead-Letter-Error"      // text for people, cut at 512 bytes
	HeaderDeadSubject    = "Syncopate-Dead-Letter-Subject"    // where the message was published
	HeaderDeadStream     = "Syncopate-Dead-Letter-Stream"     // stream and
	HeaderDeadSequence   = "Syncopate-Dead-Letter-Sequence"   // sequence of the message
	HeaderDeadDeliveries = "Syncopate-Dead-Letter-Deliveries" // how often it had been delivered
	HeaderDeadTruncated  = "Syncopate-Dead-Letter-Truncated"  // "headers": the message's headers did not fit
	// HeaderOriginalPrefix stands before headers of the message that mean something to the server (Nats-...). A redrive takes
	// it off, and leaves out the Msg-Id and what the message expected to be the last in its stream.
	HeaderOriginalPrefix = "Syncopate-Original-"
)

const (
	maxErrorText = 512
	natsHeaders  = "Nats-"
	headerDead   = "Syncopate-Dead-Letter-"
)

// storeLetter returns after the dead letter of a delivery is stored.
func (d *Delivery) storeLetter(ctx context.Context, reason string, cause error) error {
	o := d.original
	if o == nil {
		var err error
		if o, err = d.bus.readBack(ctx, d.key); err != nil {
			return err
		}
	}
	return d.bus.publishDeadLetter(ctx, d.letter(o, reason, cause))
}

// readBack reads a result that was delivered, and let go, from the stream: it stays there until it is settled.
func (b *Bus) readBack(ctx context.Context, key messageKey) (*original, error) {
	m, err := b.leaderGet(ctx, b.names.ResultsStream(), getRequest{Seq: key.sequence})
	switch {
	case err != nil:
		return nil, b.retryable("read the message of a dead letter", err)
	case m == nil || m.Time.UnixNano() != key.storedAt:
		return nil, b.retryable("read the message of a dead letter", errMessageGone)
	}
	return &original{header: m.header, body: m.Data}, nil
}

// letter makes the dead letter of a delivery: the original bytes and headers, and why.
func (d *Delivery) letter(o *original, reason string, cause error) *nats.Msg {
	m := nats.NewMsg(d.bus.names.DeadLetter(reason, d.ID.RunUID))
	m.Data = o.body
	for name, values := range o.header {
		// The server would act on these: drop the letter as a duplicate, expect a sequence, let it expire.
		if forServer(name) {
			name = HeaderOriginalPrefix + name
		}
		m.Header[name] = values
	}
	d.explain(m.Header, reason, cause)
	if limit := d.bus.nc.MaxPayload(); limit > 0 && int64(m.Size()) > limit {
		m.Header = nats.Header{HeaderDeadTruncated: {"headers"}}
		d.explain(m.Header, reason, cause)
	}
	return m
}

func (d *Delivery) explain(h nats.Header, reason string, cause error) {
	h.Set(HeaderDeadReason, reason)
	h.Set(HeaderDeadError, headerText(cause.Error()))
	h.Set(HeaderDeadSubject, d.subject)
	h.Set(HeaderDeadStream, d.bus.names.ResultsStream())
	h.Set(HeaderDeadSequence, strconv.FormatUint(d.key.sequence, 10))
	h.Set(HeaderDeadDeliveries, strconv.FormatUint(d.Deliveries, 10))
	// From stream, sequence and time: a second try after a lost PubAck is the same letter, and a stream that was made anew
	// does not hide its letters behind those of the old one.
	// Both are set here and not on publishing, so that the size is known before.
	h.Set(jetstream.ExpectedStreamHeader, d.bus.names.DeadLettersStream())
	h.Set(jetstream.MsgIDHeader, fmt.Sprintf("%s/%d/%d", d.bus.names.ResultsStream(), d.key.sequence, d.key.storedAt))
}

// forServer says whether a header means something to the server.
func forServer(name string) bool {
	return len(name) >= len(natsHeaders) && strings.EqualFold(name[:len(natsHeaders)], natsHeaders)
}

// headerText makes text fit into one header line.
func headerText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
	return strings.ToValidUTF8(s[:min(len(s), maxErrorText)], "")
}

// publishDeadLetter returns after the letter is stored.
func (b *Bus) publishDeadLetter(ctx context.Context, m *nats.Msg) error {
	publish := func() error {
		_, err := b.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(1))
		return err
	}
	err := publish()
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		if err = b.repairStreams(ctx); err == nil {
			err = publish()
		}
	}
	if err != nil {
		return b.retryable("publish dead letter", err)
	}
	return nil
}
