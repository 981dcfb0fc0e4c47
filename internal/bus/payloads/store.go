package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	payloadChunkBytes = 128 << 10
	// maxPayloadChunks bounds the requests that one output costs: it may come in parts of 1 KiB, but not of one byte.
	maxPayloadChunks = protocol.MaxPayloadBytes>>10 + 1
)

// payloadConfig is the object store of large outputs. Nothing in it expires: an output lives as long as its run.
func (b *Bus) payloadConfig() jetstream.ObjectStoreConfig {
	c := jetstream.ObjectStoreConfig{
		Bucket: b.names.PayloadsBucket(), Description: "Outputs of Syncopate runs that are too large for their status",
		MaxBytes: limit(b.config.MaxBytes.Payloads), Storage: jetstream.FileStorage, Replicas: b.config.Replicas, Metadata: b.metadata(),
	}
	if b.config.MemoryStorage {
		c.Storage = jetstream.MemoryStorage
	}
	return c
}

// ensurePayloads creates the object store if it is absent.
func (b *Bus) ensurePayloads(ctx context.Context) ([]Drift, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	want := b.payloadConfig()
	s, err := b.js.Stream(ctx, b.names.PayloadsStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = b.js.CreateObjectStore(ctx, want)
		if err == nil || errors.Is(err, jetstream.ErrBucketExists) { // another replica was faster
			s, err = b.js.Stream(ctx, b.names.PayloadsStream())
		}
	}
	if err != nil {
		return nil, err
	}
	got, err := b.own(ctx, s.CachedInfo().Config)
	if err != nil {
		return nil, err
	}
	return drift(got.Name, []setting{
		{"storage", want.Storage, got.Storage},
		{"num_replicas", want.Replicas, got.Replicas},
		{"max_age", want.TTL, got.MaxAge},
		{"max_bytes", want.MaxBytes, got.MaxBytes},
	}), nil
}

// StorePayload puts an output into the object store; that it is there already is success. Errors: *RetryError.
func (b *Bus) StorePayload(ctx context.Context, ref protocol.OutputRef, data []byte) error {
	if err := b.usable(ctx); err != nil {
		return b.retryable("store output", err)
	}
	// The name is made of the digest: what has the name is the same bytes. It is not written again, or a reader in the middle of
	// it would lose them.
	if whole, err := b.whole(ctx, ref); err != nil || whole {
		return b.unlessNil("store output", err)
	}
	id, ok := protocol.PayloadRun(ref.Name)
	if !ok {
		return fmt.Errorf("%w: object %q", ErrInvalidJob, ref.Name)
	}
	nuid := protocol.PayloadNUID(id, uuid.NewString())
	chunks := uint64(0)
	for rest := data; len(rest) > 0; chunks++ {
		n := min(payloadChunkBytes, len(rest))
		m := nats.NewMsg(b.names.PayloadChunks(nuid))
		m.Data = rest[:n]
		if err := b.publishPayload(ctx, m); err != nil {
			return b.retryable("store part of output", err)
		}
		rest = rest[n:]
	}
	body, err := json.Marshal(b.names.NewPayloadEntry(ref, nuid, chunks))
	if err != nil {
		return fmt.Errorf("encode entry of output: %w", err)
	}
	m := nats.NewMsg(b.names.PayloadEntry(ref.Name))
	m.Header.Set(protocol.HeaderRollup, protocol.RollupSubject)
	m.Data = body
	return b.unlessNil("store entry of output", b.publishPayload(ctx, m))
}

// publishPayload waits for the server's word: the library's own way of writing an object sends its entry along with its parts,
// and leaves a goroutine behind now and then (nats.go 1.55).
func (b *Bus) publishPayload(ctx context.Context, m *nats.Msg) error {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	_, err := b.js.PublishMsg(ctx, m, jetstream.WithExpectStream(b.names.PayloadsStream()))
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		// What was there of the object went with its stream. It is begun anew, in a stream that is there then.
		return errors.Join(err, b.repairStreams(ctx))
	}
	return err
}

