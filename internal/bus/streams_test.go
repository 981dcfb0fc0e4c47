// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: a deadLetterWindow in seconds.
func TestStreamsAreCreatedOnceAndAsDesigned(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBroker(t, s)
	if err := b.EnsureStreams(t.Context()); err != nil {
		t.Fatalf("second EnsureStreams: %v", err) // mutation: an unnormalised limit (0 for -1) makes this fail with drift
	}
	jobs := bustest.Info(t, b.Conn, "SYNCOPATE_JOBS").Config
	results := bustest.Info(t, b.Conn, "SYNCOPATE_RESULTS").Config
	dead := bustest.Info(t, b.Conn, "SYNCOPATE_DEADLETTERS").Config
	control := bustest.Info(t, b.Conn, "SYNCOPATE_CONTROL").Config

	got := map[string]any{
		"jobs retention": jobs.Retention, "jobs storage": jobs.Storage, "jobs ttl": jobs.AllowMsgTTL, "jobs direct": jobs.AllowDirect,
		"results retention": results.Retention, "results discard": results.Discard, "results direct": results.AllowDirect,
		"results subjects": len(results.Subjects), "results size": results.MaxMsgSize, "dead age": dead.MaxAge, "control age": control.MaxAge,
		"dead window": dead.Duplicates, "jobs window": jobs.Duplicates,
	}
	want := map[string]any{
		"jobs retention": jetstream.WorkQueuePolicy, "jobs storage": jetstream.FileStorage, "jobs ttl": true, "jobs direct": false,
		"results retention": jetstream.WorkQueuePolicy, "results discard": jetstream.DiscardNew, "results direct": false,
		"results subjects": protocol.Partitions, "results size": int32(96 << 10), "dead age": 14 * 24 * time.Hour, "control age": time.Hour,
		"dead window": 10 * time.Minute, "jobs window": 2 * time.Minute,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("streams (-want +got):\n%s", diff)
	}
	if err := b.Ready(t.Context()); err != nil {
		t.Errorf("Ready: %v", err)
	}
}

// mutation: UpdateStream in ensureStream, or an empty streamDrift, makes this fail.
func TestDriftIsReportedAndLeftAlone(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	first := newBroker(t, s)
	config := bustest.Info(t, first.Conn, first.Names.ResultsStream()).Config
	config.MaxAge = time.Hour
	if _, err := first.JetStream.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}

	err := first.EnsureStreams(t.Context())
	var drift *bus.DriftError
	if !errors.As(err, &drift) {
		t.Fatalf("got %v, want a *bus.DriftError", err)
	}
	want := []bus.Drift{{Object: "SYNCOPATE_RESULTS", Field: "max_age", Want: "720h0m0s", Got: "1h0m0s"}}
	if diff := cmp.Diff(want, drift.Drifts); diff != "" {
		t.Errorf("drift (-want +got):\n%s", diff)
	}
	if got := bustest.Info(t, first.Conn, first.Names.ResultsStream()).Config.MaxAge; got != time.Hour {
		t.Errorf("max age was overwritten with %s", got)
	}
}

// mutation: a stream subject results.> makes this fail: the message would lie where
// no consumer looks.
func TestAResultForAPartitionThatDoesNotExistIsRefusedToItsSender(t *testing.T) {
	t.Parallel()
	b := newBroker(t, natstest.Start(t))
	_, err := b.JetStream.Publish(t.Context(), "syncopate.results.64.run-1.fetch.-.1", nil, jetstream.WithRetryAttempts(0))
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		t.Errorf("got %v, want no stream", err)
	}
}

func TestConnectRefusesAnUnusableConfiguration(t *testing.T) {
	for name, c := range map[string]bus.Config{
		"a prefix with a wildcard":    {Names: protocol.Names{Prefix: "a.*"}},
		"a prefix of several words":   {Names: protocol.Names{Prefix: "a.b"}},
		"a prefix with capital words": {Names: protocol.Names{Prefix: "Syncopate"}},
		"a prefix that is too long":   {Names: protocol.Names{Prefix: strings.Repeat("a", 33)}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := bus.Connect(t.Context(), c)
			if !errors.Is(err, bus.ErrConfig) || !strings.Contains(err.Error(), "need 1 to 32 of a-z, 0-9, -") {
				t.Errorf("got %v, %v; want bus.ErrConfig, and what may be", b, err)
			}
		})
	}
}

