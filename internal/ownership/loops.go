// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// mostWrites bounds how often one look tries to write.
const mostWrites = 5

// pause waits for d, for ctx, or until it is asked not to wait. It returns false when ctx ended.
func (k *Keeper) pause(ctx context.Context, d time.Duration, now <-chan struct{}) bool {
	timer := k.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-now:
	case <-timer.C():
	}
	return ctx.Err() == nil
}

// spread is about d: 10 % less to 10 % more.
func (k *Keeper) spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*k.opts.Spread()))
}

// renewals renews own Lease until ctx ends. No other loop can hold it up.
func (k *Keeper) renewals(ctx context.Context, lease *ownLease) {
	failed := 0
	for {
		wait := k.spread(k.timing.Renew)
		if err := k.renew(ctx, lease); err != nil && ctx.Err() == nil {
			if failed%10 == 0 {
				k.opts.Log.Info("Own Lease was not renewed", "failures", failed+1, "cause", err.Error())
			}
			failed++
			wait = k.spread(k.timing.Renew / 4)
		} else {
			failed = 0
		}
		if !k.pause(ctx, wait, k.renewNow) {
			return
		}
	}
}

func (k *Keeper) renew(ctx context.Context, lease *ownLease) error {
	ctx, cancel := context.WithTimeout(ctx, k.timing.Lease/4)
	defer cancel()
	k.mu.Lock()
	mark := k.health.said
	k.mu.Unlock()
	sent := k.now()
	err := lease.renew(ctx, mark, k.opts.Clock.Now())
	outcome := outcomeOK
	switch {
	case errors.Is(err, errLeaseGone):
		outcome = outcomeGone
		k.apply(func(m *rules.Member, _ rules.Time) { m.LeaseGone() })
		nudge(k.renewNow)
		err = nil
	case err != nil:
		outcome = outcomeError
	default:
		k.apply(func(m *rules.Member, now rules.Time) { m.Renewed(sent, now) })
		k.mu.Lock()
		k.health.announced = mark.Leaving
		if k.member.Session() == 0 {
			nudge(k.lookNow) // a look begins the session
		}
		k.mu.Unlock()
	}
	k.opts.Metrics.renewals.WithLabelValues(outcome).Inc()
	return err
}

// lapses notices when own time is over, while other loops wait for the API server.
func (k *Keeper) lapses(ctx context.Context) {
	for {
		wait := k.timing.Look
		if v := k.until.Load(); v.session > 0 {
			wait = max(0, min(wait, v.until-k.now()))
		}
		if !k.pause(ctx, wait, nil) {
			return
		}
		k.apply(func(*rules.Member, rules.Time) {})
	}
}

// watches has the owners looked at as soon as they change. Without it a look shows that a moment
// later.
func (k *Keeper) watches(ctx context.Context) {
	for {
		k.watch(ctx)
		if !k.pause(ctx, k.spread(k.timing.Look), nil) {
			return
		}
	}
}

func (k *Keeper) watch(ctx context.Context) {
	w, err := k.opts.Client.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(k.opts.Namespace), client.MatchingFields{"metadata.name": ObjectName})
	if err != nil {
		return
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-w.ResultChan():
			if !open {
				return
			}
			nudge(k.lookNow)
		}
	}
}

// looks looks at the members and at the owners until ctx ends, and writes what this member changes:
// at all in each interval, and at the owners alone when it is asked to.
func (k *Keeper) looks(ctx context.Context) {
	other := &leader{name: k.opts.LeaderLease}
	full := -k.timing.Look // when the last round began
	for failed := 0; ; {
		err := k.lookOnce(ctx, other, &full)
		if errors.Is(err, ErrOtherInstallation) {
			k.fatal <- err
			return
		}
		if err == nil || ctx.Err() != nil {
			failed = 0
		} else {
			if failed%10 == 0 {
				k.opts.Log.Info("The owners of partitions were not looked at", "failures", failed+1, "cause", err.Error())
			}
			failed++
		}
		if !k.pause(ctx, max(0, k.spread(k.timing.Look)-(k.now()-full)), k.lookNow) {
			return
		}
	}
}

