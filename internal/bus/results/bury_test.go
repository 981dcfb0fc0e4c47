// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func newRegistry() *prometheus.Registry { return prometheus.NewPedanticRegistry() }

func histogramCount(t *testing.T, h *prometheus.HistogramVec, label string) uint64 {
	t.Helper()
	m, ok := h.WithLabelValues(label).(prometheus.Metric)
	if !ok {
		t.Fatal("not a metric")
	}
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetHistogram().GetSampleCount()
}

// mutation: a Msg-Id of its own for each try makes this fail.
func TestTheSameMessageIsOneDeadLetter(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	got, _ := collect(t, b)
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	d := bustest.Receive(t, "result", got, 1)[0]
	for range 2 { // the process died between the PubAck and the Term
		if err := d.putAside(t.Context(), "r", errors.New("x")); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, d, nil)
	if n := len(bustest.DeadLetters(t, b.conn)); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

// The body of a result that waits is not held, so it is read from the stream for its dead letter.
// What somebody took out of there, or another message in its place, is no dead letter. mutation:
// readBack without a look at the time, or that makes up a body, makes this fail.
func TestAResultThatIsGoneFromTheStreamIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	got, _ := collect(t, b)
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	bustest.Answer(t, b.conn, bustest.JobID(2), bustest.Succeeded)
	for _, d := range bustest.Receive(t, "results", got, 2) {
		if d.ID == bustest.JobID(1) {
			s, err := b.conn.JetStream.Stream(t.Context(), b.conn.Names.ResultsStream())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.DeleteMsg(t.Context(), d.key.sequence); err != nil {
				t.Fatal(err)
			}
		} else {
			d.key.storedAt++
		}
		settle(t, d, Permanent("r", nil))
		if d.Buried() {
			t.Errorf("%s is buried", d.ID)
		}
	}
	if n := len(bustest.DeadLetters(t, b.conn)); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// Whoever wrote a result must not fill the log with it. mutation: a line with the whole cause.
func TestALongCauseOfADeadLetterIsCutInTheLog(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 100)
	b := newTestConsumer(t, natstest.Start(t), func(c *config) {
		c.Log = funcr.New(func(_, args string) {
			if strings.Contains(args, "became a dead letter") {
				lines <- args
			}
		}, funcr.Options{})
	})
	got, _ := collect(t, b)
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	settle(t, bustest.Receive(t, "result", got, 1)[0], Permanent("r", errors.New("not a result: "+strings.Repeat("\u00e4\n", 32<<10))))
	if line := bustest.Receive(t, "line", lines, 1)[0]; len(line) > 1<<10 || !strings.Contains(line, "r: not a result: \u00e4 \u00e4") {
		t.Errorf("a line of %d bytes: %.200s", len(line), line)
	}
	if l := bustest.DeadLetters(t, b.conn)[0].Header.Get(deadletters.HeaderError); len(l) > 512 || !utf8.ValidString(l) {
		t.Errorf("a header of %d bytes: %.200q", len(l), l)
	}
}

