// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// text is a JSON string of n bytes, of which no two pieces of some size are the same.
func text(n int) json.RawMessage {
	b := make([]byte, 1, n+16)
	for i := 0; len(b) < n; i++ {
		b = fmt.Appendf(b, "%d ", i)
	}
	b[0], b[n-1] = '"', '"'
	return b[:n]
}

func checkLargeOutput(ctx context.Context, k *kit) error {
	return k.output1(ctx, "large", text(60<<10))
}

// output1 has the worker give back a value, in its answer or by reference.
func (k *kit) output1(ctx context.Context, step string, value json.RawMessage) error {
	got, output, err := k.gives(ctx, step, value)
	if err != nil {
		return err
	}
	if got.result.Status != protocol.StatusSucceeded || !sameJSON(value, output) {
		return &Failure{Expected: "Succeeded with the output " + shortened(string(value)), Saw: got.String()}
	}
	return nil
}

// gives is what the worker answers to an order to give back a value, and its output.
func (k *kit) gives(ctx context.Context, step string, value json.RawMessage) (got event, output json.RawMessage, err error) {
	j, es, err := k.do(ctx, step, input{Do: "succeed", Value: value})
	if err != nil {
		return event{}, nil, err
	}
	got = es[first(es, answer)]
	if ref := got.result.OutputRef; ref != nil {
		output, err = k.resolve(ctx, j, *ref)
		return got, output, err
	}
	return got, got.result.Output, nil
}

// resolve reads what a reference in an answer to a job leads to. Whether it was there in time is a
// check of its own.
func (k *kit) resolve(ctx context.Context, j job, ref protocol.OutputRef) (json.RawMessage, error) {
	if err := ref.Check(j.id); err != nil {
		return nil, &Failure{Expected: "a reference to an output of the job " + j.id.String(), Saw: err.Error()}
	}
	entry, data, err := k.object(ctx, ref)
	if err != nil {
		return nil, err
	}
	if want := k.names.NewPayloadEntry(ref, entry.NUID, entry.Chunks); entry != want {
		return nil, &Failure{Expected: fmt.Sprintf("the entry %+v", want), Saw: fmt.Sprintf("%+v", entry)}
	}
	if err := ref.CheckBytes(data); err != nil {
		return nil, &Failure{Expected: "an object with the size and digest of the reference", Saw: err.Error()}
	}
	return data, nil
}

// object reads an object with all of its chunks. Whether they are the right ones is for who asks.
func (k *kit) object(ctx context.Context, ref protocol.OutputRef) (entry protocol.PayloadEntry, data []byte, err error) {
	saw := "no entry"
	err = k.await(ctx, "the object is there", func() (bool, error) {
		s, err := k.js.Stream(ctx, k.names.PayloadsStream())
		if err != nil {
			return false, err
		}
		m, err := s.GetLastMsgForSubject(ctx, k.names.PayloadEntry(ref.Name))
		if err != nil {
			return false, err
		}
		if entry, err = protocol.DecodePayloadEntry(m.Data); err != nil {
			saw = err.Error()
			return false, err
		}
		chunks := uint64(0)
		if data, chunks, err = k.chunks(ctx, s, entry.NUID); err == nil {
			saw = fmt.Sprintf("%d of %d chunks", chunks, entry.Chunks)
		}
		return err == nil && chunks > 0 && chunks == entry.Chunks, err
	})
	if err != nil {
		err = &Failure{Expected: "the object " + ref.Name + " with all of its chunks", Saw: saw}
	}
	return entry, data, err
}