// lookOnce does what is due.
func (k *Keeper) lookOnce(ctx context.Context, other *leader, full *rules.Time) error {
	switch now := k.now(); {
	case now-*full >= k.timing.Look*9/10:
		*full = now
		return k.round(ctx, other)
	case k.toGive():
		return k.give(ctx)
	}
	return k.glance(ctx)
}

// round looks at everything: the owners, then the members, so that the list proves who is gone.
func (k *Keeper) round(ctx context.Context, other *leader) error {
	blockedErr := k.lookForLeader(ctx, other)
	if err := k.look(ctx); err != nil {
		return err
	}
	if err := k.list(ctx); err != nil {
		return err
	}
	return errors.Join(blockedErr, k.write(ctx), k.bury(ctx))
}

func (k *Keeper) list(ctx context.Context) error {
	list, err := k.api.list(ctx, k.now)
	if err != nil {
		return err
	}
	k.apply(func(m *rules.Member, _ rules.Time) { m.Listed(list) })
	return nil
}

// bury deletes the Leases of members that are gone. The owner of the singletons does that.
func (k *Keeper) bury(ctx context.Context) error {
	if !k.Owns(Singletons) {
		return nil
	}
	k.mu.Lock()
	dead := k.member.Dead()
	k.mu.Unlock()
	for _, d := range dead {
		if err := k.api.bury(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// give gives away what this member has stopped working on, to those whom a list shows now.
func (k *Keeper) give(ctx context.Context) error {
	if err := k.list(ctx); err != nil {
		return err
	}
	return k.write(ctx)
}

func (k *Keeper) toGive() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.member.ToGive()
}

// glance looks at the owners only.
func (k *Keeper) glance(ctx context.Context) error {
	if err := k.look(ctx); err != nil {
		return err
	}
	return k.write(ctx)
}

// lookForLeader notes whether somebody holds leader election. Until that is known, this member is
// blocked.
func (k *Keeper) lookForLeader(ctx context.Context, other *leader) error {
	if other.name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.api.timeout)
	defer cancel()
	holds, err := other.holds(ctx, k.opts.Client, k.opts.Namespace, k.now())
	if err != nil {
		return err
	}
	k.apply(func(_ *rules.Member, now rules.Time) {
		if holds != k.health.blocked {
			k.health.blocked = holds
			k.opts.Log.Info("The Lease of leader election was looked at", "held", holds)
		}
		k.remark(now)
	})
	return nil
}

func (k *Keeper) look(ctx context.Context) error {
	l, why, err := k.api.look(ctx, k.now)
	if err != nil {
		return err
	}
	if why != nil {
		k.opts.Log.Info("The owners of partitions cannot be read, and are written anew", "cause", why.Error())
	}
	k.apply(func(m *rules.Member, _ rules.Time) { m.Looked(l) })
	return nil
}

// write writes what this member changes, and looks again where somebody else was faster.
func (k *Keeper) write(ctx context.Context) error {
	for range mostWrites {
		k.mu.Lock()
		was := k.member.Known()
		next, base := k.member.Propose(k.now(), k.making())
		k.mu.Unlock()
		if next == nil {
			return nil
		}
		l, err := k.api.write(ctx, *next, base, k.now)
		switch {
		case errors.Is(err, errConflict):
			k.opts.Metrics.writes.WithLabelValues(outcomeConflict).Inc()
			if err := k.look(ctx); err != nil {
				return err
			}
		case err != nil:
			k.opts.Metrics.writes.WithLabelValues(outcomeError).Inc()
			return err
		default:
			k.opts.Metrics.writes.WithLabelValues(outcomeOK).Inc()
			k.apply(func(m *rules.Member, now rules.Time) {
				k.written(was, *next, now)
				m.Looked(l)
			})
		}
	}
	return nil
}

// making is what an object that is made now begins with. The time in seconds is above all terms:
// they grow by one with each change, and change more slowly than once a second. Needs mu.
func (k *Keeper) making() rules.Making {
	now := k.opts.Clock.Now()
	return rules.Making{Origin: k.opts.Member + "/" + now.UTC().Format(time.RFC3339Nano), Floor: now.Unix()}
}
