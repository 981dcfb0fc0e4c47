// SPDX-License-Identifier: Apache-2.0

// Package natsdial makes connections to NATS that end with the first write that fails.
//
// The library goes on with one of which a write took nothing within its time-out. What was to be
// written is gone then: a ping, so that each later answer is taken for that of another one, or the
// messages and subscriptions of whoever shared the buffer.
package natsdial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// WriteTimeout bounds a write to the socket. The library holds the lock of the connection
// meanwhile, so nobody gets to send, and no ping finds out that the server hangs.
const WriteTimeout = 3 * time.Second

// EndOnFailedWrite is the last option of a connection: it reads what the others have set. TLS and
// websockets are above what it wraps. A dialer that makes them itself is left as it is.
func EndOnFailedWrite(o *nats.Options) error {
	if o.CustomDialer == nil {
		o.CustomDialer = newHosts(o)
		o.SkipHostLookup = true // the addresses of a name share the time-out, so the dialer has to know them all
	}
	if own, ok := o.CustomDialer.(interface{ SkipTLSHandshake() bool }); !ok || !own.SkipTLSHandshake() {
		o.CustomDialer = ending{o.CustomDialer}
	}
	return nil
}

// ending is a dialer of connections that end with a failed write.
type ending struct{ nats.CustomDialer }

// Dial connects.
func (d ending) Dial(network, address string) (net.Conn, error) {
	c, err := d.CustomDialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// conn is a connection that ends with a failed write.
type conn struct {
	net.Conn
	failed atomic.Pointer[error] // the write
}

// Write writes, or ends the connection.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		c.failed.CompareAndSwap(nil, &err)
		_ = c.Conn.Close()
	}
	return n, err
}

// Read reads. Its error is why the library makes the connection anew, and what people are told.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if failed := c.failed.Load(); err != nil && failed != nil {
		err = *failed
	}
	return n, err
}

// hosts dials a server as the library does without a dialer: each address of its name, within one
// time-out.
type hosts struct {
	net.Dialer
	lookup func(ctx context.Context, host string) ([]string, error)
	inTurn bool // in the order of the name server
}

func newHosts(o *nats.Options) *hosts {
	d := &hosts{Dialer: net.Dialer{Timeout: o.Timeout}, lookup: net.DefaultResolver.LookupHost, inTurn: o.NoRandomize}
	if o.Dialer != nil {
		d.Dialer = *o.Dialer
	}
	if o.AllowMultipathTCP != nil {
		d.SetMultipathTCP(*o.AllowMultipathTCP)
	}
	if o.SkipHostLookup {
		d.lookup = nil
	}
	return d
}

// Dial connects to one of the addresses of a host.
func (d *hosts) Dial(network, address string) (net.Conn, error) {
	all, err := d.addresses(address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", network, err)
	}
	one := d.Dialer
	one.Timeout /= time.Duration(len(all))
	var c net.Conn
	for _, a := range all {
		if c, err = one.Dial(network, a); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// addresses are at least one, without an error.
func (d *hosts) addresses(address string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || d.lookup == nil || net.ParseIP(host) != nil {
		return []string{address}, nil
	}
	ctx := context.Background() //nolint:forbidigo // the library gives none
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	found, err := d.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	all := make([]string, len(found))
	for i, a := range found {
		all[i] = net.JoinHostPort(a, port)
	}
	if len(all) == 0 {
		return []string{address}, nil
	}
	if !d.inTurn {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	return all, nil
}
