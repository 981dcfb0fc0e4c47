// SPDX-License-Identifier: Apache-2.0

package natstest

import "go.uber.org/goleak"

// Leaks are goroutines of nats-server and nats.go that are not ours to end, for goleak: where a
// server is shut down while it makes a stream, the store of that stream keeps its flusher, and that
// the clock of the store. Where nats.go's object store has written all before the goroutine that
// looks for a lost connection reads its channel, that goroutine reads none and waits for ever.
func Leaks() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"),
	}
}
