// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Surfaces, as labels: who asked.
const (
	surfaceController = "controller"
	surfaceWebhook    = "webhook"
)

// Admit gives the run a slot or a place in the queue. It is idempotent by UID, so it may be
// repeated when its reply was lost, and must be called again right before each try to write that
// the run is admitted; a run that waits calls it when it is woken.
//
// A run is admitted if it is in already, or if fewer runs are ahead of it in the queue than slots
// are free: whoever is ahead and does not come blocks its own place only. A run with a reservation
// does not stand in the queue. Answer.Next is who comes into the window by this (see Release), for
// the caller to wake.
//
// Errors: *UnavailableError, *BusyError (strategy Lock), *RebuildingError, each with a delay;
// ErrInvalidRequest. After an error the run may have the slot; it must not be treated as admitted.
func (g *Store) Admit(ctx context.Context, k Key, l Limits, r Run) (Answer, error) {
	if err := errors.Join(k.check(), r.check()); err != nil {
		return Answer{}, err
	}
	return g.decide(ctx, surfaceController, k, l, func(ctx context.Context, token string) (Answer, error) {
		keys := g.keys(k)
		got, err := g.ask(ctx, g.scripts.admit, k, keys, token, l.Max, r.UID, member(r), g.window)
		if err != nil {
			return Answer{}, err
		}
		a := g.stand(k, l, got)
		a.Admitted, a.Position, a.Next = got.number(4) == 1, got.number(5), nextOf(got.list(7))
		if ahead, err := parseMember(got.text(6)); err == nil {
			a.Ahead = ahead.Name
		}
		return a, nil
	})
}

// Reserve keeps a slot for a run that is about to be created, for ttl by the clock of Redis, a
// minute at most; Admit of the same UID turns it into a slot. It never gives a place in the queue:
// the answer is not Admitted if slots, reservations and waiting runs make up the limit. With a ttl
// of 0 it only asks, for a dry run. Idempotent by UID.
//
// Errors: as Admit.
func (g *Store) Reserve(ctx context.Context, k Key, l Limits, r Run, ttl time.Duration) (Answer, error) {
	if err := errors.Join(k.check(), r.check()); err != nil {
		return Answer{}, err
	}
	return g.decide(ctx, surfaceWebhook, k, l, func(ctx context.Context, token string) (Answer, error) {
		got, err := g.ask(ctx, g.scripts.reserve, k, g.keys(k), token, l.Max, r.UID, max(0, ttl).Milliseconds())
		if err != nil {
			return Answer{}, err
		}
		a := g.stand(k, l, got)
		a.Admitted = got.number(4) == 1
		return a, nil
	})
}

// decide makes a decision by the strategy of the limits, and measures it. script is given the token
// of the lock, or "".
func (g *Store) decide(ctx context.Context, surface string, k Key, l Limits, script func(context.Context, string) (Answer, error)) (Answer, error) {
	return g.decideAs(ctx, surface, k, k, l, script)
}

// decideAs is decide, and is measured as a decision about of.
func (g *Store) decideAs(
	ctx context.Context, surface string, k, of Key, l Limits, script func(context.Context, string) (Answer, error),
) (Answer, error) {
	began := g.opts.Clock.Now()
	var a Answer
	var err error
	if l.Lock == nil {
		a, err = script(ctx, "")
	} else {
		a, err = g.locked(ctx, surface, k, *l.Lock, script)
	}
	g.opts.Metrics.decided(of.Tenant, strategyOf(l), surface, outcomeOf(surface, a, err), g.opts.Clock.Since(began))
	return a, err
}

// stand reads how an answer about slots begins.
func (g *Store) stand(k Key, l Limits, got reply) Answer {
	g.learn(g.keys(k)[0], got)
	return Answer{Limit: l.Max, Used: got.number(1), Waiting: got.number(2), Reserved: got.number(3)}
}

// locked makes a decision under the lock of the tenant. The decision is the one of strategy Atomic,
// and is not made unless the lock still is the token's, so a holder that was paused does nothing.
func (g *Store) locked(
	ctx context.Context, surface string, k Key, s LockSettings, script func(context.Context, string) (Answer, error),
) (Answer, error) {
	token := g.opts.NewID()
	began := g.opts.Clock.Now()
	unlock, err := g.lock(ctx, k, s, token)
	g.opts.Metrics.lockWaited(k.Tenant, surface, lockOutcomeOf(err), g.opts.Clock.Since(began))
	defer unlock()
	if err != nil {
		return Answer{}, err
	}
	a, err := script(ctx, token)
	if errors.Is(err, errLost) {
		err = g.busy(k, g.opts.Clock.Since(began))
	}
	return a, err
}

// lock takes the lock of a tenant within s.MaxWait. unlock must be called even after an error: if a
// reply was lost the lock may be ours.
func (g *Store) lock(ctx context.Context, k Key, s LockSettings, token string) (unlock func(), err error) {
	began, busyTries := g.opts.Clock.Now(), 0
	if s.OnWaited != nil {
		defer func() { s.OnWaited(busyTries, g.opts.Clock.Since(began)) }()
	}
	for {
		got, err := g.trySet(ctx, k, s.TTL, token)
		switch {
		case err != nil:
			return func() { g.unlock(ctx, k, token) }, g.unavailable(k, err)
		case got:
			g.opts.OnTaken(k.Policy, busyTries)
			return func() { g.unlock(ctx, k, token) }, nil
		}
		busyTries++
		waited := g.opts.Clock.Since(began)
		if waited >= s.MaxWait {
			return func() {}, g.busy(k, waited)
		}
		// At least a millisecond: a jitter of 100 % must not make this a busy loop.
		delay := max(time.Millisecond, s.Retry.Wait(g.opts.Rand()))
		g.opts.OnBusyRetry(k.Policy, s.Retry.Fixed, delay)
		if err := g.wait(ctx, min(delay, s.MaxWait-waited)); err != nil {
			return func() {}, g.unavailable(k, err)
		}
	}
}

func (g *Store) trySet(ctx context.Context, k Key, ttl time.Duration, token string) (bool, error) {
	if err := own(ctx, g); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	err := g.client.SetArgs(ctx, g.keys(k)[4], token, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// unlock is done even if the caller gave up: others wait for the lock. If it does not work the
// TTL frees it.
func (g *Store) unlock(ctx context.Context, k Key, token string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.timeout)
	defer cancel()
	if err := g.scripts.unlock.Run(ctx, g.client, g.keys(k)[4:5], token).Err(); err != nil {
		g.opts.Log.V(1).Info("Admission lock not freed, its TTL will", "tenant", k.Tenant, "policy", k.Policy, "cause", err.Error())
	}
}

func (g *Store) wait(ctx context.Context, d time.Duration) error {
	timer := g.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
