// SPDX-License-Identifier: Apache-2.0

package bustest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Succeeded is a result.
const Succeeded = `{"status":"Succeeded","output":{"ok":true}}`

// Ring is a new ring of the key that Answer signs with.
func Ring() keys.Keyring {
	return keys.Keyring{Current: keys.Key{ID: "k1", Secret: []byte("0123456789abcdef0123456789abcdef")}}
}

// Keys are the keys of Ring, for ever.
func Keys(t testing.TB) *keys.Live {
	t.Helper()
	k, err := keys.New(Ring(), nil, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Log is the test's log if it is verbose.
func Log(t testing.TB) logr.Logger {
	if testing.Verbose() {
		return testr.NewWithInterface(t, testr.Options{})
	}
	return logr.Discard()
}

// Connect connects to a server, and makes the streams. The connection is closed when the test ends.
func Connect(t testing.TB, config bus.Config) *bus.Conn {
	t.Helper()
	c := Dial(t, config)
	if err := c.RepairStreams(t.Context()); err != nil {
		t.Fatalf("create streams: %v", err)
	}
	return c
}

// Dial connects to a server. The connection is closed when the test ends.
func Dial(t testing.TB, config bus.Config) *bus.Conn {
	t.Helper()
	if config.Log.IsZero() {
		config.Log = Log(t)
	}
	c, err := bus.Connect(t.Context(), config)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	Eventually(t, "the bus is connected", c.Connected)
	return c
}

// Offline makes a connection to no server. It is closed when the test ends.
func Offline(t testing.TB, config bus.Config) *bus.Conn {
	t.Helper()
	config.URL = "nats://127.0.0.1:1"
	c, err := bus.Connect(t.Context(), config)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	return c
}

// JobID is the first attempt of a step of run n.
func JobID(n int) protocol.JobID {
	return protocol.JobID{RunUID: fmt.Sprintf("run-%d", n), Step: "fetch", Item: protocol.NoItem, Attempt: 1}
}

// Result is a result as a worker publishes it.
func Result(names protocol.Names, key keys.Keyring, id protocol.JobID, body string) *nats.Msg {
	token := key.Sign(id)
	m := nats.NewMsg(names.Result(id))
	m.Data = []byte(body)
	m.Header.Set(protocol.HeaderToken, token)
	m.Header.Set(protocol.HeaderMsgID, protocol.ResultMsgID(id, token))
	return m
}

// Answer publishes a result as a worker does.
func Answer(t testing.TB, c *bus.Conn, id protocol.JobID, body string) {
	t.Helper()
	if _, err := c.JetStream.PublishMsg(t.Context(), Result(c.Names, Ring(), id, body)); err != nil {
		t.Fatalf("answer %s: %v", id, err)
	}
}

// PublishRaw publishes a message with the given names and values of headers.
func PublishRaw(t testing.TB, c *bus.Conn, subject, body string, header ...string) {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte(body)
	for i := 0; i < len(header); i += 2 {
		m.Header.Set(header[i], header[i+1])
	}
	if _, err := c.JetStream.PublishMsg(t.Context(), m); err != nil {
		t.Fatalf("publish to %s: %v", subject, err)
	}
}

// Take binds to the topic's consumer like a worker and takes one job, unacknowledged.
func Take(t testing.TB, c *bus.Conn, topic string) jetstream.Msg {
	t.Helper()
	consumer, err := c.JetStream.Consumer(t.Context(), c.Names.JobsStream(), protocol.Durable(topic))
	if err != nil {
		t.Fatalf("bind to topic %s: %v", topic, err)
	}
	var m jetstream.Msg
	Eventually(t, "the consumer has a leader", func() bool {
		m, err = consumer.Next(jetstream.FetchMaxWait(Patience))
		return !errors.Is(err, nats.ErrNoResponders)
	})
	if err != nil {
		t.Fatalf("next job of %s: %v", topic, err)
	}
	return m
}
