// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// deaf is a dialer. Its first connection takes nothing of what is written while it is deaf.
type deaf struct {
	is    atomic.Bool
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
	if c.of.is.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(b)
}

// mutations: Connect without EndOnFailedWrite, or without a time-out of writes.
func TestAWorkerConnectsAnewWhenAWriteFails(t *testing.T) {
	o := newOperator(t)
	d := &deaf{}
	nc, err := Connect(o.server.ClientURL(), nats.SetCustomDialer(d), nats.PingInterval(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	o.eventually("it is connected", nc.IsConnected)
	if limit := nc.Opts.FlusherTimeout; limit > 5*time.Second {
		t.Errorf("a write may take %s", limit)
	}
	d.is.Store(true)
	_ = nc.Publish("large", make([]byte, 48<<10))
	o.eventually("it has another connection", func() bool { return nc.Stats().Reconnects > 0 })
}
