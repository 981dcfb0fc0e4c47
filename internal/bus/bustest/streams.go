// SPDX-License-Identifier: Apache-2.0

package bustest

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Info is what the server says of a stream, with its subjects.
func Info(t testing.TB, c *bus.Conn, stream string) *jetstream.StreamInfo {
	t.Helper()
	s, err := c.JetStream.Stream(t.Context(), stream)
	if err != nil {
		t.Fatalf("stream %s: %v", stream, err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatalf("info of stream %s: %v", stream, err)
	}
	return info
}

// DeadLetters are all dead letters.
func DeadLetters(t testing.TB, c *bus.Conn) []*jetstream.RawStreamMsg {
	t.Helper()
	s, err := c.JetStream.Stream(t.Context(), c.Names.DeadLettersStream())
	if err != nil {
		t.Fatalf("stream of dead letters: %v", err)
	}
	var all []*jetstream.RawStreamMsg
	state := s.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq && seq > 0; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatalf("dead letter %d: %v", seq, err)
		}
		all = append(all, m)
	}
	return all
}

// Look looks at the streams, for a loss of data, after all that happened before.
func Look(t testing.TB, c *bus.Conn) {
	t.Helper()
	Eventually(t, "the streams are looked at", func() bool { return c.RepairStreams(t.Context()) == nil })
}

// Recreate deletes a stream and makes it anew, as somebody else may.
func Recreate(t testing.TB, c *bus.Conn, stream string) {
	t.Helper()
	config := Info(t, c, stream).Config
	if err := c.JetStream.DeleteStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	if _, err := c.JetStream.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// Unsettled counts the results that are not delivered yet or not settled, over all consumers; -1:
// not all are there.
func Unsettled(t testing.TB, c *bus.Conn) int {
	t.Helper()
	s, err := c.JetStream.Stream(t.Context(), c.Names.ResultsStream())
	if err != nil {
		return -1
	}
	total, n := 0, 0
	for info := range s.ListConsumers(t.Context()).Info() {
		total += info.NumAckPending + int(info.NumPending)
		n++
	}
	if n < protocol.Partitions {
		return -1
	}
	return total
}
