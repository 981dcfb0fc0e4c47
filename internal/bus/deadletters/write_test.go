package bus

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

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

func TestADeadLetterKeepsBytesAndHeaders(t *testing.T) {
	t.Parallel()
	b := newBus(t, natstest.Start(t))
	got, _ := collect(t, b)
	id := jobID(1)
	const body = "{\"status\":\"Succeeded\",\"output\":\"\xc3\xa4\"}"
	publishRaw(t, b, b.names.Result(id), body, protocol.HeaderToken, b.config.Keys.Sign(id), "X-Own", "kept",
		// mutation: headers copied as they are make the letter unpublishable here, for ever
		jetstream.MsgIDHeader, "own-id", jetstream.ExpectedStreamHeader, b.names.ResultsStream())
	d := receive(t, "result", got, 1)[0]
	settle(t, d, fmt.Errorf("apply: %w", Permanent("bad_output", errors.New("line 1\nline 2"))))

	letters := deadLetters(t, b)
	if len(letters) != 1 {
		t.Fatalf("%d dead letters", len(letters))
	}
	l := letters[0]
	if string(l.Data) != body || l.Subject != "syncopate.deadletters.bad_output.run-1" {
		t.Errorf("dead letter %s: %s", l.Subject, l.Data)
	}
	headers := map[string]string{}
	for name := range l.Header {
		headers[name] = l.Header.Get(name)
	}
	delete(headers, jetstream.MsgIDHeader)
	delete(headers, jetstream.ExpectedStreamHeader) // of the letter itself
	want := map[string]string{
		"X-Own": "kept", protocol.HeaderToken: b.config.Keys.Sign(id),
		"Syncopate-Original-Nats-Msg-Id": "own-id", "Syncopate-Original-Nats-Expected-Stream": "SYNCOPATE_RESULTS",
		HeaderDeadReason: "bad_output", HeaderDeadError: "apply: bad_output: line 1 line 2", HeaderDeadSubject: b.names.Result(id),
		HeaderDeadStream: "SYNCOPATE_RESULTS", HeaderDeadSequence: "1", HeaderDeadDeliveries: "1",
	}
	if diff := cmp.Diff(want, headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	eventually(t, "the message is terminated", func() bool { return unsettled(t, b) == 0 })
}

// mutation: a Msg-Id of its own for each try makes this fail.
func TestTheSameMessageIsOneDeadLetter(t *testing.T) {
	t.Parallel()
	b := newBus(t, natstest.Start(t))
	got, _ := collect(t, b)
	answer(t, b, jobID(1), succeeded)
	d := receive(t, "result", got, 1)[0]
	for range 2 { // the process died between the PubAck and the Term
		if err := d.storeLetter(t.Context(), "r", errors.New("x")); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, d, nil)
	if n := len(deadLetters(t, b)); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

// The body of a result that waits is not held, so it is read from the stream for its dead letter. What somebody took out of there, or
// another message in its place, is no dead letter. mutation: readBack without a look at the time, or that makes up a body, makes this fail.
func TestAResultThatIsGoneFromTheStreamIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	b := newBus(t, natstest.Start(t))
	got, _ := collect(t, b)
	answer(t, b, jobID(1), succeeded)
	answer(t, b, jobID(2), succeeded)
	for _, d := range receive(t, "results", got, 2) {
		if d.ID == jobID(1) {
			s, err := b.js.Stream(t.Context(), b.names.ResultsStream())
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
	if n := len(deadLetters(t, b)); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// mutation: Term before or without the PubAck makes this fail.
func TestADeadLetterThatCannotBeStoredLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBus(t, natstest.Start(t))
	stream := streamInfo(t, b, b.names.DeadLettersStream()).Config
	setMaxSize := func(n int32) {
		stream.MaxMsgSize = n
		if _, err := b.js.UpdateStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	setMaxSize(10)
	got, _ := collect(t, b)
	answer(t, b, jobID(1), succeeded)
	settle(t, receive(t, "result", got, 1)[0], Permanent("r", nil))
	eventually(t, "the result is unsettled still", func() bool { return unsettled(t, b) == 1 })
	setMaxSize(-1)
	settle(t, receive(t, "the result again", got, 1)[0], Permanent("r", nil))
	eventually(t, "the message is terminated", func() bool { return unsettled(t, b) == 0 })
	if n := len(deadLetters(t, b)); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

func TestADeadLetterThatWouldBeTooLargeLeavesOutTheHeaders(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) { o.MaxPayload = 8 << 10 })
	b := newBus(t, s)
	got, _ := collect(t, b)
	id := jobID(1)
	body := `{"status":"Succeeded","output":"` + string(bytes.Repeat([]byte("x"), 7<<10)) + `"}`
	publishRaw(t, b, b.names.Result(id), body, protocol.HeaderToken, b.config.Keys.Sign(id), "X-Own", string(bytes.Repeat([]byte("y"), 700)))
	settle(t, receive(t, "result", got, 1)[0], Permanent("r", nil))
	letters := deadLetters(t, b)
	if len(letters) != 1 || string(letters[0].Data) != body || letters[0].Header.Get(HeaderDeadTruncated) != "headers" {
		t.Errorf("dead letters: %+v", letters)
	}
}

// mutation: handling poison in receive (a slow PubAck each) or handing it to the handler makes this fail.
func TestPoisonNeitherReachesTheHandlerNorDelaysItsNeighbours(t *testing.T) {
	t.Parallel()
	metrics := NewMetrics(newRegistry())
	b := newBus(t, natstest.Start(t), func(c *Config) { c.Metrics = metrics })
	const n = 200
	run := func(attempt int) protocol.JobID { id := jobID(1); id.Attempt = int32(attempt); return id } // all in one group
	forged := run(n + 1)
	publishRaw(t, b, b.names.Result(forged), succeeded, protocol.HeaderToken, b.config.Keys.Sign(jobID(2)))
	publishRaw(t, b, b.names.Result(forged), succeeded)
	partition := fmt.Sprintf("syncopate.results.%02d.", protocol.Partition("run-1"))
	publishRaw(t, b, partition+"run-1.fetch.-.0", succeeded)
	publishRaw(t, b, partition+"run-1.Fetch", succeeded)
	answer(t, b, run(n), "garbled")
	for i := 1; i < n; i++ {
		answer(t, b, run(i), succeeded)
	}
	got, _ := collect(t, b)
	start := time.Now()
	rejected := 0
	for _, d := range receive(t, "good results", got, n) {
		if d.Rejected != nil {
			rejected++
		}
		settle(t, d, nil)
	}
	if rejected != 1 || time.Since(start) > 10*time.Second {
		t.Errorf("%d rejected, took %s", rejected, time.Since(start))
	}
	eventually(t, "all are settled", func() bool { return unsettled(t, b) == 0 })
	reasons := map[string]int{}
	for _, l := range deadLetters(t, b) {
		reasons[l.Header.Get(HeaderDeadReason)]++
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
