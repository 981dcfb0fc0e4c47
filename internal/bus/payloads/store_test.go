// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// payloadStore is the object store as a client library of a worker sees it.
func payloadStore(t *testing.T, b *Store) jetstream.ObjectStore {
	t.Helper()
	store, err := b.conn.JetStream.ObjectStore(t.Context(), b.conn.Names.PayloadsBucket())
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func payloadMessages(t *testing.T, b *Store) uint64 {
	t.Helper()
	s, err := b.conn.JetStream.Stream(t.Context(), b.conn.Names.PayloadsStream())
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

func TestOutputsAreReadAsTheyWereStored(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	for name, size := range map[string]int{"one part": 100, "exactly one part": 128 << 10, "many parts": 1<<20 + 1, "nothing": 0, "the largest": protocol.MaxPayloadBytes} {
		t.Run(name, func(t *testing.T) {
			data := bytes.Repeat([]byte("x"), size)
			ref := protocol.NewOutputRef(bustest.JobID(size), data)
			for range 2 { // a crash repeats it
				if err := b.Put(t.Context(), ref, data); err != nil {
					t.Fatal(err)
				}
			}
			got, err := b.Get(t.Context(), ref)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

// mutation: no end of the second look makes "parts are missing" go on for ever; the library's own
// reader waits for them until its time is over, and follows links.
func TestWhatIsNotAWholeObjectIsAFactAndNoOutage(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	data := bytes.Repeat([]byte("x"), 300<<10)
	ref := protocol.NewOutputRef(bustest.JobID(1), data)
	tests := map[string]func(t *testing.T){
		"there is no object": func(*testing.T) {},
		"it was deleted": func(t *testing.T) {
			if err := payloadStore(t, b).Delete(t.Context(), ref.Name); err != nil {
				t.Fatal(err)
			}
		},
		"some parts are missing": func(t *testing.T) { dropParts(t, b, ref.Name, 1) },
		"no parts are left":      func(t *testing.T) { dropParts(t, b, ref.Name, 0) },
		"it is a link": func(t *testing.T) {
			info, err := payloadStore(t, b).PutString(t.Context(), "elsewhere", "secret")
			if err != nil {
				t.Fatal(err)
			}
			if err = b.Drop(t.Context(), []string{ref.Name}); err != nil {
				t.Fatal(err)
			}
			if _, err = payloadStore(t, b).AddLink(t.Context(), ref.Name, info); err != nil {
				t.Fatal(err)
			}
		},
		"what describes it is garbage": func(t *testing.T) {
			if _, err := b.conn.JetStream.Publish(t.Context(), b.conn.Names.PayloadEntry(ref.Name), []byte("{")); err != nil {
				t.Fatal(err)
			}
		},
		"its parts are too many": func(t *testing.T) {
			e := b.conn.Names.NewPayloadEntry(ref, "x", 1<<20)
			body, err := json.Marshal(e)
			if err == nil {
				_, err = b.conn.JetStream.Publish(t.Context(), b.conn.Names.PayloadEntry(ref.Name), body)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"its parts are those of all objects": func(t *testing.T) {
			if _, err := b.conn.JetStream.Publish(t.Context(), b.conn.Names.PayloadEntry(ref.Name), []byte(`{"nuid":">","size":3,"chunks":1}`)); err != nil {
				t.Fatal(err)
			}
		},
		"it is larger than any output": func(t *testing.T) {
			if _, err := payloadStore(t, b).PutBytes(t.Context(), ref.Name, make([]byte, protocol.MaxPayloadBytes+1)); err != nil {
				t.Fatal(err)
			}
		},
		"its bytes are not those of its digest": func(t *testing.T) {
			info, err := b.entry(t.Context(), ref.Name)
			if err != nil {
				t.Fatal(err)
			}
			dropParts(t, b, ref.Name, 0)
			for range info.Chunks {
				if _, err := b.conn.JetStream.Publish(t.Context(), b.conn.Names.PayloadChunks(info.NUID), []byte("other")); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			if name != "there is no object" {
				if err := b.Put(t.Context(), ref, data); err != nil {
					t.Fatal(err)
				}
			}
			spoil(t)
			data, err := b.Get(t.Context(), ref)
			if err == nil {
				err = ref.CheckBytes(data) // as who knows the reference does
			} else if !errors.Is(err, ErrUnusable) {
				t.Errorf("got %v", err)
			}
			if err == nil {
				t.Error("it is taken for the output")
			}
			if err := b.Drop(t.Context(), []string{ref.Name, "elsewhere"}); err != nil {
				t.Fatal(err)
			}
			purgeAll(t, b)
		})
	}
}

func purgeAll(t *testing.T, b *Store) {
	t.Helper()
	s, err := b.conn.JetStream.Stream(t.Context(), b.conn.Names.PayloadsStream())
	if err == nil {
		err = s.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// dropParts removes all but so many parts of an object.
func dropParts(t *testing.T, b *Store, name string, keep uint64) {
	t.Helper()
	info, err := b.entry(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.conn.JetStream.Stream(t.Context(), b.conn.Names.PayloadsStream())
	if err != nil {
		t.Fatal(err)
	}
	options := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(b.conn.Names.PayloadChunks(info.NUID))}
	if keep > 0 {
		options = append(options, jetstream.WithPurgeKeep(keep))
	}
	if err := s.Purge(t.Context(), options...); err != nil {
		t.Fatal(err)
	}
}

// mutation: read without the second look makes this fail.
func TestAnUploadThatOvertakesAnotherIsNoLoss(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	data := bytes.Repeat([]byte("x"), 300<<10)
	ref := protocol.NewOutputRef(bustest.JobID(1), data)
	put := func() protocol.PayloadEntry {
		if _, err := payloadStore(t, b).PutBytes(t.Context(), ref.Name, data); err != nil {
			t.Fatal(err)
		}
		e, err := b.entry(t.Context(), ref.Name)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	looks := []protocol.PayloadEntry{put(), put()} // the first look was before the second upload
	got, err := b.read(t.Context(), ref, func() (protocol.PayloadEntry, error) {
		e := looks[0]
		looks = looks[1:]
		return e, nil
	})
	if err != nil || !bytes.Equal(got, data) || len(looks) > 0 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Somebody empties the store in the middle of an upload, which confirms what comes after it.
//
// mutations: the entry, or a part, that does not name the part before it.
func TestAnUploadWhosePartsGoIsNoSuccess(t *testing.T) {
	s := natstest.Start(t)
	b := newStore(t, s)
	data := bytes.Repeat([]byte("x"), 300<<10)
	ref := protocol.NewOutputRef(bustest.JobID(1), data)
	for name, c := range map[string]struct {
		subject string
		nth     int32
	}{"before the entry": {b.conn.Names.PayloadEntry(ref.Name), 1}, "before the last part": {b.conn.Names.PayloadChunks(""), 3}} {
		t.Run(name, func(t *testing.T) {
			stream, err := b.conn.JetStream.Stream(t.Context(), b.conn.Names.PayloadsStream())
			if err != nil {
				t.Fatal(err)
			}
			var said atomic.Int32
			cut := newStore(t, s, func(f *config) {
				f.URL = hop(t, s.URL(), func(line []byte) []byte {
					if bytes.HasPrefix(line, []byte("HPUB "+c.subject)) && said.Add(1) == c.nth {
						if err := stream.Purge(t.Context()); err != nil {
							t.Error(err)
						}
					}
					return line
				}, asItIs)
			})
			err = cut.Put(t.Context(), ref, data)
			if _, ok := errors.AsType[*bus.RetryError](err); !ok {
				t.Errorf("got %v", err)
			}
			wantNothingLoose(t, b)
			if err := cut.Put(t.Context(), ref, data); err != nil {
				t.Fatal(err)
			}
			wantWhole(t, b, ref, data)
			purgeAll(t, b)
		})
	}
}

// mutation: the store's own Delete in Drop leaves a mark of each object.
func TestDroppedOutputsLeaveNothingBehind(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	var names []string
	for n := range 3 {
		ref := protocol.NewOutputRef(bustest.JobID(n), []byte(strings.Repeat("x", 200<<10)))
		if err := b.Put(t.Context(), ref, []byte(strings.Repeat("x", 200<<10))); err != nil {
			t.Fatal(err)
		}
		names = append(names, ref.Name)
	}
	listed, err := b.List(t.Context())
	if err != nil || len(listed) != 3 {
		t.Fatalf("listed %v, %v", listed, err)
	}
	if err := b.Drop(t.Context(), append(names[:2:2], "never/there")); err != nil {
		t.Fatal(err)
	}
	if listed, err = b.List(t.Context()); err != nil || !cmp.Equal(names[2:], listed) {
		t.Errorf("listed %v, %v", listed, err)
	}
	if n := payloadMessages(t, b); n != 3 {
		t.Errorf("%d messages, want 1 for the name and 2 parts", n)
	}
}

func TestPartsWithoutAnObjectAreLoose(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	ref := protocol.NewOutputRef(bustest.JobID(1), []byte("1"))
	if err := b.Put(t.Context(), ref, []byte("1")); err != nil {
		t.Fatal(err)
	}
	loose := b.conn.Names.PayloadChunks("brokenoff")
	if _, err := b.conn.JetStream.Publish(t.Context(), loose, []byte("part")); err != nil {
		t.Fatal(err)
	}
	got, err := b.LooseParts(t.Context(), 0)
	if err != nil || !cmp.Equal([]string{loose}, got) {
		t.Fatalf("got %v, %v", got, err)
	}
	if err := b.DropParts(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if n := payloadMessages(t, b); n != 2 {
		t.Errorf("%d messages are left", n)
	}
	if got, err = b.LooseParts(t.Context(), 0); err != nil || len(got) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// mutation: LooseParts that looks at the first part of an upload makes this fail.
func TestAnUploadIsUnderWayUntilItsPartsStopComing(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	slow := []string{b.conn.Names.PayloadChunks("slow")}
	upload := func() (last time.Time) {
		say(t, b, []byte("part"), slow...)
		m, err := b.conn.Read(t.Context(), b.conn.Names.PayloadsStream(), bus.Query{LastFor: slow[0]})
		if err != nil {
			t.Fatal(err)
		}
		return m.Time
	}
	first, second := upload(), upload()
	if got, err := b.silent(t.Context(), slow, second, second.Sub(first)); err != nil || len(got) > 0 {
		t.Errorf("parts came at %s and %s: %v, %v", first, second, got, err)
	}
	if got, err := b.LooseParts(t.Context(), time.Hour); err != nil || len(got) > 0 {
		t.Errorf("broken off: %v, %v", got, err)
	}
	bustest.Eventually(t, "it is broken off", func() bool {
		got, err := b.LooseParts(t.Context(), 100*time.Millisecond)
		return err == nil && len(got) == 1
	})
}

func TestAnObjectStoreThatVanishedIsMadeAgain(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	ref := protocol.NewOutputRef(bustest.JobID(1), []byte("1"))
	for what, use := range map[string]func(ctx context.Context) error{
		"store": func(ctx context.Context) error { return b.Put(ctx, ref, []byte("1")) },
		"read": func(ctx context.Context) error {
			_, err := b.Get(ctx, ref)
			if errors.Is(err, ErrUnusable) { // its outputs went with it
				return nil
			}
			return err
		},
		"drop":       func(ctx context.Context) error { return b.Drop(ctx, []string{ref.Name}) },
		"list":       func(ctx context.Context) error { _, err := b.List(ctx); return err },
		"list parts": func(ctx context.Context) error { _, err := b.LooseParts(ctx, 0); return err },
	} {
		t.Run(what, func(t *testing.T) {
			if err := b.conn.JetStream.DeleteObjectStore(t.Context(), b.conn.Names.PayloadsBucket()); err != nil {
				t.Fatal(err)
			}
			if err := use(t.Context()); err != nil {
				t.Error(err)
			}
			if err := b.conn.EnsureStreams(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestWithoutNATSOutputsAreAnOutage(t *testing.T) {
	s := natstest.Start(t)
	b := newStore(t, s)
	s.Shutdown()
	bustest.Eventually(t, "the bus has noticed", func() bool { return !b.conn.Connected() })
	ref := protocol.NewOutputRef(bustest.JobID(1), []byte("1"))
	_, read := b.Get(t.Context(), ref)
	_, list := b.List(t.Context())
	_, parts := b.LooseParts(t.Context(), 0)
	for what, err := range map[string]error{
		"store": b.Put(t.Context(), ref, []byte("1")), "read": read, "list": list, "parts": parts,
		"drop": b.Drop(t.Context(), []string{ref.Name}), "drop parts": b.DropParts(t.Context(), []string{"p"}),
	} {
		retry, ok := errors.AsType[*bus.RetryError](err)
		if !ok || !errors.Is(err, bus.ErrUnreachable) || retry.Delay <= 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAnObjectStoreWithOtherSettingsIsReported(t *testing.T) {
	s := natstest.Start(t)
	b := newStore(t, s, func(c *config) { c.MaxBytes.Payloads = 2 << 20 })
	other := newStore(t, s, func(c *config) { c.MaxBytes.Payloads = 1 << 20 })
	err := other.conn.EnsureStreams(t.Context())
	drift, ok := errors.AsType[*bus.DriftError](err)
	if !ok || len(drift.Drifts) != 1 || drift.Drifts[0].Object != b.conn.Names.PayloadsStream() || drift.Drifts[0].Field != "max_bytes" {
		t.Errorf("got %v", err)
	}
}