func (k *kit) chunks(ctx context.Context, s jetstream.Stream, nuid string) (data []byte, n uint64, err error) {
	for next := uint64(1); ; n++ {
		m, err := s.GetMsg(ctx, next, jetstream.WithGetMsgSubject(k.names.PayloadChunks(nuid)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return data, n, nil
		}
		if err != nil {
			return nil, 0, err
		}
		data, next = append(data, m.Data...), m.Sequence+1
	}
}

// gaveUp says whether a worker answered in the place of a large output that it has none.
func gaveUp(r protocol.Result) bool {
	return r.Status == protocol.StatusFailed && r.Final && r.Error != nil && r.Error.Code == "TooLarge"
}

// mayGiveUp is gaveUp where a worker need not have an object store.
func (k *kit) mayGiveUp(r protocol.Result) bool { return gaveUp(r) && !k.config.References }

// checkClaimCheck has outputs that would fit into a result, and that are more than one chunk.
func checkClaimCheck(ctx context.Context, k *kit) error {
	for _, size := range []int{72 << 10, 200 << 10} {
		value := text(size)
		j, es, err := k.do(ctx, "claim-check", input{Do: "succeed", Value: value})
		if err != nil {
			return err
		}
		got := es[first(es, answer)]
		if k.mayGiveUp(got.result) {
			continue
		}
		if got.result.Status != protocol.StatusSucceeded || got.result.OutputRef == nil {
			return &Failure{Expected: fmt.Sprintf("Succeeded with a reference to the output of %d bytes, or a final failure TooLarge", size), Saw: got.String()}
		}
		data, err := k.resolve(ctx, j, *got.result.OutputRef)
		if err != nil {
			return err
		}
		if !sameJSON(value, data) {
			return &Failure{Expected: "an object with the output " + shortened(string(value)), Saw: shortened(string(data))}
		}
	}
	return nil
}

// checkStoredFirst lets the object store have room for a part of an output only: until the worker
// has tried a piece twice, or answered. Who does not wait for PubAcks answers with a reference to
// what is not there.
func checkStoredFirst(ctx context.Context, k *kit) error {
	const size, room = 200 << 10, 150 << 10
	chunks := k.names.PayloadChunks("")
	before := len(k.tap.under(chunks))
	undo, err := k.limit(ctx, k.names.PayloadsStream(), func(i *jetstream.StreamInfo) { i.Config.MaxBytes = int64(i.State.Bytes) + room })
	if err != nil {
		return err
	}
	j, err := k.dispatch(ctx, newJob("stored-first"), input{Do: "succeed", Value: text(size)})
	if err != nil {
		return errors.Join(err, undo())
	}
	var es []event
	waited := k.await(ctx, "the output is refused", func() (bool, error) {
		es = k.tap.of(j)
		return count(es, answer) > 0 || repeated(k.tap.under(chunks)[before:]), nil
	})
	if err := undo(); err != nil {
		return err
	}
	if waited != nil {
		return k.saw(j, "tries to store an output, or a final failure TooLarge")
	}
	if at := first(es, answer); at >= 0 && !k.mayGiveUp(es[at].result) {
		return k.saw(j, "no answer but a final failure TooLarge while the object store is full")
	}
	if es, err = k.finish(ctx, j); err != nil {
		return err
	}
	got := es[first(es, answer)]
	if k.mayGiveUp(got.result) {
		return nil
	}
	if got.result.OutputRef == nil {
		return &Failure{Expected: "Succeeded with a reference to the output", Saw: got.String()}
	}
	_, _, err = k.object(ctx, *got.result.OutputRef)
	return err
}

// repeated says whether two messages are the same.
func repeated(es []event) bool {
	seen := map[string]bool{}
	for _, e := range es {
		if seen[string(e.body)] {
			return true
		}
		seen[string(e.body)] = true
	}
	return false
}

func checkOverLimit(ctx context.Context, k *kit) error {
	_, es, err := k.do(ctx, "over-limit", input{Do: "large", Bytes: protocol.MaxPayloadBytes})
	if err != nil {
		return err
	}
	if got := es[first(es, answer)]; !gaveUp(got.result) { // its JSON has quotes around so many letters
		return &Failure{Expected: "Failed, final, with the code TooLarge, for an output of more than 8 MiB", Saw: got.String()}
	}
	return nil
}

const (
	maxAttempts = 4       // to publish what the stream never takes show that they would go on for ever
	smallResult = 2 << 10 // leaves room for a reference with its headers
)

// checkTooLarge has the stream of results take less than it does else. It leaves open how a worker
// gets rid of an output: a final failure in its place, or a reference to it.
func checkTooLarge(ctx context.Context, k *kit) error {
	undo, err := k.limit(ctx, k.names.ResultsStream(), narrow)
	if err != nil {
		return err
	}
	j, err := k.dispatch(ctx, newJob("too-large"), input{Do: "large", Bytes: 8 * smallResult})
	if err != nil {
		return errors.Join(err, undo())
	}
	const expected = "another answer in the place of one that the stream does not take"
	waited := k.await(ctx, expected, func() (bool, error) {
		es := k.tap.of(j)
		stored, err := k.stored(ctx, j.id)
		if err == nil && len(stored) == 0 && (count(es, answer) >= maxAttempts || count(afterAnswer(es), acked) > 0) {
			return false, k.saw(j, expected)
		}
		return len(stored) == 1 && count(es, acked) > 0, err
	})
	if err := undo(); err != nil {
		return err
	}
	if waited != nil {
		return k.saw(j, expected)
	}
	es := k.tap.of(j)
	last := es[0]
	for _, e := range es {
		if e.kind == answer {
			last = e
		}
	}
	if last.result.Status == protocol.StatusFailed && !last.result.Final {
		return &Failure{Expected: "a failure that is final, for the next attempt's result has the same size", Saw: last.String()}
	}
	return nil
}

// full makes a stream refuse everything.
func full(i *jetstream.StreamInfo) { i.Config.MaxBytes = max(1, int64(i.State.Bytes)) }

// narrow makes a stream refuse what is not small.
func narrow(i *jetstream.StreamInfo) { i.Config.MaxMsgSize = smallResult }

// limit changes the configuration of a stream until undo is called.
func (k *kit) limit(ctx context.Context, stream string, edit func(*jetstream.StreamInfo)) (undo func() error, err error) {
	s, err := k.js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	was, info := s.CachedInfo().Config, *s.CachedInfo()
	edit(&info)
	if _, err := k.js.UpdateStream(ctx, info.Config); err != nil {
		return nil, fmt.Errorf("limit stream %s: %w", stream, err)
	}
	return func() error {
		if _, err := k.js.UpdateStream(ctx, was); err != nil {
			return fmt.Errorf("limit stream %s no more: %w", stream, err)
		}
		return nil
	}, nil
}
