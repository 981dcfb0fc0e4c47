package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	patience = 20 * time.Second // for what must happen
	testWait = 10 * time.Millisecond
)

var testKey = Key{ID: "k1", Secret: []byte("0123456789abcdef0123456789abcdef")}

func testLog(t testing.TB) logr.Logger {
	if testing.Verbose() {
		return testr.NewWithInterface(t, testr.Options{})
	}
	return logr.Discard()
}

// newBus connects a Bus with its streams; it is closed when the test ends.
func newBus(t testing.TB, s *natstest.Server, adjust ...func(*Config)) *Bus {
	t.Helper()
	c := Config{URL: s.URL(), Keys: Keyring{Current: testKey}, Log: testLog(t)}
	for _, f := range adjust {
		f(&c)
	}
	b, err := Connect(t.Context(), c)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { b.Close(context.WithoutCancel(t.Context())) })
	eventually(t, "the bus is connected", b.connected)
	if err := b.repairStreams(t.Context()); err != nil {
		t.Fatalf("create streams: %v", err)
	}
	return b
}

// eventually polls until ok, or fails the test.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(testWait)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// receive takes n values from a channel, or fails the test.
func receive[T any](t testing.TB, what string, from <-chan T, n int) []T {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	var got []T
	for len(got) < n {
		select {
		case v := <-from:
			got = append(got, v)
		case <-deadline.C:
			t.Fatalf("%s: %d of %d within %s", what, len(got), n, patience)
		}
	}
	return got
}

// nothing fails the test if the channel gives something within d.
func nothing[T any](t *testing.T, what string, from <-chan T, d time.Duration) {
	t.Helper()
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case v := <-from:
		t.Fatalf("%s: got %+v", what, v)
	case <-over.C:
	}
}

func jobID(n int) protocol.JobID {
	return protocol.JobID{RunUID: fmt.Sprintf("run-%d", n), Step: "fetch", Item: protocol.NoItem, Attempt: 1}
}

func testJob(n int) Job {
	return Job{ID: jobID(n), Topic: "web.fetch", Input: json.RawMessage(`{"n":1}`), Fence: 7, Source: "/runs/test"}
}

// answer publishes a result as a worker does.
func answer(t testing.TB, b *Bus, id protocol.JobID, body string) {
	t.Helper()
	token := b.config.Keys.Sign(id)
	publishRaw(t, b, b.names.Result(id), body, protocol.HeaderToken, token, protocol.HeaderMsgID, protocol.ResultMsgID(id, token))
}

func publishRaw(t testing.TB, b *Bus, subject, body string, header ...string) {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte(body)
	for i := 0; i < len(header); i += 2 {
		m.Header.Set(header[i], header[i+1])
	}
	if _, err := b.js.PublishMsg(t.Context(), m); err != nil {
		t.Fatalf("publish to %s: %v", subject, err)
	}
}

const succeeded = `{"status":"Succeeded","output":{"ok":true}}`

// consume runs Consume until stop, which waits for its end, or until the test ends.
func consume(t testing.TB, b *Bus, handle func(context.Context, *Delivery)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- b.Consume(ctx, handle) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := receive(t, "Consume returns", done, 1)[0]; err != nil && b.connected() {
			t.Errorf("Consume: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// collect consumes into a channel.
func collect(t *testing.T, b *Bus) (<-chan *Delivery, func()) {
	t.Helper()
	got := make(chan *Delivery, 10_000)
	stop := consume(t, b, func(_ context.Context, d *Delivery) { got <- d })
	return got, stop
}

func settle(t *testing.T, d *Delivery, err error) {
	t.Helper()
	if err := d.Settle(t.Context(), err); err != nil {
		t.Errorf("settle %s: %v", d.ID, err)
	}
}

func streamInfo(t *testing.T, b *Bus, stream string) *jetstream.StreamInfo {
	t.Helper()
	s, err := b.js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatalf("stream %s: %v", stream, err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatalf("info of stream %s: %v", stream, err)
	}
	return info
}

// unsettled counts, over all groups, the results that are not delivered yet or not settled.
func unsettled(t *testing.T, b *Bus) int {
	t.Helper()
	total := 0
	for i := range groups {
		c, err := b.js.Consumer(t.Context(), b.names.ResultsStream(), b.resultConsumerConfig(i).Durable)
		if err != nil {
			return -1
		}
		info := c.CachedInfo()
		total += info.NumAckPending + int(info.NumPending)
	}
	return total
}

func deadLetters(t *testing.T, b *Bus) []*jetstream.RawStreamMsg {
	t.Helper()
	s, err := b.js.Stream(t.Context(), b.names.DeadLettersStream())
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

// take binds to the topic's consumer like a worker and takes one job, unacknowledged.
func take(t *testing.T, b *Bus, topic string) jetstream.Msg {
	t.Helper()
	c, err := b.js.Consumer(t.Context(), b.names.JobsStream(), protocol.Durable(topic))
	if err != nil {
		t.Fatalf("bind to topic %s: %v", topic, err)
	}
	m, err := c.Next(jetstream.FetchMaxWait(patience))
	if err != nil {
		t.Fatalf("next job of %s: %v", topic, err)
	}
	return m
}
