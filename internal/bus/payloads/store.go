// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	chunkBytes = 128 << 10
	// leastChunk bounds the requests that an output costs: it may come in parts of so many bytes,
	// but not of one byte.
	leastChunk = 1 << 10
)

// ErrUnusable says that an output is not in the object store, or not all of it is. No retry: it is
// a fact, and no outage.
var ErrUnusable = errors.New("the output is not in the object store")

// Store is the object store of large outputs. All its methods may be called concurrently.
type Store struct {
	conn    *bus.Conn
	entries entries // as LooseParts remembers them
}

// New makes a Store on a connection.
func New(conn *bus.Conn) *Store { return &Store{conn: conn} }

// Put puts an output into the object store; that it is there already is success.
// Errors: *bus.RetryError.
func (s *Store) Put(ctx context.Context, ref protocol.OutputRef, data []byte) error {
	if err := s.conn.Usable(ctx); err != nil {
		return s.conn.Retryable("store output", err)
	}
	// The name is made of the digest: what has the name is the same bytes. It is not written again,
	// or a reader in the middle of it would lose them.
	if whole, err := s.whole(ctx, ref); err != nil || whole {
		return s.unlessNil("store output", err)
	}
	id, ok := protocol.PayloadRun(ref.Name)
	if !ok {
		return fmt.Errorf("%w: object %q", bus.ErrInvalidJob, ref.Name)
	}
	nuid := protocol.PayloadNUID(id, uuid.NewString())
	parts, err := s.putParts(ctx, nuid, data)
	if err != nil {
		s.dropTry(ctx, nuid)
		return s.conn.Retryable("store part of output", err)
	}
	body, err := json.Marshal(s.conn.Names.NewPayloadEntry(ref, nuid, parts.chunks))
	if err != nil {
		return fmt.Errorf("encode entry of output: %w", err)
	}
	m := nats.NewMsg(s.conn.Names.PayloadEntry(ref.Name))
	m.Header.Set(protocol.HeaderRollup, protocol.RollupSubject)
	m.Data = body
	_, err = s.publish(ctx, m, jetstream.WithExpectLastSequenceForSubject(parts.last, s.conn.Names.PayloadChunks(nuid)))
	if errors.Is(err, bus.ErrNoRoom) || notLast(err) { // after another failure it may be there, and somebody read it
		s.dropTry(ctx, nuid)
	}
	return s.unlessNil("store entry of output", err)
}

// parts are those of an upload that the server has confirmed.
type parts struct {
	chunks uint64
	last   uint64 // sequence of the last of them
}

// putParts stores the parts of an output. Each names the one before it, as the entry does: the
// server refuses it if somebody emptied the store meanwhile, or made it anew.
func (s *Store) putParts(ctx context.Context, nuid string, data []byte) (done parts, err error) {
	for rest := data; len(rest) > 0; done.chunks++ {
		n := min(chunkBytes, len(rest))
		m := nats.NewMsg(s.conn.Names.PayloadChunks(nuid))
		m.Data = rest[:n]
		if done.last, err = s.publish(ctx, m, jetstream.WithExpectLastSequencePerSubject(done.last)); err != nil {
			return done, err
		}
		rest = rest[n:]
	}
	return done, nil
}

// notLast says that the server refused a message, because the one that it named is not the last.
func notLast(err error) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// dropTry removes the parts of an upload that failed, also where the time of its caller is over:
// each try would leave its own behind, and tries of what finds no room would keep the store full.
// What it cannot remove is loose.
func (s *Store) dropTry(ctx context.Context, nuid string) {
	if !s.conn.Connected() {
		return
	}
	ctx = context.WithoutCancel(ctx)
	stream, err := s.stream(ctx)
	if err == nil {
		err = s.purge(ctx, stream, s.conn.Names.PayloadChunks(nuid))
	}
	if err != nil {
		s.conn.Log.V(1).Info("Parts of an output that was not stored stay for a while", "cause", err.Error())
	}
}

// publish waits for the server's word: the library's own way of writing an object sends its entry
// along with its parts, and leaves a goroutine behind now and then (nats.go 1.55).
func (s *Store) publish(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (seq uint64, err error) {
	ack, err := s.conn.Store(ctx, s.conn.Names.PayloadsStream(), m, opts...)
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		// What was there of the object went with its stream. It is begun anew, in a stream that
		// is there then.
		return 0, errors.Join(err, s.conn.RepairStreams(ctx))
	case err != nil:
		return 0, err
	}
	return ack.Sequence, nil
}