// No request of the operator's own needs those streams while nothing is stored, and workers with
// large outputs wait for the object store.
//
// mutations: checkOthers without RepairStreams, and measureOthers that does not look for losses.
func TestAStreamThatSomebodyDeletesIsMadeAnewAtTheNextLook(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Now())
	b := newBroker(t, natstest.Start(t), func(c *bus.Config) { c.Clock = clk })
	looked(t, b)
	gone := map[string]string{
		"deadletters": b.Names.DeadLettersStream(), "control": b.Names.ControlStream(), "payloads": b.Names.PayloadsStream(),
	}
	for _, stream := range gone {
		if err := b.JetStream.DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.WatchStreams(ctx) }()
	bustest.Eventually(t, "it waits for its time", clk.HasWaiters)
	clk.Step(bus.StreamCheck)
	bustest.Eventually(t, "it waits for the removals, too", func() bool { return clk.Waiters() == 2 })
	clk.Step(bus.Removal)
	for _, stream := range gone {
		bustest.Eventually(t, stream+" is there again", func() bool {
			_, err := b.JetStream.Stream(t.Context(), stream)
			return err == nil
		})
	}
	cancel()
	bustest.Receive(t, "the watch ends", done, 1)
	looked(t, b)
	looked(t, b)
	for label := range gone {
		if n := b.LossesOf(label); n != 1 {
			t.Errorf("%s: %v losses", label, n)
		}
	}
	if n := b.Losses(); n != 0 {
		t.Errorf("what was dispatched is looked up, for %d losses", n)
	}
}

// The server removes the directory of a stream some time after it has forgotten the name: with that
// of one that was made anew meanwhile all that is published there is gone, without an answer.
//
// mutations: ensureStream, or ensurePayloads, without awaitRemoval.
func TestAStreamIsNotMadeAnewWhileTheServerMayStillRemoveTheOneBefore(t *testing.T) {
	t.Parallel()
	b := newBroker(t, natstest.Start(t))
	for _, name := range []string{b.Names.ResultsStream(), b.Names.PayloadsStream()} {
		if err := b.JetStream.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		deleted := time.Now()
		if err := b.EnsureStreams(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := bustest.Info(t, b.Conn, name).Created.Sub(deleted); waited < bus.Removal {
			t.Errorf("%s is made anew after %s", name, waited)
		}
	}
}

// mutation: a reconnect handler that does not forget which streams were there.
func TestNothingIsWaitedForOnAServerThatStartedAnew(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBroker(t, s)
	s.RestartEmpty()
	bustest.Receive(t, "it is connected again", b.Recheck(), 1)
	if b.AwaitsRemoval(b.Names.ResultsStream()) {
		t.Error("it waits for the removal of a stream")
	}
}

// allStreams are those that the operator makes.
func allStreams(b *broker) []string {
	n := b.Names
	return []string{n.JobsStream(), n.ResultsStream(), n.DeadLettersStream(), n.ControlStream(), n.PayloadsStream()}
}

// mutations: a checkStream, or a measureOthers, that does not note what it sees.
func TestAfterAReconnectTheRemovalOfAStreamIsWaitedForAsBefore(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBroker(t, s)
	s.Restart()
	bustest.Receive(t, "it is connected again", b.Recheck(), 1)
	looked(t, b)
	for _, name := range allStreams(b) {
		if !b.AwaitsRemoval(name) {
			t.Errorf("%s is made anew at once", name)
		}
	}
}

// ensuring makes the streams of a broker beside the test.
func ensuring(t *testing.T, b *broker) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- b.EnsureStreams(context.WithoutCancel(t.Context())) }()
	return done
}

// deleted makes a broker whose streams are all deleted after it saw them.
func deleted(t *testing.T) (*broker, *clocktesting.FakeClock) {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Now())
	b := newBroker(t, natstest.Start(t), func(c *bus.Config) { c.Clock = clk })
	for _, name := range allStreams(b) {
		if err := b.JetStream.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	return b, clk
}

