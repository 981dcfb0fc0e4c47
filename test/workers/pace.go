// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// The checks live on a worker's time and on the kit's: a ping has to come within AckWait, a
// cancellation before the end of the job. On a machine that is too busy neither comes in time,
// and who is right looks wrong. So what a check found there does not count: it is done again
// with more time.

// errInconclusive is returned by a check that came too late to see what it looks for.
var errInconclusive = errors.New("the machine is too slow to tell")

const (
	// maxPace is how much more AckWait and Patience there may be in the end; each try of a check
	// has twice as much as the one before.
	maxPace = 8
	// stallShare of AckWait is how long the kit may stand still before its findings are doubted.
	stallShare = 8
)

// pace notices when the process stands still.
type pace struct {
	times  int // how much more AckWait and Patience there is now than in the configuration; a power of 2
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu    sync.Mutex
	worst time.Duration // by which a tick was late
}

func startPace(ctx context.Context) *pace {
	p := &pace{times: 1}
	ctx, p.cancel = context.WithCancel(ctx)
	p.wait.Go(func() {
		for {
			begin := time.Now()
			select {
			case <-time.After(look):
			case <-ctx.Done():
				return
			}
			p.mu.Lock()
			p.worst = max(p.worst, time.Since(begin)-look)
			p.mu.Unlock()
		}
	})
	return p
}

func (p *pace) stop() {
	p.cancel()
	p.wait.Wait()
}

// stall gives the longest time that the process stood still since the last call.
func (p *pace) stall() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	worst := p.worst
	p.worst = 0
	return worst
}

// try runs a check until its finding can be relied on, or for the last time.
func (k *kit) try(ctx context.Context, c check) error {
	usual := k.pace.times
	for {
		since := k.tap.len()
		k.pace.stall()
		err := c.run(ctx, k)
		if err == nil {
			return nil // the time that it took suits this machine, and stays
		}
		doubt := k.doubt(c, err, since)
		if doubt == "" || k.pace.times == maxPace || ctx.Err() != nil {
			return errors.Join(err, k.setPace(ctx, usual))
		}
		k.config.Log.Info("Check is done again with more time", "check", c.id, "cause", doubt, "found", err.Error())
		if err := errors.Join(k.setPace(ctx, 2*k.pace.times), k.renew(ctx)); err != nil {
			return err
		}
	}
}

// doubt says why a finding may be the machine's fault, or "".
func (k *kit) doubt(c check, err error, since int) string {
	switch stall := k.pace.stall(); {
	case errors.Is(err, errInconclusive):
		return err.Error()
	case stall > k.config.AckWait/stallShare:
		return fmt.Sprintf("the kit stood still for %s", stall.Round(time.Millisecond))
	case (c.needs == nothing || c.needs == several) && k.tap.redelivered(since):
		return "a job was delivered again" // which a check that stops the worker or the server brings about itself
	}
	return ""
}

// setPace changes Patience, and AckWait of the topic's consumer. A worker reads that when it
// begins, so renew follows.
func (k *kit) setPace(ctx context.Context, times int) error {
	if times == k.pace.times {
		return nil
	}
	k.config.Patience = k.config.Patience / time.Duration(k.pace.times) * time.Duration(times)
	k.config.AckWait = k.config.AckWait / time.Duration(k.pace.times) * time.Duration(times)
	k.consumer.AckWait, k.pace.times = k.config.AckWait, times
	if _, err := k.js.CreateOrUpdateConsumer(ctx, k.names.JobsStream(), k.consumer); err != nil {
		return fmt.Errorf("change AckWait: %w", err)
	}
	return nil
}
