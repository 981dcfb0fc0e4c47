// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// tinyWindow makes the server forget Msg-Ids at once, so that nothing can rest on them.
func tinyWindow(c *config) { c.DuplicateWindow = 100 * time.Millisecond }

// outliveWindow returns when the stream has forgotten all Msg-Ids that it knew when
// this was called.
func outliveWindow(t *testing.T, b *Queue) {
	t.Helper()
	probe := fmt.Sprintf("probe-%d", time.Now().UnixNano())
	try := func() bool {
		ack, err := b.conn.JetStream.Publish(t.Context(), "syncopate.jobs.probe.p.p.p.p", nil, jetstream.WithMsgID(probe))
		if err != nil {
			t.Fatal(err)
		}
		return !ack.Duplicate
	}
	if !try() {
		t.Fatal("the first probe is a duplicate")
	}
	bustest.Eventually(t, "the duplicate window is over", try)
	stream, err := b.conn.JetStream.Stream(t.Context(), b.conn.Names.JobsStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("syncopate.jobs.probe.>")); err != nil {
		t.Fatal(err)
	}
}

func jobsQueued(t *testing.T, b *Queue) int {
	t.Helper()
	n := 0
	for subject, msgs := range bustest.Info(t, b.conn, b.conn.Names.JobsStream()).State.Subjects {
		if !strings.Contains(subject, "._fence.") {
			n += int(msgs)
		}
	}
	return n
}

func publish(t *testing.T, b *Queue, j Job) {
	t.Helper()
	if err := b.Publish(t.Context(), j); err != nil {
		t.Fatalf("publish %s: %v", j.ID, err)
	}
}

func TestAWorkerGetsAllThatItNeeds(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t))
	j := testJob(1)
	j.Deadline = time.Now().Add(time.Hour)
	publish(t, b, j)

	m := bustest.Take(t, b.conn, j.Topic)
	h := m.Headers()
	got := map[string]string{}
	for _, name := range []string{
		protocol.HeaderMsgID, protocol.HeaderCEID, protocol.HeaderCEType, protocol.HeaderCESource, protocol.HeaderFence,
		protocol.HeaderReply, protocol.HeaderToken, protocol.HeaderDeadline,
	} {
		got[name] = h.Get(name)
	}
	want := map[string]string{
		protocol.HeaderMsgID: "run-1/fetch/-/1", protocol.HeaderCEID: "run-1/fetch/-/1", protocol.HeaderCEType: protocol.CETypeJob,
		protocol.HeaderCESource: "/runs/test", protocol.HeaderFence: "7",
		protocol.HeaderReply: b.conn.Names.Result(j.ID), protocol.HeaderToken: bustest.Ring().Sign(j.ID),
		protocol.HeaderDeadline: j.Deadline.UTC().Format(time.RFC3339Nano),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if string(m.Data()) != `{"n":1}` {
		t.Errorf("body is %s", m.Data())
	}
	info, err := b.conn.JetStream.Consumer(t.Context(), b.conn.Names.JobsStream(), "web_fetch")
	if err != nil {
		t.Fatal(err)
	}
	if c := info.CachedInfo().Config; c.MaxDeliver != -1 || c.MaxAckPending != 10_000 || c.InactiveThreshold == 0 || c.AckWait != jobAckWait {
		t.Errorf("consumer of the topic: %+v", c)
	}
}

// mutation: without WithExpectLastSequencePerSubject the last two cases store two jobs.
func TestPublishingTwiceQueuesOneJob(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(*testing.T, *natstest.Server, *Queue){
		"at once": func(*testing.T, *natstest.Server, *Queue) {},
		"after the duplicate window": func(t *testing.T, _ *natstest.Server, b *Queue) {
			outliveWindow(t, b)
		},
		"after a restart of the server and the duplicate window": func(t *testing.T, s *natstest.Server, b *Queue) {
			s.Restart()
			bustest.Eventually(t, "the bus is ready again", func() bool { return b.conn.Ready(t.Context()) == nil })
			outliveWindow(t, b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t)
			b := newQueue(t, s, tinyWindow)
			publish(t, b, testJob(1))
			between(t, s, b)
			publish(t, b, testJob(1))
			if n := jobsQueued(t, b); n != 1 {
				t.Errorf("%d jobs are queued, want 1", n)
			}
		})
	}
}

