// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/syncopate-dev/syncopate/internal/traces"
)

// scope names what made the spans.
const scope = "github.com/syncopate-dev/syncopate"

// encode makes the body of a request. TracesData has the same form on the wire as the request of
// the collector's service, whose package would bring gRPC.
func encode(resource *resourcepb.Resource, version string, spans []traces.Span) ([]byte, error) {
	list := make([]*tracepb.Span, 0, len(spans))
	for i := range spans {
		list = append(list, span(&spans[i]))
	}
	return proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   resource,
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: &commonpb.InstrumentationScope{Name: scope, Version: version}, Spans: list}},
	}}})
}

func span(s *traces.Span) *tracepb.Span {
	to := &tracepb.Span{
		TraceId: s.Trace[:], SpanId: s.ID[:], Name: s.Name, Kind: tracepb.Span_SpanKind(s.Kind),
		StartTimeUnixNano: nanos(s.Start), EndTimeUnixNano: nanos(s.End), Flags: 1, Status: &tracepb.Status{},
	}
	if s.Parent != (traces.SpanID{}) {
		to.ParentSpanId = s.Parent[:]
	}
	if s.Failed {
		to.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: s.Problem}
	}
	for _, a := range s.Attributes {
		to.Attributes = append(to.Attributes, attribute(a))
	}
	return to
}

func nanos(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

func attribute(a traces.Attribute) *commonpb.KeyValue {
	v := &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: a.Number}}
	if a.Text != "" {
		v.Value = &commonpb.AnyValue_StringValue{StringValue: a.Text}
	}
	return &commonpb.KeyValue{Key: a.Key, Value: v}
}

func text(key, value string) *commonpb.KeyValue {
	return attribute(traces.Attribute{Key: key, Text: value})
}

// size is about how much memory a span takes in the queue.
func size(s *traces.Span) int {
	n := 200 + len(s.Name) + len(s.Problem)
	for _, a := range s.Attributes {
		n += 48 + len(a.Key) + len(a.Text)
	}
	return n
}

// rejected reads how many spans a collector says it did not take, and why, of an answer to a
// request that it took. An answer that cannot be read says nothing.
func rejected(answer []byte) (n int, why string) {
	partial := field(answer, 1)
	if v, ok := number(partial, 1); ok && v < 1<<31 {
		n = int(v)
	}
	return n, string(field(partial, 2))
}

// field is the last value of a field of bytes of a message.
func field(message []byte, want protowire.Number) (value []byte) {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if num == want && typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message)
		}
		if n = protowire.ConsumeFieldValue(num, typ, message); n < 0 {
			return nil
		}
		message = message[n:]
	}
	return value
}

// number is the first value of a field of integers of a message.
func number(message []byte, want protowire.Number) (uint64, bool) {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0, false
		}
		message = message[n:]
		if num == want && typ == protowire.VarintType {
			v, n := protowire.ConsumeVarint(message)
			return v, n >= 0
		}
		if n = protowire.ConsumeFieldValue(num, typ, message); n < 0 {
			return 0, false
		}
		message = message[n:]
	}
	return 0, false
}
