// SPDX-License-Identifier: Apache-2.0

// Package natsdial makes connections to NATS that end with the first write that takes too long.
//
// The library goes on with one of which a write took nothing within its time-out. What was to be
// written is gone then: a ping, so that each later answer is taken for that of another one, or the
// messages and subscriptions of whoever shared the buffer.
package natsdial

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

// WriteTimeout bounds the write of each 64 KiB to the socket. The library holds the lock of the
// connection meanwhile, so nobody gets to send, and no ping finds out that the server hangs.
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

// ending is a dialer of connections that end with a write that takes too long.
type ending struct{ nats.CustomDialer }

// Dial connects.
func (d ending) Dial(network, address string) (net.Conn, error) {
	c, err := d.CustomDialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// hosts dials a server as the library does without a dialer: each address of its name, within one
// time-out.
type hosts struct {
	net.Dialer
	lookup func(ctx context.Context, host string) ([]string, error)
	inTurn bool // in the order of the name server
}

func newHosts(o *nats.Options) *hosts {
	d := &hosts{Dialer: net.Dialer{Timeout: cmp.Or(o.Timeout, nats.DefaultTimeout)}, lookup: net.DefaultResolver.LookupHost, inTurn: o.NoRandomize}
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
	all := d.addresses(address)
	one := d.Dialer
	one.Timeout /= time.Duration(len(all))
	var (
		c   net.Conn
		err error
	)
	for _, a := range all {
		if c, err = one.Dial(network, a); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// addresses are at least one. What is not found is dialed as it is: the dialer may have a resolver
// of its own, and an address without a host is one of this machine.
func (d *hosts) addresses(address string) []string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || d.lookup == nil || net.ParseIP(host) != nil {
		return []string{address}
	}
	ctx := context.Background() //nolint:forbidigo // the library gives none
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	found, err := d.lookup(ctx, host)
	if err != nil || len(found) == 0 {
		return []string{address}
	}
	all := make([]string, len(found))
	for i, a := range found {
		all[i] = net.JoinHostPort(a, port)
	}
	if !d.inTurn {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	return all
}
