// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus/losses"
	"github.com/syncopate-dev/syncopate/internal/document"
)

// largeAnswer is from how many bytes on an answer is worth to be taken apart.
const largeAnswer = 16 << 10

// Query picks one message of a stream: that of a sequence, the first from Seq on with a subject, or
// the last with a subject.
type Query struct {
	Seq     uint64 `json:"seq,omitempty"`
	NextFor string `json:"next_by_subj,omitempty"` // wildcards are allowed
	LastFor string `json:"last_by_subj,omitempty"` // likewise
}

// Message is a message as it lies in its stream.
type Message struct {
	Seq     uint64
	Subject string
	Time    time.Time // when the stream stored it
	Header  nats.Header
	Data    []byte

	stream string
	seen   losses.Sighting
}

// Read reads a message by the API call that only the stream's leader answers. The client library
// would use a direct get, which any replica answers, on a stream that somebody switched to it. nil
// means that there is none.
func (c *Conn) Read(ctx context.Context, stream string, q Query) (*Message, error) {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	body, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	seen := c.losses.Begin(stream)
	reply, err := c.NATS.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return nil, err
	}
	r, err := decodeAnswer(reply.Data)
	if err != nil {
		return nil, fmt.Errorf("decode answer: %w", err)
	}
	if r.Error != nil && r.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound {
		return nil, c.RepairStreams(ctx) // a stream that vanished took its messages along
	}
	m, err := r.message()
	if m == nil || err != nil {
		return nil, err
	}
	m.stream, m.seen = stream, seen
	seen.Read(m.Seq)
	return m, nil
}

// decodeAnswer reads an answer as encoding/json does. Of a large one the data are taken out before:
// of a part of an output they are nearly all, and encoding/json reads them four times.
func decodeAnswer(body []byte) (r getResponse, err error) {
	outline, data, ok := outlineOf(body)
	if !ok {
		err = json.Unmarshal(body, &r)
		return r, err
	}
	if err := json.Unmarshal(outline, &r); err != nil || r.Message == nil {
		return r, err
	}
	r.Message.Data, err = base64.StdEncoding.AppendDecode(nil, data)
	return r, err
}

// outlineOf is a large answer without its data, and those, as base64; not ok: it is to be decoded
// as it is.
func outlineOf(body []byte) (outline, data []byte, ok bool) {
	if len(body) < largeAnswer {
		return nil, nil, false
	}
	message, found := theField(body, "message")
	if !found {
		return nil, nil, false
	}
	text, found := theField(message.Value, "data")
	if !found || len(text.Value) < largeAnswer/2 || text.Value[0] != '"' || bytes.IndexByte(text.Value, '\\') >= 0 {
		return nil, nil, false
	}
	begin := message.At + text.At + 1
	end := begin + len(text.Value) - 2
	return slices.Concat(body[:begin], body[end:]), body[begin:end], true
}

// theField is the one of an object that encoding/json takes for a name; not found: there is
// none, or several.
func theField(object []byte, name string) (field document.Field, found bool) {
	fields, _ := document.Fields(object)
	for _, f := range fields {
		if !strings.EqualFold(f.Key, name) {
			continue
		}
		if found {
			return field, false
		}
		field, found = f, true
	}
	return field, found
}

type getResponse struct {
	Error   *jetstream.APIError `json:"error"`
	Message *struct {
		Seq     uint64    `json:"seq"`
		Subject string    `json:"subject"`
		Time    time.Time `json:"time"`
		Headers []byte    `json:"hdrs"`
		Data    []byte    `json:"data"`
	} `json:"message"`
}

// message is nil if there is none. Headers that cannot be read are none, as in what the client
// library delivers: who may publish must not make others fail who look through a stream.
func (r getResponse) message() (*Message, error) {
	switch {
	case r.Error != nil && r.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case r.Error != nil:
		return nil, r.Error
	case r.Message == nil:
		return nil, errors.New("answer has no message")
	}
	m := &Message{Seq: r.Message.Seq, Subject: r.Message.Subject, Time: r.Message.Time, Data: r.Message.Data}
	if header, err := nats.DecodeHeadersMsg(r.Message.Headers); err == nil {
		m.Header = header
	}
	return m, nil
}

type deleteRequest struct {
	Seq     uint64 `json:"seq"`
	NoErase bool   `json:"no_erase"` // the bytes need not be overwritten
}

// Delete deletes a message that was read by its sequence, if its stream has not lost data since:
// ErrStreamLost. The sequence may be that of another message by now. Of a loss that is not noticed
// yet, all that was published before is looked up when it is.
func (c *Conn) Delete(ctx context.Context, m *Message) error {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	body, err := json.Marshal(deleteRequest{Seq: m.Seq, NoErase: true})
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	if !m.seen.Intact() {
		return ErrStreamLost
	}
	reply, err := c.NATS.RequestWithContext(ctx, "$JS.API.STREAM.MSG.DELETE."+m.stream, body)
	if err != nil {
		return err
	}
	var r struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &r); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	if r.Error != nil {
		return r.Error
	}
	return nil
}

// Store publishes a message into a stream, and waits until it is stored. What NATS has no room for
// is counted, and its error is ErrNoRoom: codes that say so here say other things elsewhere.
func (c *Conn) Store(ctx context.Context, stream string, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	before := c.losses.Begin(stream)
	ack, err := c.JetStream.PublishMsg(ctx, m, append(opts, jetstream.WithExpectStream(stream))...)
	if err == nil && !ack.Duplicate {
		before.Stored(ack.Sequence)
	}
	if noRoom(err) {
		c.config.Metrics.refusals.WithLabelValues(labelOf(c.Names, stream)).Inc()
		err = fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return ack, err
}

// Delivered takes a message that was delivered, as evidence of its stream. Once its stream has lost
// data, the message must not be settled any more: see losses.Sighting.Intact.
func (c *Conn) Delivered(stream string, seq uint64, storedAt time.Time) losses.Sighting {
	return c.losses.Delivered(stream, seq, storedAt)
}
