// SPDX-License-Identifier: Apache-2.0

package deadletters

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Reasons of dead letters. The first two are those of messages that are no result at all; the owner
// of the runs asks for the others.
const (
	ReasonUndecodable = "undecodable" // the subject names no job
	ReasonRejected    = "rejected"    // the token is missing or wrong
	// ReasonResultRejected: the token is valid, the body is no result. Its attempt has failed.
	ReasonResultRejected = "ResultRejected"
	// ReasonDeliveriesExhausted: processing the result failed as often as its run's policy allows.
	ReasonDeliveriesExhausted = "DeliveriesExhausted"
)

// Reasons are all that a dead letter can have.
func Reasons() []string {
	return []string{ReasonUndecodable, ReasonRejected, ReasonResultRejected, ReasonDeliveriesExhausted}
}

// Headers that a dead letter has on top of those of its message.
const (
	HeaderReason     = "Syncopate-Dead-Letter-Reason"
	HeaderError      = "Syncopate-Dead-Letter-Error"      // text for people, cut at 512 bytes
	HeaderSubject    = "Syncopate-Dead-Letter-Subject"    // where the message was published
	HeaderStream     = "Syncopate-Dead-Letter-Stream"     // stream and
	HeaderSequence   = "Syncopate-Dead-Letter-Sequence"   // sequence of the message
	HeaderDeliveries = "Syncopate-Dead-Letter-Deliveries" // how often it had been delivered
	HeaderSize       = "Syncopate-Dead-Letter-Size"       // bytes of the message's body; absent: it is whole
	HeaderTruncated  = "Syncopate-Dead-Letter-Truncated"  // "headers": the message's headers are gone; "headers,body": and a part of its body
	// HeaderOriginalPrefix stands before headers of the message that mean something to the server
	// (Nats-...) or to the client library (Status, Description). A redrive takes it off, and leaves
	// out the Msg-Id and what the message expected to be the last in its stream.
	HeaderOriginalPrefix = "Syncopate-Original-"
)

const (
	maxErrorText = 512
	// keptOfHopeless is how many bytes of subject, token and body a letter has whose message
	// can never be applied, so that people see what was sent: whoever may publish results can
	// send any number.
	keptOfHopeless = 4 << 10
	maxToken       = 128 // none of ours is longer
	natsHeaders    = "Nats-"
	headerDead     = "Syncopate-Dead-Letter-"
)

// Entry is a result that is to be put aside, and why.
type Entry struct {
	Reason     string // one word, fit for a subject
	Cause      error
	RunUID     string
	Subject    string // that it was published to
	Sequence   uint64 // in the stream of results
	StoredAt   time.Time
	Deliveries uint64
	Header     nats.Header
	Body       []byte
}

// Writer puts results aside. Its methods may be called concurrently.
type Writer struct{ conn *bus.Conn }

// NewWriter makes a Writer on a connection.
func NewWriter(conn *bus.Conn) *Writer { return &Writer{conn: conn} }

// Write returns after the dead letter is stored. Errors: *bus.RetryError.
func (w *Writer) Write(ctx context.Context, e Entry) error {
	m := w.message(e)
	publish := func() error {
		_, err := w.conn.Store(ctx, w.conn.Names.DeadLettersStream(), m, jetstream.WithRetryAttempts(1))
		return err
	}
	err := publish()
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		if err = w.conn.RepairStreams(ctx); err == nil {
			err = publish()
		}
	}
	if err != nil {
		return w.conn.Retryable("publish dead letter", err)
	}
	return nil
}

// message makes a dead letter: the original bytes and headers, and why.
func (w *Writer) message(e Entry) *nats.Msg {
	if hopeless(e.Reason) != "" {
		return w.remains(e)
	}
	m := nats.NewMsg(w.conn.Names.DeadLetter(e.Reason, e.RunUID))
	if id, err := w.conn.Names.ParseResult(e.Subject); err == nil {
		m.Subject = w.conn.Names.DeadLetterOf(e.Reason, id)
	}
	m.Data = e.Body
	for name, values := range e.Header {
		if begins(name, headerDead) { // they would say of the letter what its sender wants
			continue
		}
		// The server would act on these: drop the letter as a duplicate, expect a sequence,
		// let it expire. So would who lists letters.
		if reserved(name) {
			name = HeaderOriginalPrefix + name
		}
		m.Header[name] = values
	}
	w.explain(m.Header, e)
	if limit := w.conn.NATS.MaxPayload(); limit > 0 && int64(m.Size()) > limit {
		m.Header = nats.Header{HeaderTruncated: {"headers"}}
		w.explain(m.Header, e)
	}
	return m
}

// remains makes a dead letter of a message that can never be applied: the beginning of its body,
// and why. Without a valid token nobody knows whose run it is of, whatever its subject says: all
// such letters are on one subject, which has its own limit.
func (w *Writer) remains(e Entry) *nats.Msg {
	uid := e.RunUID
	if unproved(e.Reason) {
		uid = ""
	}
	token := e.Header.Get(protocol.HeaderToken)
	if len(token) > maxToken {
		token = ""
	}
	m := nats.NewMsg(w.conn.Names.DeadLetter(e.Reason, uid))
	m.Data = beginning(e.Body, max(0, keptOfHopeless-len(e.Subject)-len(token)))
	m.Header.Set(HeaderTruncated, "headers")
	if len(m.Data) < len(e.Body) {
		m.Header.Set(HeaderTruncated, "headers,body")
		m.Header.Set(HeaderSize, strconv.Itoa(len(e.Body)))
	}
	if token != "" { // it may be of a key that comes back from a backup
		m.Header.Set(protocol.HeaderToken, token)
	}
	w.explain(m.Header, e)
	return m
}

// beginning is at most so many bytes of a body, without a part of a rune at its end.
func beginning(body []byte, most int) []byte {
	if len(body) <= most {
		return body
	}
	for n := most; n > max(0, most-utf8.UTFMax); n-- {
		if utf8.RuneStart(body[n]) {
			return body[:n]
		}
	}
	return body[:most]
}

func (w *Writer) explain(h nats.Header, e Entry) {
	h.Set(HeaderReason, e.Reason)
	h.Set(HeaderError, Text(e.Cause))
	h.Set(HeaderSubject, e.Subject)
	h.Set(HeaderStream, w.conn.Names.ResultsStream())
	h.Set(HeaderSequence, strconv.FormatUint(e.Sequence, 10))
	h.Set(HeaderDeliveries, strconv.FormatUint(e.Deliveries, 10))
	// From stream, sequence and time: a second try after a lost PubAck is the same letter, and a
	// stream that was made anew does not hide its letters behind those of the old one.
	// Both are set here and not on publishing, so that the size is known before.
	h.Set(jetstream.ExpectedStreamHeader, w.conn.Names.DeadLettersStream())
	h.Set(jetstream.MsgIDHeader, fmt.Sprintf("%s/%d/%d", w.conn.Names.ResultsStream(), e.Sequence, e.StoredAt.UnixNano()))
}

// reserved says whether a header means something to the server, or to the client library:
// that takes a message without a body, as all are in a list, for a word of the server if it
// has a status.
func reserved(name string) bool {
	return begins(name, natsHeaders) || strings.EqualFold(name, "Status") || strings.EqualFold(name, "Description")
}

// begins says whether a name of a header begins so, in any case.
func begins(name, prefix string) bool {
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// Text is what a dead letter has of its cause: a line of 512 bytes at most. The cause may repeat a
// part of what a worker sent, however long.
func Text(cause error) string {
	s := cause.Error()
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), maxErrorText)], ""))
}
