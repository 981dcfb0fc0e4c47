// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"time"
)

// Reachable says whether there is a connection to NATS on which it answers, as far as is known. It
// does not wait for anything.
func (c *Conn) Reachable() bool { return !c.pulse.known() && c.connected() }

// connected does not ask the library: what hangs on a full socket, or connects to a machine that is
// gone, holds its lock.
func (c *Conn) connected() bool { return c.open.Load() }

// Bounded limits one call to NATS: requests to a server that went away get no answer at all. It
// ends when an outage is noticed.
func (c *Conn) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	leave := c.pulse.join(cancel)
	return ctx, func() {
		leave()
		cancel()
	}
}

// Jittered is uniform in d +- 20 %, so that what failed together does not come back together.
func (c *Conn) Jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*c.config.Rand()))
}

// Pause returns false if the connection was closed before d was over.
func Pause(c *Conn, d time.Duration) bool {
	t := c.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-c.closed:
		return false
	}
}

// Wait returns false if ctx ended before d was over.
func (c *Conn) Wait(ctx context.Context, d time.Duration) bool {
	t := c.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-ctx.Done():
		return false
	}
}
