// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// refusals are those counted by the label of a stream.
func refusals(t *testing.T, reg *prometheus.Registry, stream string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "syncopate_nats_refusals_total" && m.GetLabel()[0].GetValue() == stream {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("there is no counter of %s", stream)
	return 0
}

// wantNoRoom checks that NATS had no room, which is no outage, and that some seconds are waited.
func wantNoRoom(t *testing.T, err error) {
	t.Helper()
	again, ok := errors.AsType[*bus.RetryError](err)
	if !ok || !errors.Is(err, bus.ErrNoRoom) || errors.Is(err, bus.ErrUnreachable) {
		t.Fatalf("got %v, want a *bus.RetryError with bus.ErrNoRoom", err)
	}
	if again.Delay.Seconds() < 4 || again.Delay.Seconds() > 6 {
		t.Errorf("it is tried again in %s", again.Delay)
	}
}

// largeJob has 200 KiB of input.
func largeJob(n int) jobs.Job {
	j := testJob(n)
	j.Input = json.RawMessage(`"` + string(bytes.Repeat([]byte("x"), 200<<10)) + `"`)
	return j
}

// fill publishes large jobs until one is refused, and says how many were taken, and why no more.
func fill(ctx context.Context, b *broker, atMost int) (taken int, err error) {
	for n := 1; n <= atMost; n++ {
		if err := b.jobs.Publish(ctx, largeJob(n)); err != nil {
			return n - 1, err
		}
	}
	return atMost, nil
}

// mutation: noRoom without code 10077, Retryable without the case of noRoom, or Store that does not
// count makes this fail.
func TestAFullStreamOfJobsHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := newBroker(t, natstest.Start(t), func(c *bus.Config) { c.MaxBytes.Jobs, c.Metrics = 1<<20, bus.NewMetrics(reg) })
	taken, err := fill(t.Context(), b, 10)
	wantNoRoom(t, err)
	if taken == 0 || taken > 5 {
		t.Errorf("%d jobs of 200 KiB were taken into 1 MiB", taken)
	}
	if n := refusals(t, reg, "jobs"); n != 1 {
		t.Errorf("%v refusals are counted", n)
	}

	got, _ := collect(t, b)
	if _, err := b.JetStream.PublishMsg(t.Context(), bustest.Result(b.Names, bustest.Ring(), bustest.JobID(1), bustest.Succeeded)); err != nil {
		t.Fatalf("a result: %v", err)
	}
	settle(t, bustest.Receive(t, "the result is delivered", got, 1)[0], nil)
	output := []byte(`"large"`)
	if err := b.payloads.Put(t.Context(), protocol.NewOutputRef(bustest.JobID(1), output), output); err != nil {
		t.Errorf("an output: %v", err)
	}

	if err := bustest.Take(t, b.Conn, testJob(1).Topic).DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.jobs.Publish(t.Context(), largeJob(11)); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// mutation: noRoom without code 10023 makes this fail, and so does a Writer of dead letters that
// does not go through Store.
func TestAFullServerIsNoOutage(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s := natstest.Start(t, func(o *server.Options) { o.JetStreamMaxStore = 1 << 20 })
	b := newBroker(t, s, func(c *bus.Config) { c.Metrics = bus.NewMetrics(reg) })
	_, err := fill(t.Context(), b, 10)
	wantNoRoom(t, err)
	output := bytes.Repeat([]byte("1"), 100<<10)
	ref := protocol.NewOutputRef(bustest.JobID(1), output)
	wantNoRoom(t, b.payloads.Put(t.Context(), ref, output))
	letter := deadletters.Entry{Reason: deadletters.ReasonRejected, Cause: results.ErrBadToken, Subject: "s", Sequence: 1}
	wantNoRoom(t, deadletters.NewWriter(b.Conn).Write(t.Context(), letter))
	for _, stream := range []string{"jobs", "payloads", "deadletters"} {
		if n := refusals(t, reg, stream); n != 1 {
			t.Errorf("%v refusals of %s are counted", n, stream)
		}
	}
	if n := refusals(t, reg, "control"); n != 0 {
		t.Errorf("%v refusals of control are counted", n)
	}

	for n := 1; n <= 3; n++ {
		if err := b.jobs.Withdraw(t.Context(), testJob(n).Topic, bustest.JobID(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.payloads.Put(t.Context(), ref, output); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// limitOf is the limit of a stream.
func limitOf(t *testing.T, c *bus.Conn, stream string) int64 {
	t.Helper()
	return bustest.Info(t, c, stream).Config.MaxBytes
}

// edit changes the limit of a stream, as an administrator does.
func edit(t *testing.T, c *bus.Conn, stream string, limit int64) {
	t.Helper()
	config := bustest.Info(t, c, stream).Config
	config.MaxBytes = limit
	if _, err := c.JetStream.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// ensured are the drifts that EnsureStreams leaves; any other error fails the test.
func ensured(t *testing.T, c *bus.Conn) (drifts []bus.Drift) {
	t.Helper()
	err := c.EnsureStreams(t.Context())
	if drift, ok := errors.AsType[*bus.DriftError](err); ok {
		return drift.Drifts
	}
	if err != nil {
		t.Fatal(err)
	}
	return nil
}

// mutation: bound that is not called for payloads, or leaves a smaller limit, or lowers a larger
// one, makes this fail; so does limitDrift without a limit of ours.
func TestStreamsThatExistGetTheirLimits(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	before := newBroker(t, s)
	names := before.Names
	edit(t, before.Conn, names.ResultsStream(), 1<<20)
	edit(t, before.Conn, names.DeadLettersStream(), 64<<20)
	if drifts := ensured(t, before.Conn); len(drifts) > 0 {
		t.Errorf("limits of an administrator are drift: %v", drifts)
	}

	b := bustest.Dial(t, bus.Config{URL: s.URL(), MaxBytes: bus.Divide(256 << 20)})
	drifts := ensured(t, b)
	want := map[string]int64{
		names.JobsStream(): 64 << 20, names.ResultsStream(): 64 << 20, names.DeadLettersStream(): 64 << 20, names.ControlStream(): 4 << 20, names.PayloadsStream(): 108 << 20,
	}
	for stream, limit := range want {
		if got := limitOf(t, b, stream); got != limit {
			t.Errorf("%s may hold %d, want %d", stream, got, limit)
		}
	}
	if len(drifts) != 1 || drifts[0].Object != names.DeadLettersStream() || drifts[0].Field != "max_bytes" {
		t.Errorf("drift: %v", drifts)
	}
}

// mutation: bound that does not ask what a stream holds makes this fail.
func TestNoMessageIsLostByALimit(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	before := newBroker(t, s)
	if taken, err := fill(t.Context(), before, 6); taken != 6 {
		t.Fatal(err)
	}
	b := bustest.Dial(t, bus.Config{URL: s.URL(), MaxBytes: bus.MaxBytes{Jobs: 1 << 20}})
	drifts := ensured(t, b)
	if info := bustest.Info(t, b, b.Names.JobsStream()); info.Config.MaxBytes > 0 || info.State.Msgs != 6 {
		t.Errorf("it may hold %d, and has %d messages", info.Config.MaxBytes, info.State.Msgs)
	}
	if len(drifts) != 1 || drifts[0].Field != "max_bytes" {
		t.Errorf("drift: %v", drifts)
	}
}

// What can never be applied keeps no limit away.
//
// mutation: boundSubjects that does not ask what subjects hold, or asks those of other reasons too,
// or takes a limit of an administrator away makes this fail.
func TestDeadLettersOfOneSubjectGetALimit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		subject string
		has     int64
		bytes   int64
		want    int64
		drift   bool
	}{
		"small":                           {subject: "rejected.-", has: -1, bytes: 4 << 20, want: 102},
		"without a limit of bytes":        {subject: "rejected.-", has: -1, want: 10_000},
		"an administrator's lower one":    {subject: "rejected.-", has: 500, bytes: 40 << 20, want: 500},
		"that of no limit of bytes":       {subject: "rejected.-", has: 10_000, bytes: 40 << 20, want: 1024},
		"a higher one":                    {subject: "rejected.-", has: 20_000, bytes: 4 << 20, want: 20_000, drift: true},
		"what a run holds would be lost":  {subject: "DeliveriesExhausted.run-1", has: -1, bytes: 4 << 20, want: -1, drift: true},
		"forged ones of before":           {subject: "rejected.run-1", has: -1, bytes: 4 << 20, want: 102},
		"unusable ones of before":         {subject: "ResultRejected.run-1", has: -1, bytes: 4 << 20, want: 102},
		"more than all subjects may have": {subject: "rejected.-", has: -1, bytes: 1 << 10, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t)
			before := newBroker(t, s)
			stream := before.Names.DeadLettersStream()
			config := bustest.Info(t, before.Conn, stream).Config
			config.MaxMsgsPerSubject = tt.has
			if _, err := before.JetStream.UpdateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			for range 110 {
				bustest.PublishRaw(t, before.Conn, before.Names.Prefix+".deadletters."+tt.subject, "")
			}
			b := bustest.Dial(t, bus.Config{URL: s.URL(), MaxBytes: bus.MaxBytes{DeadLetters: tt.bytes}})
			drifts := slices.DeleteFunc(ensured(t, b), func(d bus.Drift) bool { return d.Field != "max_msgs_per_subject" })
			if got := bustest.Info(t, b, stream).Config.MaxMsgsPerSubject; got != tt.want || (len(drifts) > 0) != tt.drift {
				t.Errorf("limit %d, want %d; drift: %v", got, tt.want, drifts)
			}
		})
	}
}

// mutation: a limit that follows from Config alone, or one that the operator gave and does not
// raise, makes this fail.
func TestTheLimitOfASubjectFollowsFromWhatItsStreamMayHold(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first, own, then int64 // what it is made with, what an administrator gives it, and what it is to have later
		want             int64
	}{
		"an administrator's own":      {own: 64 << 20, want: 1638},
		"what the flag gave, without": {first: 64 << 20, want: 1638},
		"what an administrator takes": {first: 64 << 20, own: 8 << 20, want: 204},
		"what the flag raises":        {first: 4 << 20, then: 40 << 20, want: 1024},
		"the first that the flag has": {then: 40 << 20, want: 1024},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t)
			before := newBroker(t, s, func(c *bus.Config) { c.MaxBytes.DeadLetters = tt.first })
			stream := before.Names.DeadLettersStream()
			if tt.own > 0 {
				edit(t, before.Conn, stream, tt.own)
			}
			b := bustest.Dial(t, bus.Config{URL: s.URL(), MaxBytes: bus.MaxBytes{DeadLetters: tt.then}})
			drifts := ensured(t, b)
			if got := bustest.Info(t, b, stream).Config.MaxMsgsPerSubject; got != tt.want || len(drifts) > 0 {
				t.Errorf("limit %d, want %d; drift: %v", got, tt.want, drifts)
			}
		})
	}
}

