// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var large = JobID{RunUID: "run-1", Step: "fetch", Item: "3", Attempt: 2}

// These are the protocol, as other languages write it; the digest is that of sha256sum.
func TestReferencesAreAsPublished(t *testing.T) {
	const hexadecimal = "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a" // of the letter k
	ref := NewOutputRef(large, []byte("k"))
	want := OutputRef{Name: "run-1/fetch/3/2/" + hexadecimal, Digest: "sha256:" + hexadecimal, Size: 1}
	if diff := cmp.Diff(want, ref); diff != "" {
		t.Errorf("reference (-want +got):\n%s", diff)
	}
	n := Names{Prefix: "my-team"}
	got := []string{
		n.PayloadsBucket(), n.PayloadsStream(), PayloadNUID("run-1", "X7"), n.PayloadChunks("run-1.X7"), n.PayloadChunks(">"), n.PayloadEntry("a?>"),
	}
	if diff := cmp.Diff([]string{
		"my-team-payloads", "OBJ_my-team-payloads", "run-1.X7", "$O.my-team-payloads.C.run-1.X7", "$O.my-team-payloads.C.>", "$O.my-team-payloads.M.YT8-",
	}, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	entry, err := json.Marshal(n.NewPayloadEntry(ref, "run-1.X7", 1))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"name":"` + ref.Name + `","bucket":"my-team-payloads","nuid":"run-1.X7","size":1,"chunks":1,` +
		`"digest":"SHA-256=glTDKakoUPbVOd03b0gW7idkUX2l4CNVFK9DMWRIDXo="}`; string(entry) != want {
		t.Errorf("entry %s, want %s", entry, want)
	}
}

// mutation: taking out any one line of Check makes a case fail.
func TestAReferenceIsToAnOutputOfItsJob(t *testing.T) {
	good := NewOutputRef(large, []byte(`"x"`))
	if err := good.Check(large); err != nil {
		t.Error(err)
	}
	if err := good.CheckForm(); err != nil {
		t.Error(err)
	}
	if uid, ok := PayloadRun(good.Name); !ok || uid != large.RunUID {
		t.Errorf("run %q, %t", uid, ok)
	}
	other := large
	other.Attempt++
	for name, c := range map[string]struct {
		edit func(*OutputRef)
		form bool // it could be a reference of another job
	}{
		"of another attempt":                 {func(r *OutputRef) { *r = NewOutputRef(other, []byte(`"x"`)) }, true},
		"with the digest of other bytes":     {func(r *OutputRef) { r.Digest = Digest([]byte(`"y"`)) }, false},
		"with a digest in capitals":          {func(r *OutputRef) { r.Digest = "sha256:" + strings.ToUpper(r.Digest[7:]) }, false},
		"with a digest that is short":        {func(r *OutputRef) { r.Digest = r.Digest[:70]; r.Name = PayloadName(large, r.Digest) }, false},
		"with a digest of another algorithm": {func(r *OutputRef) { r.Digest = "sha512:" + r.Digest[7:] }, false},
		"without a digest":                   {func(r *OutputRef) { r.Digest = "" }, false},
		"without a name":                     {func(r *OutputRef) { r.Name = "" }, false},
		"with a name that is only a digest":  {func(r *OutputRef) { r.Name = r.Digest[7:] }, false},
		"with less than nothing":             {func(r *OutputRef) { r.Size = -1 }, false},
		"with more than the store takes":     {func(r *OutputRef) { r.Size = MaxPayloadBytes + 1 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			c.edit(&r)
			if err := r.Check(large); !errors.Is(err, ErrOutputRef) {
				t.Errorf("Check: %v", err)
			}
			if err := r.CheckForm(); (err == nil) != c.form || err != nil && !errors.Is(err, ErrOutputRef) {
				t.Errorf("CheckForm: %v", err)
			}
		})
	}
	for _, name := range []string{"", "run-1", "/", "a.b/c"} {
		if uid, ok := PayloadRun(name); ok {
			t.Errorf("PayloadRun(%q) = %q", name, uid)
		}
	}
}

func TestBytesAreThoseOfTheReferenceOrNot(t *testing.T) {
	ref := NewOutputRef(large, []byte("abc"))
	for data, ok := range map[string]bool{"abc": true, "abd": false, "ab": false, "": false} {
		if err := ref.CheckBytes([]byte(data)); (err == nil) != ok || err != nil && !errors.Is(err, ErrOutputRef) {
			t.Errorf("%q: %v", data, err)
		}
	}
	ref.Size = 2
	if err := ref.CheckBytes([]byte("abc")); !errors.Is(err, ErrOutputRef) { // mutation: no look at the size
		t.Errorf("got %v", err)
	}
}

// mutation: Is without one of its comparisons makes a case fail.
func TestAnEntryIsOfTheReferenceOrNot(t *testing.T) {
	n := Names{Prefix: DefaultPrefix}
	ref := NewOutputRef(large, []byte("abc"))
	for name, c := range map[string]struct {
		edit func(*PayloadEntry)
		is   bool
	}{
		"the same":       {func(*PayloadEntry) {}, true},
		"in more chunks": {func(e *PayloadEntry) { e.Chunks = 7 }, true},
		"deleted":        {func(e *PayloadEntry) { e.Deleted = true }, false},
		"larger":         {func(e *PayloadEntry) { e.Size++ }, false},
		"other bytes":    {func(e *PayloadEntry) { e.Digest = storeDigest(Digest([]byte("abd"))) }, false},
		"no digest":      {func(e *PayloadEntry) { e.Digest = "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := n.NewPayloadEntry(ref, "u", 1)
			c.edit(&e)
			if e.Is(ref) != c.is {
				t.Errorf("Is = %t", !c.is)
			}
		})
	}
}

// A client whose language knows only one kind of number may write 70000.0, which is an integer for
// the schema. A count below nothing is none.
//
// mutations: an entry whose size, or whose chunks, are read as Go has integers; no look
// at the sign; a member of another case that counts.
func TestNumbersOfAnEntryAreWhole(t *testing.T) {
	for body, want := range map[string]*PayloadEntry{
		`{"nuid":"u","size":70000,"chunks":2}`:                      {NUID: "u", Size: 70000, Chunks: 2},
		`{"nuid":"u","size":70000.0,"chunks":2.0}`:                  {NUID: "u", Size: 70000, Chunks: 2},
		`{"nuid":"u","size":7e4,"chunks":0.2e1}`:                    {NUID: "u", Size: 70000, Chunks: 2},
		`{"nuid":"u","size":null,"chunks":null}`:                    {NUID: "u"},
		`{"nuid":"u","size":7,"Size":"7 B","NUID":">","Deleted":1}`: {NUID: "u", Size: 7},
		`{"NUID":"u","size":7,"chunks":1}`:                          nil,
		`{"nuid":"u","size":70000.5,"chunks":2}`:                    nil,
		`{"nuid":"u","size":70000,"chunks":1.5}`:                    nil,
		`{"nuid":"u","size":70000,"chunks":-1}`:                     nil,
	} {
		e, err := DecodePayloadEntry([]byte(body))
		switch {
		case want == nil && !errors.Is(err, ErrPayloadEntry):
			t.Errorf("%s: %+v, %v", body, e, err)
		case want != nil && (err != nil || e != *want):
			t.Errorf("%s: %+v, %v", body, e, err)
		}
	}
}

func FuzzDecodePayloadEntry(f *testing.F) {
	n := Names{Prefix: DefaultPrefix}
	f.Add(`{"name":"a","bucket":"b","nuid":"c","size":3,"mtime":"0001-01-01T00:00:00Z","chunks":1,"digest":"SHA-256=x","options":{}}`)
	f.Add(`{"nuid":""}`)
	f.Add(`{"nuid":">"}`) // mutation: taken for a subject, it stands for the chunks of all others
	f.Add(`{"nuid":"a b","size":1.5}`)
	f.Add(``)
	f.Fuzz(func(t *testing.T, body string) {
		e, err := DecodePayloadEntry([]byte(body))
		if err != nil && !errors.Is(err, ErrPayloadEntry) {
			t.Errorf("error %v does not wrap ErrPayloadEntry", err)
		}
		if err == nil && strings.ContainsAny(n.PayloadChunks(e.NUID), "*> \r\n") {
			t.Errorf("subject %q", n.PayloadChunks(e.NUID))
		}
	})
}