func TestAJobLeavesTheQueueAtItsDeadline(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t))
	j := testJob(1)
	j.Deadline = time.Now().Add(2200 * time.Millisecond) // JetStream counts whole seconds: three, in which it is seen
	publish(t, b, j)
	if n := jobsQueued(t, b); n != 1 {
		t.Fatalf("%d jobs are queued, want 1", n)
	}
	// mutation: without WithMsgTTL the job stays.
	bustest.Eventually(t, "the job is gone", func() bool { return jobsQueued(t, b) == 0 })
}

func TestTimeToLiveIsRoundedUpToWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		-time.Second: time.Second, time.Nanosecond: time.Second, time.Second: time.Second,
		1001 * time.Millisecond: 2 * time.Second, time.Hour: time.Hour,
	} {
		if got := timeToLive(d); got != want {
			t.Errorf("timeToLive(%s) = %s, want %s", d, got, want)
		}
	}
}

// meeting has the first publishes wait until so many are under way at a time.
type meeting struct {
	jetstream.JetStream
	missing atomic.Int64
	all     chan struct{} // closed when none is
}

func (m *meeting) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if m.missing.Add(-1) == 0 {
		close(m.all)
	}
	select {
	case <-m.all:
		return m.JetStream.PublishMsg(ctx, msg, opts...)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// mutation: a publish that waits for another one's end, as with a mutex around store, makes
// this fail.
func TestAThousandJobsOfConcurrentCallersDoNotWaitForEachOther(t *testing.T) {
	b := newQueue(t, natstest.Start(t))
	const callers, each = 50, 20
	m := &meeting{JetStream: b.conn.JetStream, all: make(chan struct{})}
	m.missing.Store(callers)
	b.conn.JetStream = m
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	start := time.Now()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				if err := b.Publish(ctx, testJob(c*each+i)); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d jobs in %s", callers*each, time.Since(start))
	if n := jobsQueued(t, b); n != callers*each {
		t.Errorf("%d jobs are queued", n)
	}
}

func TestPublishRefusesWhatCannotBeAJob(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t))
	change := func(f func(*Job)) Job { j := testJob(1); f(&j); return j }
	for name, c := range map[string]struct {
		job  Job
		want error
	}{
		"a topic with a wildcard":    {change(func(j *Job) { j.Topic = "a.*" }), bus.ErrInvalidJob},
		"an empty word in a topic":   {change(func(j *Job) { j.Topic = "a..b" }), bus.ErrInvalidJob},
		"a run UID with a dot":       {change(func(j *Job) { j.ID.RunUID = "a.b" }), bus.ErrInvalidJob},
		"attempt 0":                  {change(func(j *Job) { j.ID.Attempt = 0 }), bus.ErrInvalidJob},
		"an input that is not JSON":  {change(func(j *Job) { j.Input = json.RawMessage("{") }), bus.ErrInvalidJob},
		"an input above the limit":   {change(func(j *Job) { j.Input = bytes.Repeat([]byte("1"), MaxInputBytes+1) }), ErrInputTooLarge},
		"a deadline that has passed": {change(func(j *Job) { j.Deadline = time.Now().Add(-time.Second) }), ErrDeadlinePassed},
	} {
		t.Run(name, func(t *testing.T) {
			err := b.Publish(t.Context(), c.job)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if _, ok := errors.AsType[*bus.RetryError](err); ok {
				t.Errorf("%v asks for a retry, which cannot help", err)
			}
		})
	}
}

func wantRetry(t *testing.T, err, cause error) {
	t.Helper()
	var retry *bus.RetryError
	if !errors.Is(err, cause) || !errors.As(err, &retry) {
		t.Fatalf("got %v, want a *bus.RetryError that wraps %v", err, cause)
	}
	if retry.RetryDelay() <= 0 || retry.RetryClass() != bus.ClassPublishFailed {
		t.Errorf("delay %s, class %q", retry.RetryDelay(), retry.RetryClass())
	}
}

