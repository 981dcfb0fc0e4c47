// SPDX-License-Identifier: Apache-2.0

// Package contend waits for run locks as their users do, and counts what that costs: for the tests
// of test/locks and for the benchmarks of test/bench.
package contend

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

// wakeLimit bounds how long somebody in line waits to be woken before he asks again.
const wakeLimit = 3 * time.Second

// Acquire takes a lock and waits for it until ctx ends, as users of the lock manager do: in line if
// there is one, else by asking again after the delay of the policy. It is also patient with a Redis
// that cannot be used. request is called for every try, since who reads the status again may find a
// new fence; Acquire sets its Wake.
func Acquire(ctx context.Context, m *lockmgr.Manager, request func(context.Context) (lockmgr.Request, error)) (*lockmgr.Lease, error) {
	woken := make(chan struct{}, 1)
	for {
		r, err := request(ctx)
		if err != nil {
			return nil, err
		}
		r.Wake = func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		}
		lease, err := m.Acquire(ctx, r)
		if err == nil {
			return lease, nil
		}
		var busy *lockmgr.BusyError
		var unavailable *lockmgr.UnavailableError
		switch {
		case errors.As(err, &busy) && busy.Queued:
			err = Wait(ctx, wakeLimit, woken)
		case errors.As(err, &busy):
			err = Wait(ctx, busy.RetryDelay(), nil)
		case errors.As(err, &unavailable):
			err = Wait(ctx, unavailable.RetryDelay(), nil)
		}
		if err != nil {
			return nil, err
		}
	}
}

// Wait waits for the first of: an end of ctx, which is an error, a time, and a signal.
func Wait(ctx context.Context, d time.Duration, signal <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	case <-signal:
	}
	return nil
}

// Commands is a go-redis hook that counts commands, without those that only log in. The zero
// value is ready.
type Commands struct {
	// N is how many there were.
	N atomic.Int64
	// On is told of each, just before it is sent; nil: nobody is. Not to be changed while the
	// client is in use.
	On func()
}

// DialHook implements redis.Hook.
func (*Commands) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook. Pipelines log in, when a connection is made.
func (*Commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (c *Commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hello" { // of the connection for news
			return next(ctx, cmd)
		}
		c.N.Add(1)
		if c.On != nil {
			c.On()
		}
		return next(ctx, cmd)
	}
}
