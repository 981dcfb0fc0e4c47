// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// said is a server without JetStream, whose part the test plays, and pulls that ask it.
type said struct {
	*pulls
	t       *testing.T
	server  *natstest.Server
	nc      *nats.Conn // the server's side
	asked   chan *nats.Msg
	waiting chan struct{} // while it has no value, receive waits
}

func playServer(t *testing.T) *said {
	t.Helper()
	s := natstest.Start(t, func(o *server.Options) { o.JetStream = false })
	nc, err := nats.Connect(s.URL(), natstest.Patient())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	conn := bustest.Dial(t, bus.Config{URL: s.URL(), Clock: clocktesting.NewFakeClock(time.Now())})
	f := newFeed(NewConsumer(conn, bustest.Keys(t), deadletters.NewWriter(conn), Options{}), 0, nil)
	out := &said{t: t, server: s, nc: nc, asked: make(chan *nats.Msg, 100), waiting: make(chan struct{}, 100)}
	if _, err := nc.ChanSubscribe("$JS.API.CONSUMER.MSG.NEXT.>", out.asked); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if out.pulls, err = newPulls(f, pullRequest{Batch: 2, MaxBytes: 100}, func(*nats.Msg) { <-out.waiting }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out.sub.IsValid() {
			out.drain()
		}
	})
	return out
}

// A replica that stops while NATS is away has 1.2 s to end these.
//
// mutation: drain that always drains the subscription makes this fail: it waits for a word of the
// server, and for the clock, which stands still.
func TestPullsEndAtOnceWhereThereIsNoServer(t *testing.T) {
	t.Parallel()
	p := playServer(t)
	p.server.Shutdown()
	bustest.Eventually(t, "it is noticed", func() bool { return !p.feed.consumer.conn.NATS.IsConnected() })
	over := make(chan struct{})
	go func() {
		defer close(over)
		p.drain()
	}()
	select {
	case <-over:
	case <-time.After(5 * time.Second): // the library would wait for twice as long
		t.Fatal("they wait for the server")
	}
}

// new counts the pulls since it was called last.
func (s *said) new() int {
	s.t.Helper()
	for _, nc := range []*nats.Conn{s.feed.consumer.conn.NATS, s.nc} {
		if err := nc.Flush(); err != nil {
			s.t.Fatal(err)
		}
	}
	n := len(s.asked)
	for range n {
		<-s.asked
	}
	return n
}

func (s *said) says(reply, status, text string) {
	s.take(&nats.Msg{Subject: reply, Header: nats.Header{"Status": {status}, "Description": {text}}})
}

// saysTooLarge has the server say that the next message does not fit in what the pull has left.
func (s *said) saysTooLarge(left string) {
	s.take(&nats.Msg{Subject: s.reply(), Header: nats.Header{
		"Status": {"409"}, "Description": {"Message Size Exceeds MaxBytes"}, "Nats-Pending-Messages": {left}, "Nats-Pending-Bytes": {"7"},
	}})
}

// brings has the server bring a message that the handler takes at once.
func (s *said) brings() { s.bringsOf(20) }

// bringsOf is brings, of a message of so many bytes, as the server counts them: 17 at least.
func (s *said) bringsOf(bytes int) {
	s.waiting <- struct{}{}
	m := &nats.Msg{Subject: "a.result", Reply: "$JS.ACK.x"}
	m.Data = make([]byte, bytes-m.Size())
	s.take(m)
}

