// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const rawChunk = 64 << 10

// offload puts a large output into the object store; false if the process ends before.
func (w *raw) offload(t *task, r protocol.Result) (protocol.Result, bool) {
	inline := protocol.MaxInlineOutputBytes
	if w.flaw == inlinesTooMuch {
		inline = 90 << 10
	}
	switch {
	case len(r.Output) <= inline:
		return r, true
	case w.flaw == hasNoStore, len(r.Output) > protocol.MaxPayloadBytes && w.flaw != storesTooMuch:
		return failed("TooLarge", "too large", true), true
	}
	ref := protocol.NewOutputRef(t.job, r.Output)
	if w.flaw == otherDigest { // of a text that some JSON library wrote in another way
		ref = protocol.NewOutputRef(t.job, append(r.Output, '\n'))
		ref.Size--
	}
	for !w.put(ref, r.Output) {
		if w.life.Err() != nil {
			return r, false
		}
		w.pause(look)
	}
	r.Output, r.OutputRef = nil, &ref
	return r, true
}

// put tries once to store an object.
func (w *raw) put(ref protocol.OutputRef, output []byte) bool {
	pieces := slices.Collect(slices.Chunk(output, rawChunk))
	if w.flaw == mixesChunks {
		slices.Reverse(pieces)
	}
	nuid := nats.NewInbox()[len("_INBOX."):]
	for _, p := range pieces {
		if !w.store(nats.NewMsg(w.names.PayloadChunks(nuid)), p) {
			return false
		}
	}
	body, _ := json.Marshal(w.names.NewPayloadEntry(ref, nuid, uint64(len(pieces)))) // of own making
	entry := nats.NewMsg(w.names.PayloadEntry(ref.Name))
	entry.Header.Set(protocol.HeaderRollup, protocol.RollupSubject)
	return w.store(entry, body)
}

func (w *raw) store(m *nats.Msg, body []byte) bool {
	m.Data = body
	if w.flaw == answersBeforeStored {
		return w.nc.PublishMsg(m) == nil
	}
	ctx, cancel := context.WithTimeout(w.life, rawTimeout)
	defer cancel()
	_, err := w.js.PublishMsg(ctx, m)
	return err == nil
}
