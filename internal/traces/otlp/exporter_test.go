// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/traces"
	"github.com/syncopate-dev/syncopate/internal/traces/otlptest"
)

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func newExporter(t *testing.T, url string, clk clock.Clock) *Exporter {
	t.Helper()
	target, err := NewTarget(url, environment(envHeaders, "authorization=Bearer%20abc, x-tenant = t1"))
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Target: target, Clock: clk, Log: logr.Discard(), Version: "v1", Replica: "pod-1", Registry: prometheus.NewRegistry()})
}

// runs starts an exporter and gives what ends it.
func runs(t *testing.T, e *Exporter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = e.Start(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func (e *Exporter) count(outcome string) int {
	return int(testutil.ToFloat64(e.spans.WithLabelValues(outcome)))
}

func some(n int) []traces.Span {
	spans := make([]traces.Span, n)
	for i := range spans {
		spans[i] = traces.Span{
			Trace: traces.TraceID{1}, ID: traces.SpanID{1, byte(i >> 8), byte(i)}, Name: "run", Kind: traces.Server, Start: time.Unix(1, 5), End: time.Unix(2, 0),
			Failed: true, Problem: "why", Attributes: []traces.Attribute{{Key: "a", Text: "b"}, {Key: "n", Number: 7}},
		}
	}
	return spans
}

// mutation: an operator that ends without a last try makes this fail.
func TestSpansReachACollector(t *testing.T) {
	c := otlptest.Start(t)
	e := newExporter(t, c.URL, clock.RealClock{})
	stop := runs(t, e)
	e.Send(some(1200))
	stop()
	spans := c.Spans()
	if len(spans) != 1200 || e.count("sent") != 1200 {
		t.Fatalf("%d came, %d counted as sent", len(spans), e.count("sent"))
	}
	s := spans[0]
	if s.GetName() != "run" || s.GetStartTimeUnixNano() != 1e9+5 || s.GetParentSpanId() != nil || s.GetStatus().GetMessage() != "why" ||
		s.GetAttributes()[0].GetValue().GetStringValue() != "b" || s.GetAttributes()[1].GetValue().GetIntValue() != 7 {
		t.Errorf("%v", s)
	}
	if h := c.Headers()[0]; h.Get("Authorization") != "Bearer abc" || h.Get("X-Tenant") != "t1" {
		t.Errorf("headers %v", h)
	}
}

// mutations: a queue without its bound in bytes, or in number, makes this fail.
func TestWhatFindsNoRoomIsDroppedAndCounted(t *testing.T) {
	e := newExporter(t, "http://192.0.2.1", clock.RealClock{})
	e.Send(some(maxSpans + 10))
	if e.count("full") != 10 {
		t.Errorf("%d dropped", e.count("full"))
	}
	e = newExporter(t, "http://192.0.2.1", clock.RealClock{})
	large := some(10)
	for i := range large {
		large[i].Problem = strings.Repeat("x", maxBytes/4)
	}
	e.Send(large)
	if e.count("full") != 7 {
		t.Errorf("%d large ones dropped", e.count("full"))
	}
	if e.queue.take(); e.queue.bytes != 0 {
		t.Errorf("%d bytes in an empty queue", e.queue.bytes)
	}
}

// until waits for a condition; each request gives a word.
func until(t *testing.T, c *otlptest.Collector, clk *clocktesting.FakeClock, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-c.Changed():
		case <-tick.C:
			if clk.HasWaiters() {
				clk.Step(longestWait)
			}
		case <-deadline:
			t.Fatal("it never was")
		}
	}
}

// mutation: a batch that is put back without a look at what found no room makes this fail.
func TestWhatFindsNoRoomAgainIsCounted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var e *Exporter
	c := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		e.Send(some(maxSpans)) // while the process ends
		cancel()
		<-r.Context().Done()
	}))
	defer c.Close()
	e = newExporter(t, c.URL, clock.RealClock{})
	e.Send(some(3))
	e.sendAll(ctx)
	if e.count("full") != 3 {
		t.Errorf("%d counted as dropped", e.count("full"))
	}
}