// mutation: Term before or without the PubAck makes this fail.
func TestADeadLetterThatCannotBeStoredLosesNothing(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	stream := bustest.Info(t, b.conn, b.conn.Names.DeadLettersStream()).Config
	setMaxSize := func(n int32) {
		stream.MaxMsgSize = n
		if _, err := b.conn.JetStream.UpdateStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	setMaxSize(10)
	got, _ := collect(t, b)
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	settle(t, bustest.Receive(t, "result", got, 1)[0], Permanent("r", nil))
	bustest.Eventually(t, "the result is unsettled still", func() bool { return unsettled(t, b) == 1 })
	setMaxSize(-1)
	settle(t, bustest.Receive(t, "the result again", got, 1)[0], Permanent("r", nil))
	bustest.Eventually(t, "the message is terminated", func() bool { return unsettled(t, b) == 0 })
	if n := len(bustest.DeadLetters(t, b.conn)); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

// mutation: handling poison in receive (a slow PubAck each) or handing it to the handler
// makes this fail.
func TestPoisonNeitherReachesTheHandlerNorDelaysItsNeighbours(t *testing.T) {
	t.Parallel()
	metrics := NewMetrics(newRegistry())
	b := newTestConsumer(t, natstest.Start(t), func(c *config) { c.Options.Metrics = metrics })
	const n = 200
	run := func(attempt int) protocol.JobID { id := bustest.JobID(1); id.Attempt = int32(attempt); return id } // all in one group
	forged := run(n + 1)
	bustest.PublishRaw(t, b.conn, b.conn.Names.Result(forged), bustest.Succeeded, protocol.HeaderToken, b.keys.Sign(bustest.JobID(2)))
	bustest.PublishRaw(t, b.conn, b.conn.Names.Result(forged), bustest.Succeeded)
	partition := fmt.Sprintf("syncopate.results.%02d.", protocol.Partition("run-1"))
	bustest.PublishRaw(t, b.conn, partition+"run-1.fetch.-.0", bustest.Succeeded)
	bustest.PublishRaw(t, b.conn, partition+"run-1.Fetch", bustest.Succeeded)
	bustest.Answer(t, b.conn, run(n), "garbled")
	for i := 1; i < n; i++ {
		bustest.Answer(t, b.conn, run(i), bustest.Succeeded)
	}
	got, _ := collect(t, b)
	start := time.Now()
	rejected := 0
	for _, d := range bustest.Receive(t, "good results", got, n) {
		if d.Rejected != nil {
			rejected++
		}
		settle(t, d, nil)
	}
	if rejected != 1 || time.Since(start) > 10*time.Second {
		t.Errorf("%d rejected, took %s", rejected, time.Since(start))
	}
	bustest.Eventually(t, "all are settled", func() bool { return unsettled(t, b) == 0 })
	reasons := map[string]int{}
	for _, l := range bustest.DeadLetters(t, b.conn) {
		reasons[l.Header.Get(deadletters.HeaderReason)]++
	}
	if diff := cmp.Diff(map[string]int{"rejected": 2, "undecodable": 2}, reasons); diff != "" || len(got) != 0 {
		t.Errorf("dead letters (-want +got):\n%s%d more deliveries", diff, len(got))
	}
	if c := testutil.ToFloat64(metrics.deadLetters.WithLabelValues("rejected")); c != 2 {
		t.Errorf("dead_letters_total{rejected} = %v", c)
	}
	if c := testutil.ToFloat64(metrics.results.WithLabelValues(OutcomeRejected)); c != 4 {
		t.Errorf("results_total{rejected} = %v", c)
	}
}

// What a message that is no result weighs in memory must not depend on its headers: as a map they
// take many times what the stream counts. mutation: a delivery that keeps its headers, or a token
// that is a part of them, makes this fail.
func TestPoisonIsHeldWithoutItsHeaders(t *testing.T) {
	const n, most = 50, 4 << 10
	b := offline(t, bus.Config{}, Options{})
	l := newLedger(newReturns())
	read := func(i int) *Delivery {
		text := strings.Builder{}
		fmt.Fprintf(&text, "NATS/1.0\r\n%s: %s\r\n", protocol.HeaderToken, keys.Keyring{Current: bustest.ForeignKey()}.Sign(bustest.JobID(i)))
		for name := range 9_000 {
			fmt.Fprintf(&text, "%x:\r\n", 1<<16+name)
		}
		header, err := nats.DecodeHeadersMsg([]byte(text.String() + "\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		d, err := b.read(l, delivered(i+1, b.conn.Names.Result(bustest.JobID(i)), header, nil))
		if !errors.Is(err, ErrBadToken) {
			t.Fatal(err)
		}
		return d
	}
	held := make([]*Delivery, 0, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		held = append(held, read(i))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if per := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n; per > most {
		t.Errorf("%d bytes are held for a message without a body", per)
	}
	runtime.KeepAlive(held)
}

// mutation: readBack without a bound makes this fail.
func TestFewMessagesAreHeldWhole(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	got, _ := collect(t, b)
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	d := bustest.Receive(t, "result", got, 1)[0]
	for range maxWhole {
		b.whole <- struct{}{}
	}
	done := make(chan error, 1)
	go func() { done <- d.Settle(t.Context(), Permanent("r", nil)) }()
	bustest.Nothing(t, "one more is held whole", done, 100*time.Millisecond)
	<-b.whole
	if err := bustest.Receive(t, "it is settled", done, 1)[0]; err != nil || !d.Buried() {
		t.Errorf("settled with %v, buried %t", err, d.Buried())
	}
}

// Whoever may publish results keeps as many buriers busy as there are, each for as long as its
// letter takes to be stored. mutations: readBack that gives all places to whoever comes first; that
// takes what has a token for poison.
func TestPoisonKeepsNoResultOfAJobFromBeingPutAside(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	got, _ := collect(t, b)
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	d := bustest.Receive(t, "result", got, 1)[0]
	over := make(chan struct{})
	var held atomic.Int64
	var buriers sync.WaitGroup
	for range 2 * maxWhole {
		buriers.Go(func() {
			_ = b.readBack(context.WithoutCancel(t.Context()), d.key, proved(deadletters.ReasonRejected), func(*bus.Message) error {
				held.Add(1)
				<-over // its letter is not stored
				return nil
			})
		})
	}
	bustest.Eventually(t, "poison has its places", func() bool { return held.Load() >= maxPoison })
	if err := d.Settle(t.Context(), Permanent(deadletters.ReasonResultRejected, nil)); err != nil || !d.Buried() {
		t.Errorf("settled with %v, buried %t", err, d.Buried())
	}
	if n := held.Load(); n != maxPoison {
		t.Errorf("%d messages of others are held whole, want %d", n, maxPoison)
	}
	close(over)
	buriers.Wait()
}