// mutation: bound that gives the refusal of the server back makes this fail.
func TestALimitThatTheServerCannotKeepIsNotGiven(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) { o.JetStreamMaxStore = 20 << 20 })
	before := newBroker(t, s)
	b := bustest.Dial(t, bus.Config{URL: s.URL(), MaxBytes: bus.Divide(256 << 20)})
	drifts := ensured(t, b)
	if got := limitOf(t, b, before.Names.JobsStream()); got > 0 {
		t.Errorf("it may hold %d", got)
	}
	if got := limitOf(t, b, before.Names.ControlStream()); got != 4<<20 {
		t.Errorf("what can be kept is %d", got)
	}
	if len(drifts) != 3 {
		t.Errorf("drift: %v", drifts)
	}
}

// mutation: measure that is not called for a stream, or does not say its limit, makes this fail.
func TestStreamsAreMeasured(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := newBroker(t, natstest.Start(t), func(c *bus.Config) { c.MaxBytes.Jobs, c.Metrics = 1<<20, bus.NewMetrics(reg) })
	if err := b.jobs.Publish(t.Context(), largeJob(1)); err != nil {
		t.Fatal(err)
	}
	if err := b.CheckStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	if held := got["syncopate_nats_stream_bytes jobs"]; held < 200<<10 || held > 1<<20 {
		t.Errorf("jobs hold %v", held)
	}
	if limit := got["syncopate_nats_stream_limit_bytes jobs"]; limit != 1<<20 {
		t.Errorf("jobs may hold %v", limit)
	}
	for _, stream := range []string{"results", "deadletters", "control", "payloads"} {
		if _, measured := got["syncopate_nats_stream_bytes "+stream]; !measured {
			t.Errorf("%s is not measured", stream)
		}
		if limit, has := got["syncopate_nats_stream_limit_bytes "+stream]; has {
			t.Errorf("%s has a limit of %v", stream, limit)
		}
	}
}