func TestAMessageAboveTheServersLimitIsATypedError(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) { o.MaxPayload = 16 << 10 })
	b := newQueue(t, s)
	j := testJob(1)
	j.Input, _ = json.Marshal(map[string]string{"text": string(bytes.Repeat([]byte("x"), 20<<10))})
	wantRetry(t, b.Publish(t.Context(), j), bus.ErrMaxPayload)
}

// mutation: a reconnect buffer and no checks of the connection make this fail: each call waits
// for its time-out.
func TestEveryCallFailsAtOnceWhileNATSIsAway(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newQueue(t, s)
	publish(t, b, testJob(1))
	s.Shutdown()
	bustest.Eventually(t, "the bus is not connected", func() bool { return !b.conn.Connected() })
	start := time.Now()
	for name, call := range map[string]func(context.Context) error{
		"EnsureStreams": b.conn.EnsureStreams,
		"Ready":         b.conn.Ready,
		"Publish":       func(ctx context.Context) error { return b.Publish(ctx, testJob(2)) },
		"Recover":       func(ctx context.Context) error { _, err := b.Recover(ctx, testJob(2)); return err },
		"Withdraw":      func(ctx context.Context) error { return b.Withdraw(ctx, "web.fetch", bustest.JobID(1)) },
		"Cancel":        func(ctx context.Context) error { return b.Cancel(ctx, "run-1", nil) },
		"List":          func(ctx context.Context) error { _, err := b.List(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) { wantRetry(t, call(t.Context()), bus.ErrUnreachable) })
	}
	if took := time.Since(start); took > bus.CallTimeout {
		t.Errorf("all calls together took %s", took)
	}
	s.Restart()
	bustest.Eventually(t, "the bus is ready again", func() bool { return b.conn.Ready(t.Context()) == nil })
	if n := jobsQueued(t, b); n != 1 { // mutation: a reconnect buffer lets the failed publish through later
		t.Errorf("%d jobs are queued, want the one from before", n)
	}
}

func TestConnectDoesNotNeedNATS(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	url := s.URL()
	s.Shutdown()
	conn, err := bus.Connect(t.Context(), bus.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	b := queueOn(t, conn, Options{})
	wantRetry(t, b.Publish(t.Context(), testJob(1)), bus.ErrUnreachable)
	s.Restart()
	bustest.Eventually(t, "a job can be published", func() bool { return b.Publish(t.Context(), testJob(1)) == nil })
}

// mutation: no RepairStreams in topics.create, or no forget in publish, makes one of
// the cases fail.
func TestWhatVanishedIsMadeAgainByTheNextPublish(t *testing.T) {
	t.Parallel()
	for name, destroy := range map[string]func(context.Context, *Queue) error{
		"the topic's consumer": func(ctx context.Context, b *Queue) error {
			b.topics.recheck = 0 // as if a minute had passed
			return b.conn.JetStream.DeleteConsumer(ctx, b.conn.Names.JobsStream(), "web_fetch")
		},
		"the stream": func(ctx context.Context, b *Queue) error {
			return b.conn.JetStream.DeleteStream(ctx, b.conn.Names.JobsStream())
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newQueue(t, natstest.Start(t))
			publish(t, b, testJob(1))
			if err := destroy(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			publish(t, b, testJob(2))
			bustest.Take(t, b.conn, "web.fetch")
		})
	}
}

func TestTopicsWithCommonWordsAreApart(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t))
	short, long := testJob(1), testJob(2)
	short.Topic, long.Topic = "a", "a.b"
	publish(t, b, short)
	publish(t, b, long)
	for topic, want := range map[string]string{"a": "run-1/fetch/-/1", "a.b": "run-2/fetch/-/1"} {
		if got := bustest.Take(t, b.conn, topic).Headers().Get(protocol.HeaderMsgID); got != want {
			t.Errorf("topic %s gave %s, want %s", topic, got, want)
		}
	}
}
