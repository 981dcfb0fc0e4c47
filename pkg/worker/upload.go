// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	maxChunk = 128 << 10 // bytes of a chunk, as other programs make them
	minChunk = 1 << 10
	envelope = 1 << 10 // room for the subject and the headers of a chunk in the server's max_payload
)

// errNoStore: the object store of large outputs is not there. The operator makes it when it starts,
// so it is worth a wait.
var errNoStore = errors.New("the operator has not made the object store of large outputs")

// upload is an output on its way into the object store.
//
// The object store of nats.go is not used for it, because that publishes the entry of an object
// along with the chunks. If the server refuses one of them, or a restart swallows it, the entry
// stands for an object that nobody can read. Here the entry comes when all chunks are confirmed.
//
// After an error the upload goes on where it was: a store that has no more room is not filled with
// one beginning after the other.
//
// Invariant: as long as nobody removes them, the stream has exactly the first sent bytes of the
// body on the chunks' subject, and possibly one chunk more, whose PubAck was lost. Each chunk names
// the one before it, so the server takes it once, whatever comes twice or late.
type upload struct {
	*Worker
	job    *atWork
	ref    protocol.OutputRef
	body   []byte
	nuid   string
	sent   int    // bytes
	chunks uint64 // in which they are
	last   uint64 // sequence of the last of them
}

func (w *Worker) upload(job *atWork, body []byte) *upload {
	u := &upload{Worker: w, job: job, ref: protocol.NewOutputRef(job.id, body), body: body}
	u.begin()
	return u
}

// store returns nil when the server has the whole object. After an error it can be called
// again. It goes on when ctx ends because the worker stops, but not when nobody waits for the
// output any more.
func (u *upload) store(ctx context.Context) error {
	steady := context.WithoutCancel(ctx)
	s, err := u.payloads(steady)
	if err != nil {
		return err
	}
	if there, err := u.there(steady, s); there || err != nil {
		return err
	}
	for u.sent < len(u.body) {
		if cause := u.job.cause(ctx); cause != nil && !errors.Is(cause, ErrStopping) {
			return fmt.Errorf("store output: %w", cause)
		}
		if err := u.chunk(steady, s); err != nil {
			return fmt.Errorf("store output: %w", err)
		}
	}
	return u.enter(steady)
}

// payloads looks for the stream of the object store. Its error wraps errNoStore if there is none.
func (w *Worker) payloads(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := briefly(ctx)
	defer cancel()
	s, err := w.js.Stream(ctx, w.names.PayloadsStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: %s: %w", errNoStore, w.names.PayloadsBucket(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("look for object store %s: %w", w.names.PayloadsBucket(), err)
	}
	return s, nil
}

// there says whether the object is in the store already, as it is if the job was done before and
// its result got lost. The chunks are counted, because not every program that writes entries keeps
// to the order of this one.
func (u *upload) there(ctx context.Context, s jetstream.Stream) (bool, error) {
	entry, err := entryOf(ctx, s, u.names.PayloadEntry(u.ref.Name))
	switch {
	case errors.Is(err, errNoPayload), errors.Is(err, protocol.ErrPayloadEntry), err == nil && !entry.Is(u.ref):
		return false, nil // what is there instead is replaced
	case err != nil:
		return false, err
	}
	ctx, cancel := briefly(ctx)
	defer cancel()
	chunks := u.names.PayloadChunks(entry.NUID)
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(chunks))
	if err != nil {
		return false, fmt.Errorf("look for the object's chunks: %w", err)
	}
	return info.State.Subjects[chunks] == entry.Chunks, nil
}

// chunk stores the next chunk.
func (u *upload) chunk(ctx context.Context, s jetstream.Stream) error {
	ctx, cancel := briefly(ctx)
	defer cancel()
	end := min(len(u.body), u.sent+max(minChunk, min(maxChunk, int(u.nc.MaxPayload())-envelope)))
	ack, err := u.js.Publish(ctx, u.names.PayloadChunks(u.nuid), u.body[u.sent:end], jetstream.WithExpectLastSequencePerSubject(u.last))
	if err == nil {
		u.last, u.sent, u.chunks = ack.Sequence, end, u.chunks+1
		return nil
	}
	if !notLast(err) {
		return err
	}
	return u.unheard(ctx, s, end, err)
}

// unheard finds out why the last chunk is not where it was. Nobody else writes there, so it is the
// next one, whose PubAck got lost; or somebody emptied the store, or made it anew.
func (u *upload) unheard(ctx context.Context, s jetstream.Stream, end int, refusal error) error {
	m, err := s.GetLastMsgForSubject(ctx, u.names.PayloadChunks(u.nuid))
	switch {
	case err == nil && m.Sequence > u.last && len(m.Data) == end-u.sent:
		u.last, u.sent, u.chunks = m.Sequence, end, u.chunks+1
		return nil
	case err == nil && m.Sequence == u.last: // said by a replica that is behind
	case err == nil || errors.Is(err, jetstream.ErrMsgNotFound) && u.last > 0:
		u.begin()
	}
	return errors.Join(refusal, err)
}

// begin starts from the first byte, on a subject of its own.
func (u *upload) begin() {
	u.nuid, u.sent, u.chunks, u.last = protocol.PayloadNUID(u.job.id.RunUID, rand.Text()), 0, 0, 0
}

func notLast(err error) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// enter publishes the entry, if the chunks are still there: the operator removes those that are
// without an entry for long.
func (u *upload) enter(ctx context.Context) error {
	body, err := json.Marshal(u.names.NewPayloadEntry(u.ref, u.nuid, u.chunks))
	if err != nil {
		return fmt.Errorf("encode entry of output: %w", err)
	}
	m := nats.NewMsg(u.names.PayloadEntry(u.ref.Name))
	m.Data = body
	m.Header.Set(protocol.HeaderRollup, protocol.RollupSubject)
	ctx, cancel := briefly(ctx)
	defer cancel()
	_, err = u.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequenceForSubject(u.last, u.names.PayloadChunks(u.nuid)))
	if notLast(err) {
		u.begin()
	}
	if err != nil {
		return fmt.Errorf("store entry of output: %w", err)
	}
	return nil
}

// briefly bounds one request: one that a restart of the server swallowed is never answered.
func briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}
