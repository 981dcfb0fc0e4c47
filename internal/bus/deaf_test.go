// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

// deaf is a dialer. Its first connection takes nothing of what is written while it is deaf.
type deaf struct {
	is    atomic.Bool
	hears func(*deaf, []byte) bool
	dials atomic.Int32
}

func (d *deaf) Dial(network, address string) (net.Conn, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(context.Background(), network, address)
	if err != nil || d.dials.Add(1) > 1 {
		return c, err
	}
	return deafConn{c, d}, nil
}

type deafConn struct {
	net.Conn
	of *deaf
}

func (c deafConn) Write(b []byte) (int, error) {
	if c.of.is.Load() && !c.of.hears(c.of, b) {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(b)
}

// connectBy connects to a server by a dialer. The library sends no pings of its own.
func connectBy(t *testing.T, d *deaf) *bus.Conn {
	t.Helper()
	c, err := bus.ConnectWith(bus.Config{URL: natstest.Start(t).URL(), Log: bustest.Log(t)}, nats.SetCustomDialer(d), nats.PingInterval(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	bustest.Eventually(t, "the bus is connected", c.Connected)
	return c
}

// Of one write to a full socket nothing is taken within its time-out, and then the server goes on.
// The library would take each later answer for that of the ping before.
//
// mutation: a connection that outlives a write that takes too long.
func TestAPingThatWasNotSentIsNoOutageForGood(t *testing.T) {
	t.Parallel()
	d := &deaf{hears: func(d *deaf, b []byte) bool {
		return !bytes.HasPrefix(b, []byte("PING")) || !d.is.CompareAndSwap(true, false)
	}}
	c := connectBy(t, d)
	before := c.Generation()
	d.is.Store(true)
	watch(t, &broker{Conn: c})
	bustest.Eventually(t, "a ping is thrown away", func() bool { return !d.is.Load() })
	bustest.Eventually(t, "NATS answers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return c.Generation() > before && c.Outage().IsZero() && c.NATS.FlushWithContext(ctx) == nil
	})
}

// mutation: a connection that outlives a write that takes too long: each sender waits in turn, and
// all that shared the buffer is lost.
func TestAWriteOfALargeMessageThatFailsEndsTheConnection(t *testing.T) {
	t.Parallel()
	var waited atomic.Int32
	d := &deaf{hears: func(_ *deaf, b []byte) bool {
		if len(b) < 32<<10 { // sent by another goroutine of the library
			return true
		}
		waited.Add(1)
		return false
	}}
	c := connectBy(t, d)
	before := c.Generation()
	d.is.Store(true)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { _ = c.NATS.Publish("large", make([]byte, 64<<10)) })
	}
	all.Wait()
	if n := waited.Load(); n != 1 {
		t.Errorf("%d senders wait, one after the other", n)
	}
	bustest.Eventually(t, "the client has another connection", func() bool { return c.Generation() > before })
}
