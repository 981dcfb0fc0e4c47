// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"sync"
	"time"
)

const (
	// pulseEvery is the time between two questions whether NATS answers.
	pulseEvery = time.Second
	// pulseTimeout is how long the answer may take. It is less than pulseEvery: one question is
	// under way at a time.
	pulseTimeout = 900 * time.Millisecond
	// pulseMisses is how many questions in a row must fail: a reconnect to the next server of a
	// cluster is no outage. So an outage is known at most pulseEvery x pulseMisses + pulseTimeout
	// after it began: 2.9 s.
	pulseMisses = 2
)

// pulse is what is known of whether NATS answers. A connection to a server that hangs, or to
// a machine that is gone, looks open until a write had no room for natsdial.WriteTimeout, or for
// fifteen seconds if nothing fills the socket: a question with a short time-out finds out sooner.
type pulse struct {
	changed chan struct{} // has a value when down became true or false

	mu     sync.Mutex
	misses int
	since  time.Time // the first of the misses in a row
	down   bool
	calls  map[uint64]context.CancelFunc // calls under way: they end when an outage is noticed
	next   uint64
}

func newPulse() *pulse {
	return &pulse{changed: make(chan struct{}, 1), calls: map[uint64]context.CancelFunc{}}
}

// Outage is since when NATS is known not to answer. The zero time means that it answers, or that
// Watch does not run.
func (c *Conn) Outage() time.Time {
	c.pulse.mu.Lock()
	defer c.pulse.mu.Unlock()
	if !c.pulse.down {
		return time.Time{}
	}
	return c.pulse.since
}

// OutageChanged has a value when Outage began or ended since it was last received from. It is
// for one receiver.
func (c *Conn) OutageChanged() <-chan struct{} { return c.pulse.changed }

// Watch asks NATS every second whether it answers, until ctx ends. When it does not, calls that
// wait for it fail, and new ones fail at once with ErrUnreachable, until it answers again. It
// is called once.
func (c *Conn) Watch(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ticker := c.Clock.NewTicker(pulseEvery)
	defer ticker.Stop()
	answers := make(chan bool, 1)
	free := true // no question is under way
	for {
		select {
		case <-ctx.Done():
			return
		case ok := <-answers:
			free = true
			c.heard(ok)
		case <-ticker.C():
			if !free {
				c.heard(false) // the connection hangs so that not even the time-out of the question counts
				continue
			}
			free = false
			asking.Go(func() { answers <- c.ping(ctx) })
		}
	}
}

// ping is a round trip to the server, which costs it next to nothing.
func (c *Conn) ping(ctx context.Context) bool {
	if !c.connected() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, pulseTimeout)
	defer cancel()
	return c.NATS.FlushWithContext(ctx) == nil
}

func (c *Conn) heard(ok bool) {
	if !c.pulse.note(ok, c.Clock.Now()) {
		return
	}
	if ok {
		c.Log.Info("NATS answers again")
		return
	}
	c.Log.Info("NATS does not answer", "since", c.Outage())
}

// note takes the outcome of a question; it says whether an outage began or ended by it.
func (p *pulse) note(ok bool, now time.Time) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.down
	if ok {
		p.misses, p.down = 0, false
	} else {
		if p.misses == 0 {
			p.since = now
		}
		p.misses = min(p.misses+1, pulseMisses)
		p.down = p.misses == pulseMisses
	}
	if p.down == was {
		return false
	}
	if p.down {
		for _, cancel := range p.calls {
			cancel()
		}
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
	return true
}

// known says whether NATS is known not to answer.
func (p *pulse) known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// join has a call cancelled when an outage begins, until it leaves.
func (p *pulse) join(cancel context.CancelFunc) (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.next
	p.next++
	p.calls[n] = cancel
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.calls, n)
	}
}
