// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// putNth puts the output of the nth job, another one each time.
func putNth(t *testing.T, b *Store, n int) protocol.OutputRef {
	t.Helper()
	data := fmt.Append(nil, n)
	ref := protocol.NewOutputRef(bustest.JobID(n), data)
	if err := b.Put(t.Context(), ref, data); err != nil {
		t.Fatal(err)
	}
	return ref
}

// mutation: unowned that reads all entries each time.
func TestALookForLoosePartsReadsNewEntriesOnly(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	for n := range 10 {
		putNth(t, b, n)
	}
	wantNothingLoose(t, b)
	putNth(t, b, 10)
	requests := asked(t, b, "STREAM.MSG.GET")
	wantNothingLoose(t, b)
	if got := requests(); len(got) != 2 {
		t.Errorf("%d reads: %v", len(got), got)
	}
}

// A stream that is made anew has other entries under the sequences that were read.
//
// mutation: LooseParts that goes by what is remembered.
func TestWhatIsRememberedOfEntriesCostsNobodyTheirOutputs(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	for n := range 3 {
		putNth(t, b, n)
	}
	wantNothingLoose(t, b)
	if err := b.conn.JetStream.DeleteObjectStore(t.Context(), b.conn.Names.PayloadsBucket()); err != nil {
		t.Fatal(err)
	}
	if err := b.conn.EnsureStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	putNth(t, b, 3)
	wantNothingLoose(t, b)
}

// The parts of workers whose library names them stay when the entry goes.
//
// mutations: List without doubt, settle that keeps all; stale that is never so, or that takes a
// clock which was put right for a short time.
func TestPartsWhoseEntryWentAreLoose(t *testing.T) {
	for name, then := range map[string]func(b *Store) error{
		"outputs are listed":      func(b *Store) error { _, err := b.List(t.Context()); return err },
		"a day later":             func(b *Store) error { b.entries.since = b.entries.since.Add(-rememberFor); return nil },
		"the clock was put right": func(b *Store) error { b.entries.since = b.entries.since.Add(time.Hour); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newStore(t, natstest.Start(t))
			putNth(t, b, 0)
			e, _ := entryOf(t, b, putNth(t, b, 1))
			wantNothingLoose(t, b)
			stream, err := b.conn.JetStream.Stream(t.Context(), b.conn.Names.PayloadsStream())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(b.conn.Names.PayloadEntry(e.Name))); err != nil {
				t.Fatal(err)
			}
			if err := then(b); err != nil {
				t.Fatal(err)
			}
			want := []string{b.conn.Names.PayloadChunks(e.NUID)}
			if got, err := b.LooseParts(t.Context(), 0); err != nil || !cmp.Equal(want, got) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// A list that comes in pages may leave out what is there.
//
// mutation: settle that believes the list.
func TestAnEntryThatAListLeavesOutIsStillKnown(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	putNth(t, b, 0)
	wantNothingLoose(t, b)
	b.entries.doubt(nil)
	requests := asked(t, b, "STREAM.MSG.GET")
	wantNothingLoose(t, b)
	if got := requests(); len(got) != 2 || len(b.entries.parts) != 1 {
		t.Errorf("%d reads, %d entries are known", len(got), len(b.entries.parts))
	}
}

// mutation: a purge that asks for the stream.
func TestADropAsksForTheStreamOnce(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	var names, parts []string
	for n := range 10 {
		names = append(names, putNth(t, b, n).Name)
		parts = append(parts, b.conn.Names.PayloadChunks(fmt.Sprintf("brokenoff-%d", n)))
	}
	say(t, b, []byte("part"), parts...)
	requests := asked(t, b, "STREAM.INFO")
	for what, err := range map[string]error{"outputs": b.Drop(t.Context(), names), "parts": b.DropParts(t.Context(), parts)} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := requests(); len(got) > 2 {
		t.Errorf("asked %d times for two drops", len(got))
	}
	if n := payloadMessages(t, b); n > 0 {
		t.Errorf("%d messages stay", n)
	}
}
