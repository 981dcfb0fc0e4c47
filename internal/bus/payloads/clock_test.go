// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// A server whose clock is ahead stores an entry, and its clock is put right after that.
//
// mutation: readOn that ends at an entry of a time to come makes this fail.
func TestAClockThatWasAheadCostsNobodyTheirOutputs(t *testing.T) {
	s := natstest.Start(t)
	b := newStore(t, s)
	first, _ := stored(t, b)
	m, err := b.conn.Read(t.Context(), b.conn.Names.PayloadsStream(), bus.Query{LastFor: b.conn.Names.PayloadEntry(first.Name)})
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("y"), 200<<10)
	ref := protocol.NewOutputRef(bustest.JobID(2), data)
	if err := b.Put(t.Context(), ref, data); err != nil {
		t.Fatal(err)
	}
	message := fmt.Appendf(nil, `"seq":%d,`, m.Seq)
	later := newStore(t, s, func(c *config) {
		c.URL = hop(t, s.URL(), asItIs, func(line []byte) []byte {
			if bytes.Contains(line, message) {
				return bytes.Replace(line, []byte(`"time":"2`), []byte(`"time":"3`), 1) // as many bytes as before
			}
			return line
		})
	})
	got, err := later.conn.Read(t.Context(), later.conn.Names.PayloadsStream(), bus.Query{Seq: m.Seq})
	if err != nil || got.Time.Before(m.Time.Add(24*time.Hour)) {
		t.Fatalf("the test needs an entry of a time to come: %v", err)
	}
	wantNothingLoose(t, later)
}