// mutation: measure that does not ask for a leader makes this fail: what was seen last is shown for
// ever.
func TestAStreamWithoutALeaderIsNotMeasured(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	c := bustest.Offline(t, bus.Config{Metrics: bus.NewMetrics(reg)})
	for _, leader := range []string{"", "a"} {
		info := &jetstream.StreamInfo{Cluster: &jetstream.ClusterInfo{Leader: leader}}
		info.Config.Name = c.Names.ResultsStream()
		c.Measure(info)
		if n, err := testutil.GatherAndCount(reg, "syncopate_nats_stream_bytes"); err != nil || n != len(leader) {
			t.Errorf("leader %q: %d streams are measured, %v", leader, n, err)
		}
	}
}

// mutation: EnsureStreams or ensurePayloads that gives a refused limit back as an error makes this
// fail.
func TestStreamsAreMadeWithoutALimitThatTheServerCannotKeep(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) { o.JetStreamMaxStore = 20 << 20 })
	b := bustest.Dial(t, bus.Config{URL: s.URL(), MaxBytes: bus.Divide(256 << 20)})
	if drifts := ensured(t, b); len(drifts) != 3 {
		t.Errorf("drift: %v", drifts)
	}
	names := b.Names
	for stream, limit := range map[string]int64{
		names.JobsStream(): -1, names.ResultsStream(): -1, names.DeadLettersStream(): 16 << 20, names.ControlStream(): 4 << 20, names.PayloadsStream(): -1,
	} {
		if got := limitOf(t, b, stream); got != limit {
			t.Errorf("%s may hold %d, want %d", stream, got, limit)
		}
	}
}

