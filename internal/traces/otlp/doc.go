// SPDX-License-Identifier: Apache-2.0

// Package otlp sends spans to a collector, as OpenTelemetry's protocol over HTTP with protobuf.
//
// Nobody waits for it: spans go into a queue that is bounded in number and in bytes, and what finds
// no room is dropped and counted. One goroutine sends, what came within a second
// in one request. What the collector cannot take now is tried
// again for a minute; what it refuses is not.
package otlp
