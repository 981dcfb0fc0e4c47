// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go"
	"k8s.io/utils/clock"
)

// defaultLog is that of the process.
func defaultLog() logr.Logger { return logr.FromSlogHandler(slog.Default().Handler()) }

// The tries of an outage come each second for each server. The first that fails is told, and then
// one after each of these times, which double.
const (
	soonest = 2 * time.Second
	seldom  = 5 * time.Minute
)

// dials tells of the tries of one connection to reach NATS, of which the library says nothing. It
// calls a handler where it reaches no server. Where it reaches one that refuses the login or TLS,
// or that ends the connection, only the status tells.
type dials struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	tries uint64        // that failed since the outage began
	next  time.Time     // when the next one is told
	pause time.Duration // after that one
	// The last errors since one was told: one server of a list may be away and another one refuse.
	unreached, refused string
}

// unreachable is told by the library of a try that reached no server.
func (d *dials) unreachable(nc *nats.Conn, err error) {
	// The first look at all servers ends with ErrNoServers where they are away: the next try,
	// within some seconds, has the cause.
	if errors.Is(err, nats.ErrNoServers) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// The library calls when it comes to it, so this may be the outage before. As reached waits for
	// the lock, one that is not over here is ended after this.
	if !nc.IsConnected() {
		d.unreached = err.Error()
		d.failed(nc)
	}
}

// refusing counts a try that reached a server.
func (d *dials) refusing(nc *nats.Conn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = "a server was reached, and no connection came of it: " + err.Error()
	d.failed(nc)
}

// watch tells of tries that reached a server, until the connection is closed for good.
func (d *dials) watch(nc *nats.Conn) {
	changes := nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(changes)
	// The library drops changes for which there is no place. There are others to read then, so the
	// status is read after the last one.
	for out := !nc.IsConnected(); !nc.IsClosed(); {
		switch change := <-changes; {
		case change == nats.CONNECTED && nc.IsConnected(): // it ends at once where subscriptions cannot be sent
			out = false
			d.reached()
		case change == nats.RECONNECTING && !out: // an outage begins, with an error that may be any
			out = true
		case change == nats.RECONNECTING:
			if err := nc.LastError(); err != nil {
				d.refusing(nc, err)
			}
		}
	}
}

// reached has the next outage told anew.
func (d *dials) reached() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tries, d.next, d.pause, d.unreached, d.refused = 0, time.Time{}, 0, "", ""
}

// failed counts a try, and tells of it if it is time. The caller has the lock.
func (d *dials) failed(nc *nats.Conn) {
	d.tries++
	now := d.clock.Now()
	if now.Before(d.next) {
		return
	}
	d.pause = min(max(soonest, 2*d.pause), seldom)
	d.next = now.Add(d.pause)
	causes := strings.TrimPrefix(strings.TrimSuffix(d.refused+"; "+d.unreached, "; "), "; ")
	d.unreached, d.refused = "", ""
	// Servers leaves out the users of the addresses.
	defaultLog().Info("NATS is not reached, trying again", "servers", nc.Servers(), "tries", d.tries, "cause", causes)
}

// ended tells of the end of the connection, unless its owner closed it.
func (d *dials) ended(_ *nats.Conn, err error) {
	if err != nil {
		defaultLog().Info("The connection to NATS ended, connecting again", "cause", err.Error())
	}
}
