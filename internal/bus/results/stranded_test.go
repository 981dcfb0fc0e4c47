// SPDX-License-Identifier: Apache-2.0

package results

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// The server comes back with the acknowledgements of the consumer, and without the deletions that
// followed from them, as after SIGKILL. mutation: watch without its rounds makes this fail: the
// result stays in the stream for ever.
func TestAResultThatTheConsumerTakesForAcknowledgedIsDelivered(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	fake := clocktesting.NewFakeClock(time.Now())
	b := newTestConsumer(t, s, func(c *config) { c.Clock = fake })
	_, stop := collect(t, b)
	bustest.Eventually(t, "the consumers are there", func() bool {
		fake.Step(rebuildDelay) // one that could not be made waits by this clock
		return unsettled(t, b) == 0
	})
	stop()
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	before := s.CopyStore()

	bustest.Eventually(t, "it is connected again", b.conn.Connected)
	got, stop := collect(t, b)
	settle(t, next(t, got, fake, rebuildDelay), nil)
	bustest.Eventually(t, "it is settled", func() bool { return unsettled(t, b) == 0 })
	stop()
	after := s.CopyStore()
	putMessages(t, before, after, b.conn.Names.ResultsStream())
	s.RestartOn(after)

	bustest.Eventually(t, "it is connected again", b.conn.Connected)
	bustest.Eventually(t, "the result is there again", func() bool { return stored(t, b) == 1 })
	// At the pace of the clock below, all partitions would ask too much of the server.
	others := slices.DeleteFunc(protocol.AllPartitions(), func(p int) bool { return p == partitionOf(bustest.JobID(1)) })
	if err := b.Leave(t.Context(), others...); err != nil {
		t.Fatal(err)
	}
	got, _ = collect(t, b)
	d := next(t, got, fake, strandedCheck/10)
	settle(t, d, nil)
	if d.ID != bustest.JobID(1) {
		t.Errorf("delivered is %s, want %s", d.ID, bustest.JobID(1))
	}
	bustest.Eventually(t, "it is settled", func() bool { return stored(t, b) == 0 })
}

// next is the next delivery. Meanwhile the clock goes on: a partition that met the old connection,
// which nobody had noticed to be gone, waits by that clock before it tries again.
func next(t *testing.T, from <-chan *Delivery, clock *clocktesting.FakeClock, step time.Duration) (d *Delivery) {
	t.Helper()
	bustest.Eventually(t, "a result is delivered", func() bool {
		select {
		case d = <-from:
			return true
		default:
			clock.Step(step)
			return false
		}
	})
	return d
}

// stored is how many results are in the stream, whatever consumers make of them; more than there
// can be where nobody answers, as while the client has not noticed that the server is another one.
func stored(t *testing.T, c *Consumer) uint64 {
	t.Helper()
	s, err := c.conn.JetStream.Stream(t.Context(), c.conn.Names.ResultsStream())
	if err != nil {
		return math.MaxUint64
	}
	return s.CachedInfo().State.Msgs
}

// putMessages replaces the messages of a stream in one store by those in another.
func putMessages(t *testing.T, from, to, stream string) {
	t.Helper()
	find := func(dir string) string {
		found, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", stream, "msgs"))
		if err != nil || len(found) != 1 {
			t.Fatalf("messages of %s: %v, %v", stream, found, err)
		}
		return found[0]
	}
	target := find(to)
	if err := os.RemoveAll(target); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(target, os.DirFS(find(from))); err != nil {
		t.Fatal(err)
	}
}
