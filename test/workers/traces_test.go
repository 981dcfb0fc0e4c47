// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/traces/otlptest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// aTrace and aParent are where jobs of these tests are.
const aTrace, aParent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

func TestThePythonWorkerSendsSpans(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	sendsSpans(t, filepath.Join(examples, "worker-python"), "python3", "-B", "worker.py", DefaultTopic)
}

func TestTheNodeWorkerSendsSpans(t *testing.T) {
	t.Parallel()
	sendsSpans(t, installNode(t), "node", "worker.mjs", DefaultTopic)
}

// sendsSpans gives a worker jobs that succeed and fail, one of a trace that is not sampled and one
// of none, and ends it: the first two have a span each, below the one that the job names.
//
// mutation: a span without its parent, and one of a trace that is not sampled, make it fail.
func sendsSpans(t *testing.T, dir string, args ...string) {
	t.Helper()
	collector := otlptest.Start(t)
	o := operateAt(t, Config{URL: start(t).URL(), AckWait: time.Hour}) // a second delivery would have a span, too
	ids := map[string]protocol.JobID{}
	for name, work := range map[string]struct {
		place string
		input input
	}{
		"good":    {"00-" + aTrace + "-" + aParent + "-01", input{Do: "succeed"}},
		"bad":     {"00-" + aTrace + "-" + aParent + "-01", input{Do: "final", Code: "Broken"}},
		"unasked": {"00-" + aTrace + "-" + aParent + "-00", input{Do: "succeed"}},
		"none":    {"", input{Do: "succeed"}},
	} {
		ids[name] = newJob(name)
		if _, err := o.forge(t.Context(), ids[name], work.input.bytes(), func(m *nats.Msg) {
			if work.place != "" {
				m.Header.Set(protocol.HeaderTraceParent, work.place)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	p := runs(t, dir, []string{"NATS_URL=" + o.config.URL, "OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL}, args...)
	for name, id := range ids {
		if err := o.await(t.Context(), name+" is answered", func() (bool, error) {
			list, err := o.stored(t.Context(), id)
			return slices.ContainsFunc(list, func(r protocol.Result) bool { return r.Status != protocol.StatusStarted }), err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Terminate(t.Context()); err != nil {
		t.Error(err)
	}
	want := []string{
		fmt.Sprintf("%s below %s in %s: process %s, SPAN_KIND_CONSUMER, STATUS_CODE_ERROR Broken", ids["bad"], aParent, aTrace, DefaultTopic),
		fmt.Sprintf("%s below %s in %s: process %s, SPAN_KIND_CONSUMER, STATUS_CODE_UNSET ", ids["good"], aParent, aTrace, DefaultTopic),
	}
	got := spansOf(collector)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// twoSpans sends a span, and another one when the first one is sent or lost.
const twoSpans = `
import traces

traces.start()
for name in "first", "second":
    with traces.span(name, "00-` + aTrace + "-" + aParent + `-01", {}):
        pass
    traces.flush(30)
`

// What stands where a collector should be may answer with anything.
//
// mutation: a sender that only expects errors of the network ends with the first answer.
func TestThePythonWorkerSendsSpansAlsoAfterAnAnswerThatIsNone(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	var calls atomic.Int32
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) > 1 {
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = conn.Write([]byte("rubbish\r\n\r\n"))
		_ = conn.Close()
	}))
	t.Cleanup(collector.Close)
	p := runs(t, filepath.Join(examples, "worker-python"), []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL}, "python3", "-B", "-c", twoSpans)
	o := operateAt(t, Config{URL: start(t).URL()})
	if err := o.await(t.Context(), "the second span comes", func() (bool, error) { return calls.Load() == 2, nil }); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(p.Output(), "1 spans are lost") {
		t.Error("nothing is said of the first one")
	}
}

// spansOf are the spans that a collector has, a line each.
func spansOf(c *otlptest.Collector) (lines []string) {
	for _, s := range c.Spans() {
		job := ""
		for _, a := range s.GetAttributes() {
			if a.GetKey() == "messaging.message.id" {
				job = a.GetValue().GetStringValue()
			}
		}
		line := fmt.Sprintf("%s below %s in %s: %s, %s, %s %s", job, hex.EncodeToString(s.GetParentSpanId()), hex.EncodeToString(s.GetTraceId()),
			s.GetName(), s.GetKind(), s.GetStatus().GetCode(), s.GetStatus().GetMessage())
		if s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			line += ", ends before it begins"
		}
		lines = append(lines, line)
	}
	return lines
}
