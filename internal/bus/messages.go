// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus/losses"
)

// Query picks one message of a stream: that of a sequence, the first from Seq on with a subject, or
// the last with a subject.
type Query struct {
	Seq     uint64 `json:"seq,omitempty"`
	NextFor string `json:"next_by_subj,omitempty"` // wildcards are allowed
	LastFor string `json:"last_by_subj,omitempty"`
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
	var r getResponse
	if err := json.Unmarshal(reply.Data, &r); err != nil {
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

// message is nil if there is none.
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
	if len(r.Message.Headers) == 0 {
		return m, nil
	}
	var err error
	if m.Header, err = nats.DecodeHeadersMsg(r.Message.Headers); err != nil {
		return nil, fmt.Errorf("decode headers: %w", err)
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

// Store publishes a message into a stream, and waits until it is stored.
func (c *Conn) Store(ctx context.Context, stream string, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	before := c.losses.Begin(stream)
	ack, err := c.JetStream.PublishMsg(ctx, m, append(opts, jetstream.WithExpectStream(stream))...)
	if err == nil && !ack.Duplicate {
		before.Stored(ack.Sequence)
	}
	return ack, err
}

// Delivered takes a message that was delivered, as evidence of its stream. Once its stream has lost
// data, the message must not be settled any more: see losses.Sighting.Intact.
func (c *Conn) Delivered(stream string, seq uint64, storedAt time.Time) losses.Sighting {
	return c.losses.Delivered(stream, seq, storedAt)
}