// The same code says that a consumer cannot be created.
// mutation: Retryable that judges codes makes this fail.
func TestOnlyWhatIsStoredLacksRoom(t *testing.T) {
	t.Parallel()
	c := bustest.Dial(t, bus.Config{URL: natstest.Start(t).URL()})
	err := c.Retryable("create consumer", &jetstream.APIError{Code: 503, ErrorCode: 10023, Description: "insufficient resources"})
	if errors.Is(err, bus.ErrNoRoom) {
		t.Errorf("it is %v", err)
	}
}

// measured are the streams for which there is a gauge of what they hold.
func measured(t *testing.T, reg *prometheus.Registry) (streams []string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "syncopate_nats_stream_bytes" {
				streams = append(streams, m.GetLabel()[0].GetValue())
			}
		}
	}
	return streams
}

// mutations: measureOthers that keeps what a stream held that is gone, checkStreams that forgets
// all when it fails, or keeps all for ever, and a look that does not count as one.
func TestWhatIsNotKnownOfStreamsIsNotShown(t *testing.T) {
	t.Parallel()
	reg, clk := prometheus.NewRegistry(), clocktesting.NewFakeClock(time.Now())
	s := natstest.Start(t)
	b := newBroker(t, s, func(c *bus.Config) { c.Metrics, c.Clock = bus.NewMetrics(reg), clk })
	if err := b.CheckStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.JetStream.DeleteStream(t.Context(), b.Names.ControlStream()); err != nil {
		t.Fatal(err)
	}
	looked := make(chan error, 1)
	go func() { looked <- b.CheckStreams(context.WithoutCancel(t.Context())) }()
	bustest.Eventually(t, "the look waits for the removal", clk.HasWaiters)
	clk.Step(bus.Removal)
	if err := bustest.Receive(t, "the look ends", looked, 1)[0]; err != nil {
		t.Fatal(err)
	}
	if got := measured(t, reg); len(got) != 4 || slices.Contains(got, "control") {
		t.Errorf("without the stream of controls these are measured: %v", got)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	fails := func(want int) {
		t.Helper()
		if err := b.CheckStreams(ended); err == nil {
			t.Fatal("the streams can be looked at")
		}
		if got := measured(t, reg); len(got) != want {
			t.Errorf("want %d that are measured: %v", want, got)
		}
	}
	fails(4)
	clk.Step(50 * time.Second)
	fails(4)
	if err := b.CheckStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	clk.Step(50 * time.Second)
	fails(5) // it was made anew
	clk.Step(10 * time.Second)
	fails(0)
}

// cram fills the stream of jobs so that it has no room for a fence either.
func cram(t *testing.T, b *broker) {
	t.Helper()
	n := 1000
	for size := 200 << 10; ; size /= 8 {
		var err error
		for ; err == nil; n++ {
			j := testJob(n)
			j.Input = json.RawMessage(`"` + string(bytes.Repeat([]byte("x"), size)) + `"`)
			err = b.jobs.Publish(t.Context(), j)
		}
		wantNoRoom(t, err)
		if size == 0 {
			break
		}
	}
	for err := error(nil); err == nil; n++ {
		_, err = b.jobs.Fence(t.Context(), testJob(n))
	}
}

// mutation: Recover that does not look for a job which it cannot fence makes this fail.
func TestWhatIsThereIsFoundWithoutRoom(t *testing.T) {
	t.Parallel()
	b := newBroker(t, natstest.Start(t), func(c *bus.Config) { c.MaxBytes.Jobs = 1 << 20 })
	if err := b.jobs.Publish(t.Context(), testJob(1)); err != nil {
		t.Fatal(err)
	}
	cram(t, b)
	if _, err := b.JetStream.PublishMsg(t.Context(), bustest.Result(b.Names, bustest.Ring(), bustest.JobID(2), bustest.Succeeded)); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]jobs.RecoverOutcome{1: jobs.Queued, 2: jobs.Answered} {
		if got, err := b.jobs.Recover(t.Context(), testJob(n)); got != want || err != nil {
			t.Errorf("job %d: %s, %v, want %s", n, got, err, want)
		}
	}
	_, err := b.jobs.Recover(t.Context(), testJob(3))
	wantNoRoom(t, err)
}
