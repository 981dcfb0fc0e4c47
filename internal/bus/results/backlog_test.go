// SPDX-License-Identifier: Apache-2.0

package results

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// hotAndNeighbour are many results of one run, and one of another run in the same group.
func hotAndNeighbour(n int) (hot []protocol.JobID, neighbour protocol.JobID) {
	for i := range n {
		id := bustest.JobID(0)
		id.Attempt = int32(i + 1)
		hot = append(hot, id)
	}
	for i := 1; ; i++ {
		if neighbour = bustest.JobID(i); partitionOf(neighbour) == partitionOf(hot[0]) {
			return hot, neighbour
		}
	}
}

// flood publishes a result of each job, without waiting for one before the next.
func flood(t testing.TB, b *Consumer, ids []protocol.JobID, token func(protocol.JobID) string) {
	t.Helper()
	for some := range slices.Chunk(ids, 1000) { // the library bounds what is on its way
		for i, id := range some {
			m := nats.NewMsg(b.conn.Names.Result(id))
			m.Data = []byte(bustest.Succeeded)
			m.Header.Set(protocol.HeaderToken, token(id))
			if _, err := b.conn.JetStream.PublishMsgAsync(m); err != nil {
				t.Fatalf("publish result %d: %v", i, err)
			}
		}
		select {
		case <-b.conn.JetStream.PublishAsyncComplete():
		case <-time.After(bustest.Patience):
			t.Fatal("the results are not stored")
		}
	}
}

// More results of one run than a consumer might have unsettled are given back for a minute. Its
// neighbour in the same group does not wait for them. mutation: MaxAckPending of 1,000
// (resultAckPending 8,000) makes this fail: the neighbour gets nothing for a minute.
func TestParkedResultsOfOneRunDoNotHoldUpItsNeighbour(t *testing.T) {
	t.Parallel()
	const n = 1_200
	b := newTestConsumer(t, natstest.Start(t))
	hot, neighbour := hotAndNeighbour(n)
	parked, got := make(chan protocol.JobID, n), make(chan *Delivery, 1)
	consume(t, b, func(ctx context.Context, d *Delivery) {
		if d.ID.RunUID == neighbour.RunUID {
			got <- d
			return
		}
		_ = d.Settle(ctx, &otherError{delay: time.Minute, class: bus.ClassLockBusy}) // one that is lost comes by AckWait
		parked <- d.ID
	})
	flood(t, b, hot, b.keys.Sign)
	bustest.Receive(t, "results of the hot run are given back", parked, 1_000)
	bustest.Answer(t, b.conn, neighbour, bustest.Succeeded)
	settle(t, bustest.Receive(t, "the neighbour's result", got, 1)[0], nil)
}

// Forged results whose dead letters cannot be stored stay. A good result of the same group does not
// wait for them.
// mutation: MaxAckPending of 1,000 makes this fail.
func TestForgedResultsThatCannotBePutAsideHoldUpNoGoodOne(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	s, err := b.conn.JetStream.Stream(t.Context(), b.conn.Names.DeadLettersStream())
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.Subjects = []string{"elsewhere"} // nobody stores a dead letter any more
	if _, err := b.conn.JetStream.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	forged, good := hotAndNeighbour(1_200)
	flood(t, b, forged, func(protocol.JobID) string { return "none" })
	got, _ := collect(t, b)
	bustest.Eventually(t, "the forged ones have come", func() bool { return unsettled(t, b) == len(forged) })
	bustest.Answer(t, b.conn, good, bustest.Succeeded)
	settle(t, bustest.Receive(t, "the good result", got, 1)[0], nil)
}

// delivered is a message as the server delivers it.
func delivered(sequence int, subject string, header nats.Header, data []byte) *nats.Msg {
	return &nats.Msg{
		Subject: subject, Reply: fmt.Sprintf("$JS.ACK.S.C.1.%d.%[1]d.%d.0", sequence, time.Now().UnixNano()), Header: header, Data: data, Sub: &nats.Subscription{},
	}
}

