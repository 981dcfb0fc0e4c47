// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// lookups of an object that is not there. A replica of the store may know of it a moment later
// than the operator.
const lookups = 6

// errNoPayload: the object is not in the store, or not all of it.
var errNoPayload = errors.New("no such object")

// payload reads an output that a job's input refers to; it is Job.Payload. A server that is away is
// waited for until ctx ends.
func (w *Worker) payload(ctx context.Context, ref protocol.OutputRef) (json.RawMessage, error) {
	if w.options.NoObjectStore {
		return nil, Final(Fail(CodeNoObjectStore, "this worker reads no large outputs of earlier steps"))
	}
	if err := ref.CheckForm(); err != nil {
		return nil, Final(Fail(CodeInvalidPayload, err.Error()))
	}
	backoff, missing := publishBackoff, 0
	for {
		data, err := w.fetch(ctx, ref)
		if err == nil {
			err = ref.CheckBytes(data)
		}
		switch {
		case err == nil:
			return data, nil
		case errors.Is(err, protocol.ErrOutputRef), errors.Is(err, protocol.ErrPayloadEntry):
			return nil, Final(Fail(CodeInvalidPayload, err.Error()))
		case errors.Is(err, errNoPayload):
			missing++
		}
		if missing == lookups {
			return nil, Fail(CodePayloadNotFound, err.Error())
		}
		w.log.Error(err, "Output not read", "object", ref.Name)
		w.sleep(ctx, w.jittered(backoff))
		backoff = min(2*backoff, publishCeiling)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read output %s: %w: %w", ref.Name, context.Cause(ctx), err)
		}
	}
}

// fetch reads the bytes of an object, once.
func (w *Worker) fetch(ctx context.Context, ref protocol.OutputRef) ([]byte, error) {
	s, err := w.payloads(ctx)
	if err != nil {
		return nil, err
	}
	entry, err := entryOf(ctx, s, w.names.PayloadEntry(ref.Name))
	switch {
	case err != nil:
		return nil, err
	case entry.Deleted:
		return nil, fmt.Errorf("%w: it was deleted", errNoPayload)
	case !entry.Is(ref):
		return nil, fmt.Errorf("%w: object %s has another size or digest", protocol.ErrOutputRef, ref.Name)
	}
	data := make([]byte, 0, ref.Size)
	for seq := uint64(1); int64(len(data)) < ref.Size; seq++ {
		m, err := stored(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
			return s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(w.names.PayloadChunks(entry.NUID)))
		})
		if err != nil {
			return nil, err
		}
		data, seq = append(data, m.Data...), m.Sequence
	}
	return data, nil
}

// entryOf reads an entry. Its error wraps errNoPayload, or protocol.ErrPayloadEntry, or is that of
// a server that is away.
func entryOf(ctx context.Context, s jetstream.Stream, subject string) (protocol.PayloadEntry, error) {
	m, err := stored(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return s.GetLastMsgForSubject(ctx, subject)
	})
	if err != nil {
		return protocol.PayloadEntry{}, err
	}
	return protocol.DecodePayloadEntry(m.Data)
}

// stored does one request for a message of the store.
func stored(ctx context.Context, get func(context.Context) (*jetstream.RawStreamMsg, error)) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := briefly(ctx)
	defer cancel()
	m, err := get(ctx)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, fmt.Errorf("%w: %w", errNoPayload, err)
	case err != nil:
		return nil, fmt.Errorf("read object: %w", err)
	}
	return m, nil
}
