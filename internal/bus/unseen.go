// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// errNoLeader: a stream of a cluster has no leader, and takes nothing.
var errNoLeader = errors.New("it has no leader")

// sawOther has the log say that a stream which is not watched can no longer be looked at, and that
// it can again: once each, though it is looked at every ten seconds. One that is gone is made anew.
func sawOther(c *Conn, name string, err error) {
	unseen := err != nil && !errors.Is(err, jetstream.ErrStreamNotFound)
	if unseen == c.unseen[name] {
		return
	}
	c.unseen[name] = unseen
	if unseen {
		c.Log.Info("A stream cannot be looked at", "stream", labelOf(c.Names, name), "cause", err.Error())
		return
	}
	c.Log.Info("A stream can be looked at again", "stream", labelOf(c.Names, name))
}
