// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go"
)

// defaultLog is that of the process.
func defaultLog() logr.Logger { return logr.FromSlogHandler(slog.Default().Handler()) }

// seldom is how many tries of an outage pass between two that are told, once it is long.
const seldom = 64

// dials tells of the tries of one connection to reach NATS. The library of NATS says nothing of
// them, and calls these methods one after the other.
type dials struct {
	connections uint64 // that were made when the outage began
	tries       uint64 // that failed since
}

// failed tells of the 1st try, the 2nd, the 4th and so on, then of each 64th.
func (d *dials) failed(nc *nats.Conn, err error) {
	if made := nc.Stats().Reconnects; made != d.connections {
		d.connections, d.tries = made, 0
	}
	d.tries++
	if d.tries%seldom == 0 || d.tries < seldom && d.tries&(d.tries-1) == 0 {
		// Servers leaves out the users of the addresses.
		defaultLog().Info("NATS is not reached, trying again", "servers", nc.Servers(), "tries", d.tries, "cause", err.Error())
	}
}

// ended tells of the end of the connection, unless its owner closed it.
func (d *dials) ended(_ *nats.Conn, err error) {
	if err != nil {
		defaultLog().Info("The connection to NATS ended, connecting again", "cause", err.Error())
	}
}
