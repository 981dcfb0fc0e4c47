// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/traces"
)

const (
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
	// patience is how long a batch is tried that the collector cannot take.
	patience = time.Minute
	// The waits between tries.
	firstWait, longestWait = time.Second, 15 * time.Second
	// gatherTime is how long the first span of a request waits for others. A request costs as much
	// as dozens of spans.
	gatherTime = time.Second
	// lastSend bounds what is sent when the process ends.
	lastSend = 3 * time.Second
	// maxAnswer is how much of an answer is read.
	maxAnswer = 64 << 10
)

// Options are what an Exporter needs.
type Options struct {
	Target  *Target
	Clock   clock.Clock
	Log     logr.Logger
	Version string // of the operator
	Replica string
	// Registry gets the metrics.
	Registry prometheus.Registerer
}

// Exporter sends spans.
type Exporter struct {
	Options
	queue    *queue
	resource *resourcepb.Resource
	spans    *prometheus.CounterVec
	troubled bool // the last request failed, and that was logged
}

// New makes an exporter, which sends while it runs.
func New(o Options) *Exporter {
	e := &Exporter{
		Options: o, queue: newQueue(),
		resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{
			text("service.name", "syncopate"), text("service.version", o.Version), text("service.instance.id", o.Replica),
		}},
		spans: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_trace_spans_total",
			Help: "Spans of traces, by outcome: sent; full, because too many waited; unavailable, because the collector did not answer for a minute; refused, by the collector.",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{"sent", "full", "unavailable", "refused"} {
		e.spans.WithLabelValues(outcome)
	}
	o.Registry.MustRegister(e.spans)
	return e
}

// Send has spans sent, as far as there is room for them. It does not wait.
func (e *Exporter) Send(spans []traces.Span) {
	if len(spans) > 0 {
		e.put(spans)
	}
}

func (e *Exporter) put(spans []traces.Span) {
	if dropped := e.queue.put(spans); dropped > 0 {
		e.spans.WithLabelValues("full").Add(float64(dropped))
	}
}

// Start sends until ctx ends, and then what is left, for a short time.
func (e *Exporter) Start(ctx context.Context) error {
	for {
		select {
		case <-e.queue.ready:
			e.gather(ctx)
			e.sendAll(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSend)
			defer cancel()
			e.sendAll(last)
			for batch := e.queue.take(); batch != nil; batch = e.queue.take() {
				e.lost("unavailable", batch, errEnds)
			}
			return nil
		}
	}
}

// NeedLeaderElection says that every replica sends its spans.
func (e *Exporter) NeedLeaderElection() bool { return false }

// gather waits until there are spans for a whole request, or for a second.
func (e *Exporter) gather(ctx context.Context) {
	enough := e.Clock.NewTimer(gatherTime)
	defer enough.Stop()
	for !e.queue.full() {
		select {
		case <-e.queue.ready:
		case <-enough.C():
			return
		case <-ctx.Done():
			return
		}
	}
}

func (e *Exporter) sendAll(ctx context.Context) {
	for ctx.Err() == nil {
		batch := e.queue.take()
		if batch == nil {
			return
		}
		if again := e.sendBatch(ctx, batch); again {
			e.put(batch) // the process ends, and tries once more
			return
		}
	}
}

// sendBatch sends a batch, in several tries if need be. again says that ctx ended before it was
// decided what becomes of it.
func (e *Exporter) sendBatch(ctx context.Context, batch []traces.Span) (again bool) {
	body, err := encode(e.resource, e.Version, batch)
	if err != nil {
		e.lost("refused", batch, err)
		return false
	}
	begun, wait := e.Clock.Now(), firstWait
	for {
		lost, err := e.post(ctx, body)
		switch {
		case err == nil:
			e.sent(batch, lost)
			return false
		case errors.Is(err, errRefused):
			e.lost("refused", batch, err)
			return false
		case ctx.Err() != nil:
			return true
		case e.Clock.Since(begun) >= patience:
			e.lost("unavailable", batch, err)
			return false
		}
		e.trouble(err)
		select {
		case <-e.Clock.After(wait):
		case <-ctx.Done():
			return true
		}
		wait = min(2*wait, longestWait)
	}
}

func (e *Exporter) sent(batch []traces.Span, lost int) {
	lost = min(lost, len(batch))
	e.spans.WithLabelValues("sent").Add(float64(len(batch) - lost))
	e.spans.WithLabelValues("refused").Add(float64(lost))
	if e.troubled {
		e.troubled = false
		e.Log.Info("The collector of traces takes spans again")
	}
}

func (e *Exporter) lost(outcome string, batch []traces.Span, err error) {
	e.spans.WithLabelValues(outcome).Add(float64(len(batch)))
	e.trouble(err)
}

// trouble logs the first error after what worked.
func (e *Exporter) trouble(err error) {
	if !e.troubled {
		e.troubled = true
		e.Log.Info("Spans of traces cannot be sent; runs go on without", "cause", err.Error())
	}
}

// errEnds says that there was no time left.
var errEnds = errors.New("the operator ends before the collector answers")

// errRefused is wrapped by what trying again does not help.
var errRefused = errors.New("the collector refuses the spans")

// post sends one request, and says how many spans of it the collector did not take. An error that
// does not wrap errRefused may pass.
func (e *Exporter) post(ctx context.Context, body []byte) (lost int, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.Target.url, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errRefused, err)
	}
	req.Header = e.Target.headers.Clone()
	req.Header.Set("Content-Type", "application/x-protobuf")
	answer, err := e.Target.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("send spans: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case answer.StatusCode == http.StatusOK && err == nil:
		lost, why := rejected(text)
		if lost > 0 {
			e.trouble(fmt.Errorf("%w: %d of them: %.200q", errRefused, lost, why))
		}
		return lost, nil
	case answer.StatusCode == http.StatusOK:
		return 0, fmt.Errorf("read the collector's answer: %w", err)
	case mayPass(answer.StatusCode):
		return 0, fmt.Errorf("the collector answers %s", answer.Status)
	}
	return 0, fmt.Errorf("%w: it answers %s", errRefused, answer.Status)
}

// mayPass says whether the protocol has a client try again.
func mayPass(code int) bool {
	switch code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