// What the server says of a pull decides when the next one is sent: at once where the pull has
// ended as pulls do, and else when the server was silent for a while.
// mutations: each case fails without the part of word, take or beat that it is about.
func TestAPullIsFollowedByTheNext(t *testing.T) {
	t.Parallel()
	const moved = "Leadership Change"
	for name, c := range map[string]struct {
		happens func(s *said)
		pulls   int
		asks    bool // whether the consumer is gone
	}{
		"nothing yet":                    {func(s *said) { s.says(s.reply(), "100", "Idle Heartbeat") }, 0, false},
		"its time is over":               {func(s *said) { s.says(s.reply(), "408", "Request Timeout") }, 1, false},
		"that of an earlier one is over": {func(s *said) { s.says(s.inbox+".0", "408", "Request Timeout") }, 0, false},
		"it brought all":                 {func(s *said) { s.brings(); s.brings() }, 1, false},
		"it brought some":                {func(s *said) { s.brings() }, 0, false},
		"the next is too large for it":   {func(s *said) { s.brings(); s.saysTooLarge("1") }, 1, false},
		"the first is too large":         {func(s *said) { s.saysTooLarge("2") }, 0, true},
		"the word comes before all":      {func(s *said) { s.saysTooLarge("1") }, 0, false},
		"the word comes before the last": {func(s *said) { s.saysTooLarge("1"); s.brings() }, 1, false},
		"its bytes fit exactly":          {func(s *said) { s.bringsOf(100) }, 1, false},
		"its bytes do not fit exactly":   {func(s *said) { s.bringsOf(99) }, 0, false},
		"another server leads, which knows an earlier one": {func(s *said) {
			s.says(s.reply(), "503", "")
			beats(s, silentBeats)
			s.says(s.reply(), "503", "")
			s.says(s.inbox+".1", "409", moved)
		}, 2, true},
		"another server leads, which is known": {func(s *said) { beats(s, silentBeats); s.says(s.inbox+".1", "409", moved) }, 1, false},
		"another server leads":                 {func(s *said) { s.says(s.reply(), "409", moved) }, 1, false},
		"the consumer is gone":                 {func(s *said) { s.says(s.reply(), "409", "Consumer Deleted") }, 0, true},
		"nobody is there":                      {func(s *said) { s.says(s.reply(), "503", "") }, 0, true},
		"it is refused":                        {func(s *said) { s.says(s.reply(), "400", "Bad Request") }, 0, true},
		"a larger message may come":            {func(s *said) { s.fit(101) }, 1, false},
		"no larger message may come":           {func(s *said) { s.fit(100) }, 0, false},
		"silence":                              {func(s *said) { beats(s, silentBeats) }, 1, false},
		"a short silence":                      {func(s *said) { beats(s, silentBeats-1) }, 0, false},
		"a word in a silence": {func(s *said) {
			beats(s, silentBeats-1)
			s.says(s.reply(), "100", "Idle Heartbeat")
			beats(s, silentBeats-1)
		}, 0, false},
		"silence after a refusal": {func(s *said) { s.says(s.reply(), "503", ""); beats(s, silentBeats) }, 1, true},
		"the end":                 {func(s *said) { s.drain(); s.again(); beats(s, silentBeats) }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := playServer(t)
			if n := s.new(); n != 1 {
				t.Fatalf("%d pulls at the beginning", n)
			}
			c.happens(s)
			if n := s.new(); n != c.pulls {
				t.Errorf("%d pulls follow, want %d", n, c.pulls)
			}
			if asks := len(s.feed.check) > 0; asks != c.asks {
				t.Errorf("asks for the consumer: %t", asks)
			}
		})
	}
}

func beats(s *said, n int) {
	for range n {
		s.beat()
	}
}

// While the handler has no place, what the server says waits behind a message.
// mutation: beat that does not look at busy makes this fail: pull after pull would wait
// at the server.
func TestNoPullIsTakenForLostWhileAMessageWaits(t *testing.T) {
	t.Parallel()
	s := playServer(t)
	s.new()
	received := make(chan struct{})
	go func() {
		defer close(received)
		s.take(&nats.Msg{Subject: "a.result", Reply: "$JS.ACK.x"})
	}()
	bustest.Eventually(t, "the message waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.busy
	})
	beats(s, 2*silentBeats)
	if n := s.new(); n != 0 {
		t.Errorf("%d pulls meanwhile", n)
	}
	s.waiting <- struct{}{}
	bustest.Receive(t, "it is received", received, 1)
}

// mutation: keep that does not look at connected makes this fail: results would wait until the
// silence is noticed, and no time passes here.
func TestAReconnectIsFollowedByAPullAtOnce(t *testing.T) {
	t.Parallel()
	s := playServer(t)
	s.new()
	if err := s.feed.consumer.conn.NATS.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	bustest.Receive(t, "a pull", s.asked, 1)
}