// held makes deliveries of large results, and gives what each holds of the heap, in bytes.
func heldPerResult(t *testing.T, b *Consumer, n, size int) int {
	t.Helper()
	output, err := json.Marshal(string(bytes.Repeat([]byte("x"), size)))
	if err != nil {
		t.Fatal(err)
	}
	held := make([]*Delivery, 0, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l := newLedger(newReturns())
	for i := range n {
		id := bustest.JobID(i)
		d, err := b.read(l, delivered(i+1, b.conn.Names.Result(id), nats.Header{protocol.HeaderToken: {b.keys.Sign(id)}},
			fmt.Appendf(nil, `{"status":"Succeeded","output":%s}`, output)))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.admit(d, time.Unix(0, 0), func(string, time.Duration, time.Duration) {})
		held = append(held, d)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(held)
	return int(after.HeapAlloc-before.HeapAlloc) / n
}

// mutation: a delivery that keeps its message makes this fail: it holds the body twice.
func TestAResultThatWaitsIsHeldOnce(t *testing.T) {
	const size = 60 << 10
	b := offline(t, bus.Config{}, Options{})
	per := heldPerResult(t, b, 400, size)
	t.Logf("%d bytes are held for a result of %d", per, size)
	if per > size+10<<10 {
		t.Errorf("%d bytes are held for a result of %d", per, size)
	}
}

// A consumer that an earlier version made has the bound of that version, which lets one run
// hold up others.
// mutation: ensure without raiseBound makes this fail.
func TestAConsumerOfAnEarlierVersionGetsTheBoundOfThisOne(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	want := b.config(0)
	old := want
	old.MaxAckPending, old.Metadata = 1_000, map[string]string{"owner": "somebody"}
	if _, err := b.conn.JetStream.CreateConsumer(t.Context(), b.conn.Names.ResultsStream(), old); err != nil {
		t.Fatal(err)
	}
	collect(t, b)
	var info jetstream.ConsumerConfig
	bustest.Eventually(t, "the consumer has the bound of this version", func() bool {
		c, err := b.conn.JetStream.Consumer(t.Context(), b.conn.Names.ResultsStream(), want.Durable)
		if err != nil {
			return false
		}
		info = c.CachedInfo().Config
		return info.MaxAckPending == want.MaxAckPending
	})
	if info.Metadata["owner"] != "somebody" {
		t.Errorf("what an administrator added is gone: %v", info.Metadata)
	}
}

// mutation: raiseBound that tells people of what its own end cut off makes this fail.
func TestABoundThatWasNotRaisedBeforeAPartitionWasLeftIsNoError(t *testing.T) {
	t.Parallel()
	var told atomic.Int64
	b := newTestConsumer(t, natstest.Start(t), countBounds(&told))
	want := b.config(0)
	old := want
	old.MaxAckPending = 1_000
	got, err := b.conn.JetStream.CreateConsumer(t.Context(), b.conn.Names.ResultsStream(), old)
	if err != nil {
		t.Fatal(err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if b.raiseBound(left, want, got) != got || told.Load() > 0 {
		t.Errorf("told %d times", told.Load())
	}
}

// countBounds counts the lines that say of a consumer that it keeps its bound.
func countBounds(told *atomic.Int64) func(*config) {
	return func(c *config) {
		c.Log = funcr.New(func(_, args string) {
			if strings.Contains(args, "keeps its bound") {
				told.Add(1)
			}
		}, funcr.Options{})
	}
}

// Where an account may not have that bound, results are consumed all the same. mutation: a refusal
// that ends the subscription, or that nobody is told of, makes this fail.
func TestAConsumerThatMayNotHaveTheBoundWorksAsItIs(t *testing.T) {
	t.Parallel()
	var told atomic.Int64
	b := newTestConsumer(t, natstest.Start(t), countBounds(&told), func(c *config) { c.AckPending = 1_000 * protocol.Partitions })
	_, stop := collect(t, b)
	bustest.Eventually(t, "consumers are there", func() bool { return unsettled(t, b) == 0 })
	stop()
	s, err := b.conn.JetStream.Stream(t.Context(), b.conn.Names.ResultsStream())
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.ConsumerLimits.MaxAckPending = 1_000
	if _, err := b.conn.JetStream.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	b.options.AckPending = 2_000 * protocol.Partitions
	got, _ := collect(t, b)
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	settle(t, bustest.Receive(t, "a result", got, 1)[0], nil)
	consumer, err := b.conn.JetStream.Consumer(t.Context(), b.conn.Names.ResultsStream(), b.config(0).Durable)
	if err != nil {
		t.Fatal(err)
	}
	if c := consumer.CachedInfo().Config; c.MaxAckPending != 1_000 {
		t.Errorf("consumer %+v", c)
	}
	bustest.Eventually(t, "it is told", func() bool { return told.Load() > 0 })
}
