// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"bytes"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

// past is a hop that makes parts a thousand years old.
type past struct {
	young  atomic.Bool  // they are as old as they are
	read   atomic.Int32 // entries that were read
	spoils atomic.Int32 // the answer to that question is spoiled; 0: none
	goesOn atomic.Int32 // parts are young from that question on; 0: none
}

// store is a store behind the hop.
func (p *past) store(t *testing.T) *Store {
	t.Helper()
	s := natstest.Start(t)
	names := newStore(t, s).conn.Names
	part, entry := []byte(`"subject":"`+names.PayloadChunks("")), []byte(`"subject":"`+names.PayloadEntry(""))
	return newStore(t, s, func(c *config) {
		c.URL = hop(t, s.URL(), asItIs, func(line []byte) []byte {
			switch {
			case bytes.Contains(line, part) && !p.young.Load():
				return bytes.Replace(line, []byte(`"time":"2`), []byte(`"time":"1`), 1) // as many bytes as before
			case bytes.Contains(line, entry):
				n := p.read.Add(1)
				if n == p.goesOn.Load() {
					p.young.Store(true)
				}
				if n == p.spoils.Load() {
					return bytes.Replace(line, []byte("{"), []byte("["), 1)
				}
			}
			return line
		})
	})
}

// brokenOff puts the outputs of so many jobs, and a part that belongs to none, whose subject it
// gives.
func brokenOff(t *testing.T, b *Store, outputs int) string {
	t.Helper()
	for n := range outputs {
		putNth(t, b, n)
	}
	part := b.conn.Names.PayloadChunks("brokenoff")
	say(t, b, []byte("part"), part)
	return part
}

// forgetOutput purges the entry of the output of the nth job, as is done where its parts have a
// name that the library of NATS made. It gives the subject of the parts.
func forgetOutput(t *testing.T, b *Store, n int) string {
	t.Helper()
	e, _ := entryOf(t, b, putNth(t, b, n))
	stream, err := b.conn.JetStream.Stream(t.Context(), b.conn.Names.PayloadsStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(b.conn.Names.PayloadEntry(e.Name))); err != nil {
		t.Fatal(err)
	}
	return b.conn.Names.PayloadChunks(e.NUID)
}