// A consumer with replicas sends a message when it is recorded, and says before that the next one
// does not fit. No time passes here: this test takes a pull for lost after a long silence, and lets
// a few be, since the cluster may change its leader.
//
// mutation: word that believes the order and not the number makes this fail: each pull would be
// taken for lost, and a backlog comes at 128 KiB in three seconds.
func TestABacklogOfReplicasComesWithoutAWait(t *testing.T) {
	t.Parallel()
	const stored, lost = 600, 3 // results, for which it takes seven pulls, and how many of those may be lost
	conn := bustest.Dial(t, bus.Config{URL: natstest.StartCluster(t).URL(), Replicas: 3, Clock: clocktesting.NewFakeClock(time.Now())})
	bustest.Eventually(t, "the streams are there", func() bool { return conn.RepairStreams(t.Context()) == nil && conn.Ready(t.Context()) == nil })
	body := strings.Replace(bustest.Succeeded, "{", "{"+strings.Repeat(" ", 1<<10), 1)
	for i := range stored {
		id := protocol.JobID{RunUID: "run-1", Step: "fetch", Item: strconv.Itoa(i), Attempt: 1}
		m := bustest.Result(conn.Names, bustest.Ring(), id, body)
		bustest.Eventually(t, "a result is stored", func() bool {
			_, err := conn.JetStream.PublishMsg(t.Context(), m)
			return err == nil
		})
	}
	f := newFeed(NewConsumer(conn, bustest.Keys(t), deadletters.NewWriter(conn), Options{}), protocol.Partition("run-1"), nil)
	bustest.Eventually(t, "the consumer is there", func() bool {
		_, err := f.consumer.ensure(t.Context(), f.partition)
		return err == nil
	})
	got := make(chan string, 10*stored)
	p, err := newPulls(f, pullRequest{Batch: pullBatch, MaxBytes: pullBytes, Expires: pullExpiry, Heartbeat: pullHeartbeat}, func(m *nats.Msg) {
		_ = m.Ack() // one that is lost has the result come again
		got <- m.Subject
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.drain)
	seen := map[string]bool{}
	for silences := 0; len(seen) < stored; {
		select {
		case subject := <-got:
			seen[subject] = true
		case <-time.After(bustest.Patience / 4):
			if silences++; silences > lost {
				t.Fatalf("%d of %d results, and %d pulls were lost", len(seen), stored, silences)
			}
			for range silentBeats {
				p.beat()
			}
		}
	}
}

// pullsOf subscribes to the results of a run before their consumer is there.
func pullsOf(t *testing.T, run string) (f *feed, p *pulls, got <-chan string) {
	t.Helper()
	conn := bustest.Dial(t, bus.Config{URL: natstest.Start(t).URL(), Clock: clocktesting.NewFakeClock(time.Now())})
	bustest.Eventually(t, "the streams are there", func() bool { return conn.RepairStreams(t.Context()) == nil && conn.Ready(t.Context()) == nil })
	f = newFeed(NewConsumer(conn, bustest.Keys(t), deadletters.NewWriter(conn), Options{}), protocol.Partition(run), nil)
	subjects := make(chan string, 10)
	p, err := newPulls(f, pullRequest{Batch: pullBatch, MaxBytes: pullBytes, Expires: pullExpiry, Heartbeat: pullHeartbeat}, func(m *nats.Msg) { subjects <- m.Subject })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.drain)
	bustest.Eventually(t, "nobody is there", p.wasRefused)
	return f, p, subjects
}

// No time passes in these, so that no pull is taken for lost.
// mutations: look that pulls again only where it made the consumer itself makes the first fail, and
// look without fit the second.
func TestALookPullsAgainWhatNobodyTook(t *testing.T) {
	t.Parallel()
	t.Run("somebody else made the consumer", func(t *testing.T) {
		t.Parallel()
		f, p, got := pullsOf(t, "run-1")
		if _, err := f.consumer.ensure(t.Context(), f.partition); err != nil {
			t.Fatal(err)
		}
		if _, err := f.look(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		bustest.Answer(t, f.consumer.conn, protocol.JobID{RunUID: "run-1", Step: "fetch", Item: protocol.NoItem, Attempt: 1}, bustest.Succeeded)
		bustest.Receive(t, "the result", got, 1)
	})
	t.Run("the stream takes larger messages", func(t *testing.T) {
		t.Parallel()
		f, p, got := pullsOf(t, "run-1")
		conn := f.consumer.conn
		stream := bustest.Info(t, conn, conn.Names.ResultsStream()).Config
		stream.MaxMsgSize = 4 * pullBytes
		if _, err := conn.JetStream.UpdateStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
		if _, err := f.look(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		m := bustest.Result(conn.Names, bustest.Ring(), protocol.JobID{RunUID: "run-1", Step: "fetch", Item: protocol.NoItem, Attempt: 1}, strings.Repeat(" ", 2*pullBytes)+bustest.Succeeded)
		if _, err := conn.JetStream.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		bustest.Receive(t, "the result", got, 1)
	})
}

// mutation: retry that does nothing, or that does so each time, makes this fail.
func TestARefusedPullIsSentAgainOnceIfTheConsumerIsThere(t *testing.T) {
	t.Parallel()
	s := playServer(t)
	for _, pulls := range []int{1, 1, 0} { // the first is that of the beginning
		if n := s.new(); n != pulls {
			t.Fatalf("%d pulls, want %d", n, pulls)
		}
		s.says(s.reply(), "503", "")
		s.retry()
	}
}

// mutation: watch that does not call retry makes this fail: no time passes here.
func TestAPullIsSentAgainWhoseRefusalIsOver(t *testing.T) {
	t.Parallel()
	s := playServer(t)
	stream, name := s.feed.consumer.conn.Names.ResultsStream(), s.feed.name
	answer := fmt.Sprintf(`{"type":"io.nats.jetstream.api.v1.consumer_info_response","stream_name":%q,"name":%q,"config":{"durable_name":%q,"ack_policy":"explicit"}}`, stream, name, name)
	if _, err := s.nc.Subscribe("$JS.API.CONSUMER.INFO.>", func(m *nats.Msg) { _ = m.Respond([]byte(answer)) }); err != nil {
		t.Fatal(err)
	}
	s.new()
	c, err := s.feed.consumer.conn.JetStream.Consumer(t.Context(), stream, name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- s.feed.watch(ctx, c, s.pulls) }()
	s.says(s.reply(), "503", "")
	bustest.Receive(t, "another pull", s.asked, 1)
	cancel()
	if err := bustest.Receive(t, "the end", over, 1)[0]; err != nil {
		t.Error(err)
	}
}
