// SPDX-License-Identifier: Apache-2.0

package natstest

import "go.uber.org/goleak"

// Leaks are goroutines of nats-server that are not ours to end, for goleak: where a server is shut
// down while it makes a stream, the store of that stream keeps its flusher, and that the clock of
// the store.
func Leaks() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	}
}