// whole says whether the output is there already, with all of its parts.
func (s *Store) whole(ctx context.Context, ref protocol.OutputRef) (bool, error) {
	e, err := s.entry(ctx, ref.Name)
	switch {
	case errors.Is(err, ErrUnusable), err == nil && !e.Is(ref):
		return false, nil
	case err != nil:
		return false, err
	}
	ctx, cancel := s.conn.Bounded(ctx)
	defer cancel()
	stream, err := s.conn.JetStream.Stream(ctx, s.conn.Names.PayloadsStream())
	if err != nil {
		return false, err
	}
	subject := s.conn.Names.PayloadChunks(e.NUID)
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return false, err
	}
	return info.State.Subjects[subject] == e.Chunks, nil
}

// Get reads an output, at most protocol.MaxPayloadBytes. An object that says that it has another
// size than the reference is not read: whoever asks has room for that. It does not compare what it
// read with the reference: that is for who knows what was promised. Errors: ErrUnusable,
// *bus.RetryError.
func (s *Store) Get(ctx context.Context, ref protocol.OutputRef) ([]byte, error) {
	if err := s.conn.Usable(ctx); err != nil {
		return nil, s.conn.Retryable("read output", err)
	}
	data, err := s.read(ctx, ref, func() (protocol.PayloadEntry, error) { return s.entry(ctx, ref.Name) })
	if err != nil && !errors.Is(err, ErrUnusable) {
		return nil, s.conn.Retryable("read output", err)
	}
	return data, err
}

// read reads an object whose entry look finds. Where parts of it are missing, it looks again:
// another upload of the same output may have taken its place, and its parts away.
func (s *Store) read(ctx context.Context, ref protocol.OutputRef, look func() (protocol.PayloadEntry, error)) ([]byte, error) {
	for nuid := ""; ; {
		e, err := look()
		switch {
		case err != nil:
			return nil, err
		case e.NUID == nuid:
			return nil, fmt.Errorf("%w: parts of object %s are missing", ErrUnusable, ref.Name)
		case e.Size < 0 || e.Size > protocol.MaxPayloadBytes:
			return nil, fmt.Errorf("%w: the object has %d bytes, more than %d", ErrUnusable, e.Size, protocol.MaxPayloadBytes)
		case e.Size != ref.Size:
			return nil, fmt.Errorf("%w: the object has %d bytes, the reference says %d", ErrUnusable, e.Size, ref.Size)
		case e.Chunks > mostChunks(e.Size):
			return nil, fmt.Errorf("%w: the object has its %d bytes in %d parts, more than %d", ErrUnusable, e.Size, e.Chunks, mostChunks(e.Size))
		}
		data, missing, err := s.readChunks(ctx, e)
		if err != nil || !missing {
			return data, err
		}
		nuid = e.NUID
	}
}

// mostChunks is in how many parts an object of a size may come.
func mostChunks(size int64) uint64 { return uint64(size)/leastChunk + 1 }

func (s *Store) readChunks(ctx context.Context, e protocol.PayloadEntry) (data []byte, missing bool, err error) {
	data = make([]byte, 0, e.Size)
	seq := uint64(1)
	for range e.Chunks {
		m, err := s.conn.Read(ctx, s.conn.Names.PayloadsStream(), bus.Query{Seq: seq, NextFor: s.conn.Names.PayloadChunks(e.NUID)})
		switch {
		case err != nil:
			return nil, false, err
		case m == nil:
			return nil, true, nil
		case int64(len(data)+len(m.Data)) > e.Size:
			return nil, false, fmt.Errorf("%w: the parts of object %s have more than its %d bytes", ErrUnusable, e.Name, e.Size)
		}
		data, seq = append(data, m.Data...), m.Seq+1
	}
	return data, false, nil
}

// entry reads what only the stream's leader answers: a replica that lags behind would say that an
// object is not there.
func (s *Store) entry(ctx context.Context, name string) (protocol.PayloadEntry, error) {
	m, err := s.conn.Read(ctx, s.conn.Names.PayloadsStream(), bus.Query{LastFor: s.conn.Names.PayloadEntry(name)})
	switch {
	case err != nil:
		return protocol.PayloadEntry{}, err
	case m == nil:
		return protocol.PayloadEntry{}, fmt.Errorf("%w: there is no object %s", ErrUnusable, name)
	}
	e, err := protocol.DecodePayloadEntry(m.Data)
	switch {
	case err != nil:
		return protocol.PayloadEntry{}, fmt.Errorf("%w: object %s: %w", ErrUnusable, name, err)
	case e.Deleted:
		return protocol.PayloadEntry{}, fmt.Errorf("%w: object %s was deleted", ErrUnusable, name)
	default:
		return e, nil
	}
}

// unlessNil is retryable for an error that may be nil.
func (s *Store) unlessNil(what string, err error) error {
	if err == nil {
		return nil
	}
	return s.conn.Retryable(what, err)
}