// whole says whether the output is there already, with all of its parts.
func (b *Bus) whole(ctx context.Context, ref protocol.OutputRef) (bool, error) {
	e, err := b.payloadEntry(ctx, ref.Name)
	switch {
	case errors.Is(err, ErrPayloadUnusable), err == nil && !e.Is(ref):
		return false, nil
	case err != nil:
		return false, err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, b.names.PayloadsStream())
	if err != nil {
		return false, err
	}
	subject := b.names.PayloadChunks(e.NUID)
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return false, err
	}
	return info.State.Subjects[subject] == e.Chunks, nil
}

// Payload reads an output, at most protocol.MaxPayloadBytes. It compares neither size nor digest with the reference: that is for
// who knows what was promised. Errors: ErrPayloadUnusable, *RetryError.
func (b *Bus) Payload(ctx context.Context, ref protocol.OutputRef) ([]byte, error) {
	if err := b.usable(ctx); err != nil {
		return nil, b.retryable("read output", err)
	}
	data, err := b.readPayload(ctx, ref.Name, func() (protocol.PayloadEntry, error) { return b.payloadEntry(ctx, ref.Name) })
	if err != nil && !errors.Is(err, ErrPayloadUnusable) {
		return nil, b.retryable("read output", err)
	}
	return data, err
}

// readPayload reads an object whose entry look finds. Where parts of it are missing, it looks again: another upload of the same
// output may have taken its place, and its parts away.
func (b *Bus) readPayload(ctx context.Context, name string, look func() (protocol.PayloadEntry, error)) ([]byte, error) {
	for nuid := ""; ; {
		e, err := look()
		switch {
		case err != nil:
			return nil, err
		case e.NUID == nuid:
			return nil, fmt.Errorf("%w: parts of object %s are missing", ErrPayloadUnusable, name)
		case e.Size < 0 || e.Size > protocol.MaxPayloadBytes || e.Chunks > maxPayloadChunks:
			return nil, fmt.Errorf("%w: the object has %d bytes in %d parts, more than %d in %d",
				ErrPayloadUnusable, e.Size, e.Chunks, protocol.MaxPayloadBytes, maxPayloadChunks)
		}
		data, missing, err := b.readChunks(ctx, e)
		if err != nil || !missing {
			return data, err
		}
		nuid = e.NUID
	}
}

func (b *Bus) readChunks(ctx context.Context, e protocol.PayloadEntry) (data []byte, missing bool, err error) {
	data = make([]byte, 0, e.Size)
	seq := uint64(1)
	for range e.Chunks {
		m, err := b.leaderGet(ctx, b.names.PayloadsStream(), getRequest{Seq: seq, NextFor: b.names.PayloadChunks(e.NUID)})
		switch {
		case err != nil:
			return nil, false, err
		case m == nil:
			return nil, true, nil
		case int64(len(data)+len(m.Data)) > e.Size:
			return nil, false, fmt.Errorf("%w: the parts of object %s have more than its %d bytes", ErrPayloadUnusable, e.Name, e.Size)
		}
		data, seq = append(data, m.Data...), m.Seq+1
	}
	return data, false, nil
}

// payloadEntry reads what only the stream's leader answers: a replica that lags behind would say that an object is not there.
func (b *Bus) payloadEntry(ctx context.Context, name string) (protocol.PayloadEntry, error) {
	m, err := b.leaderGet(ctx, b.names.PayloadsStream(), getRequest{LastFor: b.names.PayloadEntry(name)})
	switch {
	case err != nil:
		return protocol.PayloadEntry{}, err
	case m == nil:
		return protocol.PayloadEntry{}, fmt.Errorf("%w: there is no object %s", ErrPayloadUnusable, name)
	}
	e, err := protocol.DecodePayloadEntry(m.Data)
	switch {
	case err != nil:
		return protocol.PayloadEntry{}, fmt.Errorf("%w: object %s: %w", ErrPayloadUnusable, name, err)
	case e.Deleted:
		return protocol.PayloadEntry{}, fmt.Errorf("%w: object %s was deleted", ErrPayloadUnusable, name)
	default:
		return e, nil
	}
}

// unlessNil is retryable for an error that may be nil.
func (b *Bus) unlessNil(what string, err error) error {
	if err == nil {
		return nil
	}
	return b.retryable(what, err)
}