// Each publisher makes the streams for itself, with the lock of its topic.
//
// mutations: EnsureStreams that looks at a stream only when the one before is there; a wait of all
// the time by each caller.
func TestTheRemovalOfAllStreamsIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	b, clk := deleted(t)
	first := ensuring(t, b)
	bustest.Eventually(t, "one waits", clk.HasWaiters)
	clk.Step(bus.Removal / 2)
	second := ensuring(t, b)
	bustest.Eventually(t, "another waits, too", func() bool { return clk.Waiters() == 2 })
	clk.Step(bus.Removal / 2)
	for _, done := range []<-chan error{first, second} {
		if err := bustest.Receive(t, "the streams are made", done, 1)[0]; err != nil {
			t.Error(err)
		}
	}
}

// mutation: a wait that the pulse does not end.
func TestAnOutageEndsTheWaitForARemoval(t *testing.T) {
	t.Parallel()
	b, clk := deleted(t)
	done := ensuring(t, b)
	bustest.Eventually(t, "it waits", clk.HasWaiters)
	b.NoteOutage()
	if err := bustest.Receive(t, "it ends", done, 1)[0]; !errors.Is(err, bus.ErrUnreachable) {
		t.Error(err)
	}
}

// mutation: ensureStream, or ensurePayloads, that makes a stream at once that went after the
// look at all.
func TestTheRemovalOfAStreamThatGoesMeanwhileIsWaitedFor(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Now())
	b := newBroker(t, natstest.Start(t), func(c *bus.Config) { c.Clock = clk })
	remove := func(stream string) {
		if err := b.JetStream.DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	remove(b.Names.ResultsStream())
	done := ensuring(t, b)
	bustest.Eventually(t, "it waits", clk.HasWaiters)
	remove(b.Names.PayloadsStream())
	remove(b.Names.ControlStream())
	for range 3 {
		bustest.Eventually(t, "it waits for each", clk.HasWaiters)
		clk.Step(bus.Removal)
	}
	if err := bustest.Receive(t, "the streams are made", done, 1)[0]; err != nil {
		t.Error(err)
	}
}

// A connection that breaks says nothing of what its server does.
//
// mutation: a reconnect to the same start of a server that forgets what was there.
func TestARemovalOutlivesAReconnect(t *testing.T) {
	t.Parallel()
	b, clk := deleted(t)
	if err := b.NATS.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	bustest.Receive(t, "it is connected again", b.Recheck(), 1)
	done := ensuring(t, b)
	bustest.Eventually(t, "it waits", clk.HasWaiters)
	clk.Step(bus.Removal)
	if err := bustest.Receive(t, "the streams are made", done, 1)[0]; err != nil {
		t.Error(err)
	}
}

// unheard is a dialer. While it is on, no question about a stream comes to the server.
type unheard struct {
	on    atomic.Bool
	asked atomic.Int32
}

func (u *unheard) Dial(network, address string) (net.Conn, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(context.Background(), network, address)
	return unheardConn{c, u}, err
}

type unheardConn struct {
	net.Conn
	of *unheard
}

func (c unheardConn) Write(b []byte) (int, error) {
	if n := bytes.Count(b, []byte("$JS.API.STREAM.INFO.")); n > 0 && c.of.on.Load() {
		c.of.asked.Add(int32(n))
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Each question that gets no answer takes CallTimeout, and publishers wait for all of them.
//
// mutation: sight that goes on after a question without an answer makes this fail.
func TestStreamsAreNotAskedForAgainAndAgainWhereNobodyAnswers(t *testing.T) {
	t.Parallel()
	u := &unheard{}
	c, err := bus.ConnectWith(bus.Config{URL: natstest.Start(t).URL(), Log: bustest.Log(t)}, nats.SetCustomDialer(u))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	bustest.Eventually(t, "the bus is connected", c.Connected)
	if err := c.EnsureStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	u.on.Store(true)
	if err := c.EnsureStreams(t.Context()); !errors.Is(err, context.DeadlineExceeded) || u.asked.Load() != 2 { // the look for removals, and the one for jobs
		t.Errorf("it ends with %v after %d questions", err, u.asked.Load())
	}
}
