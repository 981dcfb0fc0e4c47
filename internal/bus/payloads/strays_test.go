// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// stored puts an output of a run into a store.
func stored(t *testing.T, b *Store) (protocol.OutputRef, []byte) {
	t.Helper()
	data := bytes.Repeat([]byte("x"), 200<<10)
	ref := protocol.NewOutputRef(bustest.JobID(1), data)
	if err := b.Put(t.Context(), ref, data); err != nil {
		t.Fatal(err)
	}
	return ref, data
}

// entryOf is the entry of an output, and its bytes.
func entryOf(t *testing.T, b *Store, ref protocol.OutputRef) (protocol.PayloadEntry, []byte) {
	t.Helper()
	e, err := b.entry(t.Context(), ref.Name)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return e, body
}

// say publishes on subjects of the object store, as whoever has rights there may.
func say(t *testing.T, b *Store, body []byte, subjects ...string) {
	t.Helper()
	for _, subject := range subjects {
		if _, err := b.conn.JetStream.Publish(t.Context(), subject, body); err != nil {
			t.Fatal(err)
		}
	}
}

func wantWhole(t *testing.T, b *Store, ref protocol.OutputRef, data []byte) {
	t.Helper()
	if got, err := b.Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the run's output: %d bytes, %v", len(got), err)
	}
}

// A stray may even name the parts of a run's output as its own.
//
// mutations: Strays without its look at age, without the bound, or with a run's entries; ofRun that
// takes any name, or one that is spelled otherwise, for a run's; DropStrays that drops what is a
// run's, or the parts that an entry names.
func TestOldOutputsUnderNamesOfNoRunGo(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	ref, data := stored(t, b)
	own := b.conn.Names.PayloadEntry(ref.Name)
	e, body := entryOf(t, b, ref)
	entries := b.conn.Names.PayloadEntry("")
	alias, padded := strings.CutSuffix(b.conn.Names.PayloadEntry(ref.Name+"//"), "w==")
	if !padded {
		t.Fatalf("the test needs a name with bits to spare, not %s", alias)
	}
	strays := []string{ // the last is read as ref.Name+"//", and is not found by that
		entries + "no.base64", b.conn.Names.PayloadEntry("backup.tar"), b.conn.Names.PayloadEntry("no run/x"), alias + "x==",
	}
	slices.Sort(strays)
	say(t, b, body, strays...)
	if got, err := b.Strays(t.Context(), time.Hour, 100); err != nil || len(got) > 0 {
		t.Errorf("young ones: %v, %v", got, err)
	}
	if got, err := b.Strays(t.Context(), 0, 3); err != nil || len(got) != 3 {
		t.Errorf("three of them: %v, %v", got, err)
	}
	got, err := b.Strays(t.Context(), 0, 100)
	if slices.Sort(got); err != nil || !cmp.Equal(strays, got) {
		t.Errorf("listed %v, %v", cmp.Diff(strays, got), err)
	}
	if err := b.DropStrays(t.Context(), append(got, own, b.conn.Names.PayloadChunks(e.NUID))); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, b, ref, data)
	if n := payloadMessages(t, b); n != 3 {
		t.Errorf("%d messages are left, want an entry and two parts", n)
	}
}

// NATS stores what is published on a subject with a wildcard, and a purge by that would take all
// that matches.
//
// mutations: subjects that lists them, each of dropSubjects and subjects without literal, literal
// that knows one wildcard only.
func TestSubjectsWithWildcardsCostNobodyTheirOutputs(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	ref, data := stored(t, b)
	run, _, _ := strings.Cut(ref.Name, "/")
	parts := []string{b.conn.Names.PayloadChunks(">"), b.conn.Names.PayloadChunks("*.*"), b.conn.Names.PayloadChunks(run + ".*")}
	entries := []string{b.conn.Names.PayloadEntry("") + ">", b.conn.Names.PayloadEntry("") + "*"}
	say(t, b, []byte("part"), append(parts, entries...)...)
	loose, err := b.LooseParts(t.Context(), 0)
	if err != nil || len(loose) > 0 {
		t.Errorf("loose: %v, %v", loose, err)
	}
	strays, err := b.Strays(t.Context(), 0, 100)
	if err != nil || len(strays) > 0 {
		t.Errorf("strays: %v, %v", strays, err)
	}
	if err := b.DropParts(t.Context(), parts); err != nil {
		t.Error(err)
	}
	if err := b.DropStrays(t.Context(), entries); err != nil {
		t.Error(err)
	}
	wantWhole(t, b, ref, data)
}

// A worker makes an entry of its own run that names the parts of another run's output.
//
// mutation: Drop that purges whatever parts an entry names.
func TestAnEntryDoesNotTakeThePartsOfAnotherRunAlong(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	ref, data := stored(t, b)
	_, body := entryOf(t, b, ref)
	id := bustest.JobID(2)
	id.RunUID = "another-run"
	forged := protocol.PayloadName(id, ref.Digest)
	say(t, b, body, b.conn.Names.PayloadEntry(forged))
	if err := b.Drop(t.Context(), []string{forged}); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, b, ref, data)
	if names, err := b.List(t.Context()); err != nil || !slices.Equal(names, []string{ref.Name}) {
		t.Errorf("there are %v, %v", names, err)
	}
}
