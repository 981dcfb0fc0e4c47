// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

const (
	// mostWrites bounds how often one look tries to write.
	mostWrites = 5
	// mostReplaced is how many versions are remembered that this member replaced: more than it
	// writes before its watch tells of the first.
	mostReplaced = 16
)

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

// renewals renews own Lease until ctx ends. No other loop can hold it up. A Lease counts from when
// its renewal was sent, so the time of the answer is part of the wait.
func (k *Keeper) renewals(ctx context.Context, lease *ownLease) {
	failed := 0
	for {
		sent := k.now()
		err := k.renew(ctx, lease)
		wait := max(0, k.spread(k.timing.Renew)-(k.now()-sent))
		if err != nil && ctx.Err() == nil {
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

// renew renews own Lease, unless a newer version wrote the owners: this member can give nothing
// away then, and others take only what belongs to a Lease that has ended.
func (k *Keeper) renew(ctx context.Context, lease *ownLease) error {
	if k.newer.Load() {
		return nil
	}
	k.mu.Lock()
	mark := k.health.said
	k.mu.Unlock()
	lease.says = k.opts.Redis.saying()
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
		k.opts.Redis.renewed(sent)
		k.apply(func(m *rules.Member, now rules.Time) { m.Renewed(sent, now) })
		k.mu.Lock()
		k.health.announced = mark.Leaving
		if wrote := k.opts.Redis.wrote(lease.says, k.now()); wrote || k.member.Session() == 0 {
			nudge(k.lookNow) // a look begins the session, and a list says who contradicts
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

// watches has changes of the owners heard of as soon as they are made. Without it a look shows that
// a moment later.
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
		case e, open := <-w.ResultChan():
			if !open {
				return
			}
			k.told.Store(objectIn(e))
			nudge(k.lookNow)
		}
	}
}

// objectIn is the object that an event tells of; nil: there is none.
func objectIn(e watch.Event) *corev1.ConfigMap {
	if object, ok := e.Object.(*corev1.ConfigMap); ok && e.Type != watch.Deleted {
		return object
	}
	return nil
}

// looks looks at the members and at the owners until ctx ends, and writes what this member changes:
// at all in each interval, and at what is due when it is asked to.
func (k *Keeper) looks(ctx context.Context) {
	full := -k.timing.Look // when the last round began
	for failed := 0; ; {
		err := k.lookOnce(ctx, &full, failed > 0)
		if errors.Is(err, ErrOtherInstallation) {
			k.fatal <- err
			return
		}
		fails := err != nil && ctx.Err() == nil
		if !fails {
			failed = 0
			if list, _ := k.due(); list { // to move the next ones
				nudge(k.lookNow)
			}
		} else {
			if failed%10 == 0 {
				k.opts.Log.Info("The owners of partitions were not looked at", "failures", failed+1, "cause", err.Error())
			}
			failed++
		}
		if !k.pause(ctx, max(0, untilNext(k, k.now()-full, fails)), k.lookNow) {
			return
		}
	}
}

// round looks at everything: the owners, then the members, so that the list proves who is gone.
// Its session lasts from one round to the next, so there is no other call in it.
func (k *Keeper) round(ctx context.Context) error {
	if list, _ := k.due(); !list || !k.leaves() { // who leaves has little time
		if err := k.look(ctx); err != nil {
			return err
		}
	}
	if err := k.list(ctx); err != nil {
		return errors.Join(err, k.write(ctx)) // what is to be given was listed before
	}
	return k.write(ctx)
}

// chores asks for leader election, gives up the lead of who is gone, and buries the dead, until ctx
// ends. No session depends on any of these.
func (k *Keeper) chores(ctx context.Context) {
	other := &leader{name: k.opts.LeaderLease}
	for failed := 0; ; {
		switch err := errors.Join(k.lookForLeader(ctx, other), freeLead(ctx, k, other), k.bury(ctx)); {
		case err == nil || ctx.Err() != nil:
			failed = 0
		default:
			if failed%10 == 0 {
				k.opts.Log.Info("The Lease of leader election, or those of the dead, were not looked at", "failures", failed+1, "cause", err.Error())
			}
			failed++
		}
		if !k.pause(ctx, k.spread(k.timing.Look), nil) {
			return
		}
	}
}

func (k *Keeper) list(ctx context.Context) error {
	list, say, err := k.api.list(ctx, k.now)
	if err != nil {
		return err
	}
	k.apply(func(m *rules.Member, now rules.Time) {
		m.Listed(list)
		if k.opts.Redis.heardOf(list.Sent, rules.Longest(m), k.opts.Member, say, m.Gone) {
			nudge(k.renewNow)
		}
		k.lastList = list.Sent
		k.remark(now)
	})
	if who := k.opts.Redis.newRival(); who != "" {
		k.opts.Log.Info("This replica has another Redis than the others, and drives no run: set --redis-addrs as they have it, or, "+
			"to change to another Redis, scale the operator to 0 first (docs/install.md, Another Redis)", "other", who)
	}
	return nil
}

// bury deletes the Leases of members that are gone. The owner of the singletons does that, some
// each time, for half of Look: there may be thousands, and leader election is asked for in between.
func (k *Keeper) bury(ctx context.Context) error {
	if !k.Owns(Singletons) {
		return nil
	}
	k.mu.Lock()
	dead := k.member.Dead()
	k.mu.Unlock()
	began := k.now()
	for _, d := range dead {
		if k.now()-began >= k.timing.Look/2 {
			break
		}
		if err := k.api.bury(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// give lists who is there, and gives away what this member has stopped working on. If the list has
// it end more, that follows.
func (k *Keeper) give(ctx context.Context) error {
	if k.isNews() { // the list would use up what asked for a look
		if err := k.hear(ctx); err != nil {
			return err
		}
	}
	if err := k.list(ctx); err != nil {
		return err
	}
	return k.write(ctx)
}

// glance is about the owners only.
func (k *Keeper) glance(ctx context.Context) error {
	if err := k.hear(ctx); err != nil {
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

// hear takes what the watch told, or looks where that does not do. Who is given partitions begins
// without a call of the API server.
func (k *Keeper) hear(ctx context.Context) error {
	told := k.told.Load()
	if told == nil {
		return k.look(ctx)
	}
	e, err := decode(told, k.api.scope)
	if err != nil {
		return k.look(ctx)
	}
	known := false
	k.apply(func(m *rules.Member, now rules.Time) { known = m.Told(told.ResourceVersion, e, now) })
	if !known {
		return k.look(ctx)
	}
	return nil
}

func (k *Keeper) look(ctx context.Context) error {
	l, why, err := k.api.look(ctx, k.now)
	if newer := errors.Is(err, errNewer); newer || err == nil {
		k.newer.Store(newer)
	}
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
		if next != nil {
			k.gaps.takes(k.member, k.opts.Member, *next)
		}
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
			if list, _ := k.due(); list { // who wrote may have left
				if err := k.list(ctx); err != nil {
					return err
				}
			}
		case err != nil:
			k.opts.Metrics.writes.WithLabelValues(outcomeError).Inc()
			return err
		default:
			k.opts.Metrics.writes.WithLabelValues(outcomeOK).Inc()
			k.apply(func(m *rules.Member, now rules.Time) {
				k.written(was, *next, now)
				k.replaced = append(k.replaced[max(0, len(k.replaced)+1-mostReplaced):], base)
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

// freeLead has the owner of the singletons give up the lead of a leader that is gone.
func freeLead(ctx context.Context, k *Keeper, other *leader) error {
	ctx, cancel := context.WithTimeout(ctx, k.api.timeout)
	defer cancel()
	return other.free(ctx, k.opts.Client, k.Owns(Singletons))
}
