// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// asked gives the requests about the object store that were made on the connection of a store since
// it was called.
func asked(t *testing.T, b *Store, api string) func() []string {
	t.Helper()
	sub, err := b.conn.NATS.SubscribeSync("$JS.API." + api + "." + b.conn.Names.PayloadsStream())
	if err != nil {
		t.Fatal(err)
	}
	return func() (bodies []string) {
		if err := b.conn.NATS.Flush(); err != nil {
			t.Fatal(err)
		}
		for {
			n, _, err := sub.Pending()
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				return bodies
			}
			m, err := sub.NextMsg(nats.DefaultTimeout)
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, string(m.Data))
		}
	}
}

// A worker says that its output is small, so that it is read among many.
//
// mutations: read without the size of the reference; mostChunks that is the same for each size.
func TestAnObjectThatIsNotAsItsReferenceSaysIsNotRead(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	for name, c := range map[string]struct {
		says   int64
		size   int64
		chunks uint64
	}{
		"8 MiB for a byte":         {1, protocol.MaxPayloadBytes, 64},
		"a byte for 8 MiB":         {protocol.MaxPayloadBytes, 1, 1},
		"a byte in 8,192 parts":    {1, 1, 8192},
		"parts smaller than 1 KiB": {64 << 10, 64 << 10, 66},
	} {
		t.Run(name, func(t *testing.T) {
			ref := protocol.NewOutputRef(bustest.JobID(1), []byte("1"))
			ref.Size = c.size
			e := b.conn.Names.NewPayloadEntry(ref, "x", c.chunks)
			body, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			say(t, b, body, b.conn.Names.PayloadEntry(ref.Name))
			say(t, b, make([]byte, 64), slices.Repeat([]string{b.conn.Names.PayloadChunks("x")}, 64)...)
			ref.Size = c.says
			requests := asked(t, b, "STREAM.MSG.GET")
			if _, err := b.Get(t.Context(), ref); !errors.Is(err, ErrUnusable) {
				t.Errorf("got %v", err)
			}
			if got := requests(); len(got) != 1 || !strings.Contains(got[0], "last_by_subj") {
				t.Errorf("%d requests, want one for the entry", len(got))
			}
			purgeAll(t, b)
		})
	}
}

// The server makes its list of subjects anew for each page of 100,000. An entry that goes between
// two pages moves another one out of both.
//
// mutations: unowned by the list of subjects; one that takes an entry that another took the
// place of; that begins behind the first entry.
func TestWhoOwnsPartsIsNotToldByPages(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	ref, data := stored(t, b)
	before, _ := entryOf(t, b, ref)
	e := before
	e.NUID = "second"
	body, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	say(t, b, data[:100<<10], b.conn.Names.PayloadChunks(e.NUID), b.conn.Names.PayloadChunks(e.NUID))
	requests := asked(t, b, "STREAM.INFO")
	want := []string{b.conn.Names.PayloadChunks(e.NUID)}
	if got, err := b.LooseParts(t.Context(), 0); err != nil || !cmp.Equal(want, got) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, r := range requests() {
		if strings.Contains(r, b.conn.Names.PayloadEntry("")) {
			t.Errorf("it asked for a list of entries: %s", r)
		}
	}
	say(t, b, body, b.conn.Names.PayloadEntry(ref.Name)) // it does not say that the one before is to go
	want = []string{b.conn.Names.PayloadChunks(before.NUID)}
	if got, err := b.LooseParts(t.Context(), 0); err != nil || !cmp.Equal(want, got) {
		t.Errorf("got %v, %v", got, err)
	}
	wantWhole(t, b, ref, data)
}

// mutation: message (bus) that fails for headers that cannot be read makes this fail.
func TestHeadersThatCannotBeReadDoNotKeepPartsOfOthers(t *testing.T) {
	s := natstest.Start(t)
	b := newStore(t, s)
	loose := b.conn.Names.PayloadChunks("brokenoff")
	say(t, b, []byte("part"), loose)
	sayWithBadHeaders(t, s, b.conn.Names.PayloadEntry("x"), b.conn.Names.PayloadChunks("bad"))
	bustest.Eventually(t, "they are stored", func() bool { return payloadMessages(t, b) == 3 })
	got, err := b.LooseParts(t.Context(), 0)
	if want := []string{b.conn.Names.PayloadChunks("bad"), loose}; err != nil || !cmp.Equal(want, got) {
		t.Errorf("got %v, %v", got, err)
	}
}

// sayWithBadHeaders publishes messages whose headers are none.
func sayWithBadHeaders(t *testing.T, s *natstest.Server, subjects ...string) {
	t.Helper()
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	text := `CONNECT {"verbose":false,"headers":true}` + "\r\n"
	for _, subject := range subjects {
		const headers, data = "NATS/1.0\r\nx\r\n\r\n", "{}"
		text += fmt.Sprintf("HPUB %s %d %d\r\n%s%s\r\n", subject, len(headers), len(headers+data), headers, data)
	}
	if _, err := c.Write([]byte(text + "PING\r\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 0, 4096)
	for !strings.Contains(string(answer), "PONG") {
		n, err := c.Read(answer[len(answer):cap(answer)])
		if err != nil {
			t.Fatal(err)
		}
		answer = answer[:len(answer)+n]
	}
}
