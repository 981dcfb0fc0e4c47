// SPDX-License-Identifier: Apache-2.0

// Package otlptest is a collector of traces for tests, in process.
package otlptest

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Collector takes spans over HTTP, as protobuf or as JSON.
type Collector struct {
	URL string

	mu      sync.Mutex
	spans   []*tracepb.Span
	headers []http.Header
	answers []Answer
	changed chan struct{}
}

// Answer is what the collector says instead of taking spans.
type Answer struct {
	Code int
	Body []byte
}

// Start starts a collector, which ends with the test.
func Start(tb testing.TB) *Collector {
	tb.Helper()
	c := &Collector{changed: make(chan struct{}, 1)}
	s := httptest.NewServer(c)
	tb.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

// Next has the next requests answered like this, in turn.
func (c *Collector) Next(answers ...Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, answers...)
}

// ServeHTTP takes spans.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	data := &tracepb.TracesData{}
	if err == nil {
		err = decode(r.Header.Get("Content-Type"), body, data)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprintf("not spans: %v", err), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, r.Header)
	defer func() {
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}()
	if len(c.answers) > 0 {
		a := c.answers[0]
		c.answers = c.answers[1:]
		w.WriteHeader(a.Code)
		_, _ = w.Write(a.Body)
		if a.Code != http.StatusOK {
			return
		}
	}
	for _, rs := range data.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			c.spans = append(c.spans, ss.GetSpans()...)
		}
	}
}

// decode reads spans in one of OTLP's two forms.
func decode(form string, body []byte, into *tracepb.TracesData) error {
	switch form {
	case "application/x-protobuf":
		return proto.Unmarshal(body, into)
	case "application/json":
		return protojson.Unmarshal(hexID.ReplaceAllFunc(body, func(found []byte) []byte {
			part := hexID.FindSubmatch(found)
			id, _ := hex.DecodeString(string(part[2])) // it has such digits only
			return fmt.Appendf(nil, "%s%q", part[1], base64.StdEncoding.EncodeToString(id))
		}), into)
	}
	return fmt.Errorf("content type %q", form)
}

// hexID is an id in OTLP's JSON, which has it as hexadecimal digits where other bytes are base64:
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
var hexID = regexp.MustCompile(`("(?:traceId|spanId|parentSpanId)": ?)"((?:[0-9a-f]{2})*)"`)

// Spans are those that came so far.
func (c *Collector) Spans() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*tracepb.Span(nil), c.spans...)
}

// Headers are those of the requests so far.
func (c *Collector) Headers() []http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]http.Header(nil), c.headers...)
}

// Changed has a word after a request.
func (c *Collector) Changed() <-chan struct{} { return c.changed }