// mutations: no second try, tries for ever, or another try of what was refused, makes this fail.
func TestACollectorThatDoesNotTakeSpans(t *testing.T) {
	c, clk := otlptest.Start(t), clocktesting.NewFakeClock(time.Now())
	e := newExporter(t, c.URL, clk)
	runs(t, e)
	c.Next(otlptest.Answer{Code: http.StatusServiceUnavailable}, otlptest.Answer{Code: http.StatusTooManyRequests})
	e.Send(some(3))
	until(t, c, clk, func() bool { return e.count("sent") == 3 })
	c.Next(otlptest.Answer{Code: http.StatusBadRequest})
	e.Send(some(2))
	until(t, c, clk, func() bool { return e.count("refused") == 2 })
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 3)
	c.Next(otlptest.Answer{Code: http.StatusOK, Body: protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)})
	e.Send(some(4))
	until(t, c, clk, func() bool { return e.count("refused") == 5 && e.count("sent") == 4 })
	away := make([]otlptest.Answer, 50)
	for i := range away {
		away[i].Code = http.StatusBadGateway
	}
	c.Next(away...)
	e.Send(some(5))
	until(t, c, clk, func() bool { return e.count("unavailable") == 5 })
}

// mutation: Start without gather, or gather that does not wait, makes this fail.
func TestSpansOfASecondAreOneRequest(t *testing.T) {
	c, clk := otlptest.Start(t), clocktesting.NewFakeClock(time.Now())
	e := newExporter(t, c.URL, clk)
	for range 20 {
		e.Send(some(2))
	}
	runs(t, e)
	for i := range 20 {
		e.Send(some(2))
		if i == 10 {
			waiting(t, clk)
		}
	}
	if n := len(c.Headers()); n != 0 {
		t.Errorf("%d requests before the second was over", n)
	}
	until(t, c, clk, func() bool { return len(c.Spans()) == 80 })
	if n := len(c.Headers()); n != 1 {
		t.Errorf("%d requests", n)
	}
	e.Send(some(batchSpans)) // as many as are sent at once wait for no clock
	for deadline := time.After(10 * time.Second); len(c.Spans()) < 80+batchSpans; {
		select {
		case <-c.Changed():
		case <-deadline:
			t.Fatal("a whole request waits for the clock")
		}
	}
}

// waiting waits until somebody waits for the clock.
func waiting(t *testing.T, clk *clocktesting.FakeClock) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !clk.HasWaiters(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
}

func TestTargetsThatCannotBe(t *testing.T) {
	for _, endpoint := range []string{"", "collector:4318", "grpc://c:4317", "http://", "https://u:p@c:4318", "http://c/?a=b", "http://c/#x", "://"} {
		if _, err := NewTarget(endpoint, environment()); err == nil {
			t.Errorf("%q is taken", endpoint)
		}
	}
	for _, env := range [][]string{
		{envHeaders, "a"},
		{envHeaders, "=b"},
		{envHeaders, "a b=c"},
		{envHeaders, "a=%0d%0ab"},
		{envHeaders, "a=%zz"},
		{envHeaders, strings.Repeat("x", 9) + "=," + manyHeaders()},
		{envCA, "/nowhere"},
		{envCert, "/nowhere"},
		{envCert, "/nowhere", envKey, "/nowhere"},
	} {
		_, err := NewTarget("https://c:4318", environment(env...))
		if err == nil {
			t.Errorf("%v is taken", env)
		}
	}
	for endpoint, want := range map[string]string{"http://c:4318": "http://c:4318/v1/traces", "https://c/": "https://c/v1/traces", "https://c/api/otlp": "https://c/api/otlp"} {
		target, err := NewTarget(endpoint, environment())
		if err != nil || target.url != want {
			t.Errorf("%s: %v %v", endpoint, target, err)
		}
	}
}

func manyHeaders() string {
	names := make([]string, 0, maxHeaders)
	for i := range maxHeaders {
		names = append(names, "h"+strings.Repeat("x", i)+"=1")
	}
	return strings.Join(names, ",")
}

// mutation: reading beyond the end of a message that is cut makes this fail.
func TestAnswersThatSayNothing(t *testing.T) {
	for _, answer := range [][]byte{nil, {0xff}, {0x0a}, {0x0a, 0x7f, 1}, []byte("hello"), {0x0a, 2, 0x08, 0xff}} {
		if n, why := rejected(answer); n != 0 || why != "" {
			t.Errorf("%x: %d %q", answer, n, why)
		}
	}
}
