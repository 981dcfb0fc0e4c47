// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// watched are the streams of which a loss of data has what was dispatched looked up.
func (c *Conn) watched() []string { return []string{c.Names.JobsStream(), c.Names.ResultsStream()} }

// others are the streams of which a loss of data is told, and nothing more can be done.
func others(names protocol.Names) []string {
	return []string{names.DeadLettersStream(), names.ControlStream(), names.PayloadsStream()}
}

// Losses is how often this process has noticed that JOBS or RESULTS lost data. It never falls. Who
// asked before a publish, and finds it grown after that, does not know whether the job is still
// there: jobs.Queue.Recover finds out.
func (c *Conn) Losses() uint64 { return c.losses.Count() }

// LossNoticed has a value when Losses has grown since it was last received from. It is
// for one receiver.
func (c *Conn) LossNoticed() <-chan struct{} { return c.losses.Noticed() }

// lost is called when a loss is noticed.
func (c *Conn) lost(stream, evidence string) {
	c.config.Metrics.dataLosses.WithLabelValues(labelOf(c.Names, stream)).Inc()
	c.Log.Error(nil, "NATS lost data: what was dispatched is looked up, and published again if it is gone", "stream", labelOf(c.Names, stream), "evidence", evidence)
	c.generation.Add(1) // consumers go with their stream
}

// lostOther is called when a loss of one of the others is noticed.
func (c *Conn) lostOther(stream, evidence string) {
	c.config.Metrics.dataLosses.WithLabelValues(labelOf(c.Names, stream)).Inc()
	c.Log.Error(nil, "NATS lost data: what was in the stream is gone", "stream", labelOf(c.Names, stream), "evidence", evidence)
}

// look asks for a look at the streams soon; it does not block.
func (c *Conn) look() {
	select {
	case c.recheck <- struct{}{}:
	default:
	}
}

// WatchStreams looks at the streams now and then, and after each reconnect until it has seen them:
// JetStream answers later than the server. It returns nil when ctx ends, and a *ForeignError when
// somebody took the streams over.
func (c *Conn) WatchStreams(ctx context.Context) error {
	ticker := c.Clock.NewTicker(streamCheck)
	defer ticker.Stop()
	for {
		again := false
		select {
		case <-ctx.Done():
			return nil
		case <-c.recheck:
			again = true
		case <-ticker.C():
		}
		if err := c.lookUntilSeen(ctx, again); IsForeign(err) {
			return err
		}
	}
}

// lookUntilSeen looks at the streams; if that fails and it is to be done again, then after pauses
// that grow, until it succeeds or ctx ends. It gives the error of the last look.
func (c *Conn) lookUntilSeen(ctx context.Context, again bool) error {
	for pause := relookDelay; ; pause = min(2*pause, streamCheck) {
		err := c.checkStreams(ctx)
		if err == nil || ctx.Err() != nil || IsForeign(err) {
			return err
		}
		c.Log.V(1).Info("Streams could not be looked at", "cause", err.Error())
		if again && pause == streamCheck {
			c.Log.Info("Streams cannot be looked at since the connection to NATS is back", "cause", err.Error())
		}
		if !again || !c.Wait(ctx, c.Jittered(pause)) {
			return err
		}
	}
}

// checkStreams looks whether the streams are what they were, and makes those that are gone. Those
// that have too few replicas get more, if NATS can do it by now.
func (c *Conn) checkStreams(ctx context.Context) error {
	defer forgetOld(c)
	if !c.connected() {
		return ErrUnreachable
	}
	for _, name := range c.watched() {
		err := c.checkStream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			c.removals.sawGone(name, c.Clock.Now())
			unmeasured(c, name)
			err = c.RepairStreams(ctx)
		}
		if err != nil {
			return err
		}
	}
	if err := checkOthers(ctx, c); err != nil {
		return err
	}
	raise(ctx, c)
	return nil
}

// checkOthers looks at the streams that are not watched, and makes those that are gone: workers
// wait for the object store until their jobs' deadlines. The only error is a *ForeignError. Jobs
// and results are there, so any other must not have the look begin anew.
func checkOthers(ctx context.Context, c *Conn) error {
	if !measureOthers(ctx, c) {
		return nil
	}
	err := c.RepairStreams(ctx)
	if err != nil && !IsForeign(err) {
		c.Log.Info("Streams that are gone could not be made", "cause", err.Error())
		return nil
	}
	return err
}

// measureOthers measures the streams that are not watched, and tells whether one is gone. What
// cannot be asked is left out, and the log says so: the next look asks again. Each has its own
// time, so one that does not answer does not look as if all did not.
func measureOthers(ctx context.Context, c *Conn) (gone bool) {
	for _, name := range others(c.Names) {
		err := measureOther(ctx, c, name)
		gone = gone || errors.Is(err, jetstream.ErrStreamNotFound)
		sawOther(c, name, err)
	}
	return gone
}

func measureOther(ctx context.Context, c *Conn, name string) error {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	before := c.otherLosses.Begin(name)
	s, err := c.JetStream.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		c.removals.sawGone(name, c.Clock.Now())
		unmeasured(c, name)
	}
	if err != nil {
		return err
	}
	c.removals.sawThere(name)
	info := s.CachedInfo()
	if leaderless(info) {
		return errNoLeader
	}
	measure(c, info)
	before.Look(info.Created, info.State.LastSeq)
	return nil
}

func (c *Conn) checkStream(ctx context.Context, name string) error {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	s, err := c.inspect(name, func() (jetstream.Stream, error) { return c.JetStream.Stream(ctx, name) })
	if err != nil {
		return err
	}
	c.removals.sawThere(name)
	measure(c, s.CachedInfo())
	sawJobs(c, s.CachedInfo(), s.CachedInfo().Config.MaxBytes)
	return keep(ctx, c, s)
}