// mutations: LooseParts that reads twice in a call, or anew whenever there are old parts.
func TestOldPartsHaveAllEntriesReadOnceAnHour(t *testing.T) {
	const outputs = 50
	b := (&past{}).store(t)
	want := []string{brokenOff(t, b, outputs)}
	requests := asked(t, b, "STREAM.MSG.GET")
	if got, err := b.LooseParts(t.Context(), time.Hour); err != nil || !cmp.Equal(want, got) {
		t.Errorf("got %v, %v", got, err)
	}
	if got := requests(); len(got) > outputs+4 {
		t.Errorf("the first look took %d reads", len(got))
	}
	for n := range 3 {
		want = append(want, forgetOutput(t, b, n))
	}
	requests = asked(t, b, "STREAM.MSG.GET")
	for range 3 {
		if _, err := b.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := b.LooseParts(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if got := requests(); len(got) > outputs {
		t.Errorf("three rounds took %d reads", len(got))
	}
	b.entries.since = b.entries.since.Add(-time.Hour)
	slices.Sort(want)
	if got, err := b.LooseParts(t.Context(), time.Hour); err != nil || !cmp.Equal(want, got) {
		t.Errorf("an hour later: got %v, %v, want %v", got, err, want)
	}
}

// mutation: LooseParts that reads all anew after a question that failed, or that takes what was
// read before that for the whole.
func TestAReadingOfEntriesThatBrokeOffGoesOn(t *testing.T) {
	const outputs = 50
	p := &past{}
	b := p.store(t)
	want := []string{brokenOff(t, b, outputs)}
	p.spoils.Store(p.read.Load() + outputs/2)
	if got, err := b.LooseParts(t.Context(), time.Hour); err == nil {
		t.Fatalf("the test needs a question that fails, got %v", got)
	}
	requests := asked(t, b, "STREAM.MSG.GET")
	if got, err := b.LooseParts(t.Context(), time.Hour); err != nil || !cmp.Equal(want, got) {
		t.Errorf("got %v, %v", got, err)
	}
	if got := requests(); len(got) > outputs/2+8 {
		t.Errorf("it took %d reads", len(got))
	}
}

// A stream that was made anew, or restored, has other entries under the sequences that were read.
//
// mutations: unowned without replaced; replaced that takes any entry for the one that was read.
func TestAReadingOfEntriesThatBrokeOffBeginsAnewInAnotherStream(t *testing.T) {
	for name, begins := range map[string]func(b *Store) error{
		"in the middle": func(*Store) error { return nil },
		// The first look at the other stream breaks off, too.
		"and breaks off again": func(b *Store) error { _, err := b.LooseParts(t.Context(), time.Hour); return err },
	} {
		t.Run(name, func(t *testing.T) {
			const outputs = 50
			p := &past{}
			b := p.store(t)
			brokenOff(t, b, outputs)
			p.spoils.Store(p.read.Load() + outputs/2)
			if got, err := b.LooseParts(t.Context(), time.Hour); err == nil {
				t.Fatalf("the test needs a question that fails, got %v", got)
			}
			if err := b.conn.JetStream.DeleteObjectStore(t.Context(), b.conn.Names.PayloadsBucket()); err != nil {
				t.Fatal(err)
			}
			if err := b.conn.EnsureStreams(t.Context()); err != nil {
				t.Fatal(err)
			}
			for n := range outputs {
				putNth(t, b, outputs+n)
			}
			want := []string{b.conn.Names.PayloadChunks("brokenoff")}
			say(t, b, []byte("part"), want...)
			if name != "in the middle" {
				p.spoils.Store(p.read.Load() + outputs/4)
			}
			if err := begins(b); (err != nil) != (name != "in the middle") {
				t.Fatalf("the first look: %v", err)
			}
			if got, err := b.LooseParts(t.Context(), time.Hour); err != nil || !cmp.Equal(want, got) {
				t.Errorf("got %d parts, %v; want the one that belongs to nobody", len(got), err)
			}
		})
	}
}

// Parts that are not old enough to have all entries read wait; they are asked for then.
//
// mutation: LooseParts that looks how old parts are before that.
func TestPartsThatWaitForTheirHourAreNotAskedForInEachRound(t *testing.T) {
	const outputs = 50
	b := (&past{}).store(t)
	brokenOff(t, b, outputs)
	if _, err := b.LooseParts(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	for n := range outputs - 10 {
		forgetOutput(t, b, n)
	}
	if _, err := b.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	requests := asked(t, b, "STREAM.MSG.GET")
	for range 3 {
		if got, err := b.LooseParts(t.Context(), time.Hour); err != nil || len(got) > 0 {
			t.Fatalf("got %v, %v", got, err)
		}
	}
	for _, body := range requests() {
		if strings.Contains(body, b.conn.Names.PayloadChunks("")) {
			t.Errorf("asked for %s", body)
		}
	}
}

// To read all entries may take minutes.
//
// mutation: LooseParts that looks at the parts only before that.
func TestAnUploadThatGoesOnWhileEntriesAreReadKeepsItsParts(t *testing.T) {
	p := &past{}
	b := p.store(t)
	brokenOff(t, b, 10)
	p.young.Store(true)
	if got, err := b.LooseParts(t.Context(), time.Hour); err != nil || len(got) > 0 {
		t.Fatalf("young: got %v, %v", got, err)
	}
	b.entries.since = b.entries.since.Add(-time.Hour)
	p.young.Store(false)
	p.goesOn.Store(p.read.Load() + 5) // one entry is looked at before the parts are
	if got, err := b.LooseParts(t.Context(), time.Hour); err != nil || len(got) > 0 || !p.young.Load() {
		t.Errorf("got %v, %v", got, err)
	}
}
