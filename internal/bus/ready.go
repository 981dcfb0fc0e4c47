// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
)

// Ready tells whether the bus can work: connected, and the streams of jobs and results are there,
// and not another installation's.
func (c *Conn) Ready(ctx context.Context) error {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	if !c.Reachable() {
		return c.Retryable("bus not ready", ErrUnreachable)
	}
	for _, name := range []string{c.Names.JobsStream(), c.Names.ResultsStream()} {
		s, err := c.JetStream.Stream(ctx, name)
		if err == nil {
			err = c.check(ctx, s.CachedInfo().Config)
		}
		if err != nil {
			return c.Retryable("stream "+name, err)
		}
	}
	return nil
}

// Usable says why NATS cannot be used: it is not there, or the streams are another installation's.
// Before the first use it makes sure that they are ours. Then WatchStreams finds out, within
// streamCheck, that somebody took them over.
func (c *Conn) Usable(ctx context.Context) error {
	if !c.Reachable() {
		return ErrUnreachable
	}
	if c.config.Installation == "" {
		return nil
	}
	if known, err := c.ownerKnown(); known {
		return err
	}
	c.owner.asking.Lock()
	defer c.owner.asking.Unlock()
	if known, err := c.ownerKnown(); known { // somebody else asked meanwhile
		return err
	}
	return c.RepairStreams(ctx)
}

// ownerKnown says whether it need not be asked now whose the streams are, and if so, why they
// are not ours.
func (c *Conn) ownerKnown() (known bool, foreign error) {
	o := c.owner.get()
	return o.ours || o.foreign != nil && c.Clock.Since(o.at) < streamCheck, o.foreign
}

// AwaitConnected waits until NATS was reached for the first time, or ctx ends: for people's tools,
// which ask once.
func (c *Conn) AwaitConnected(ctx context.Context) {
	select {
	case <-c.opened:
	case <-ctx.Done():
	}
}
