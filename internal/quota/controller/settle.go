// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

const (
	// suspicionTime is how long a live run may have something where it does not wait before a
	// resync takes it: the controller does so by itself at once, if it knows.
	suspicionTime = 10 * time.Second
	// goneSuspicionTime is that where the policy is gone. Runs wait for half a minute whether it
	// comes back, and go on in its line then. To take their places back costs a write of each.
	goneSuspicionTime = time.Minute
	// grantTime is how long a run that waits may have a slot, or the next turn in line, and not use
	// it. As a rule it is admitted within a second.
	grantTime = 2 * time.Minute
)

// settle compares what the quotas have with the runs, and repairs the differences. The view is read
// after the holdings: a run with a slot is older than the view, so one that is missing in a live
// list is gone.
func (k *Controller) settle(ctx context.Context, h holdings) error {
	v, err := k.look(ctx)
	if err != nil {
		return err
	}
	k.prune(v)
	if err := adopt(ctx, k, v, h); err != nil {
		return err
	}
	k.quota.Show(h.snapshots)
	all := k.auditAll(v, h)
	gone, failed := k.gone(ctx, v, h, all)
	if gone == nil {
		return failed
	}
	k.suspect(v, all)
	var mu sync.Mutex
	note := func(err error) { mu.Lock(); defer mu.Unlock(); failed = errors.Join(failed, err) }
	keys := make([]store.Key, 0, len(all))
	for at := range all {
		keys = append(keys, at)
	}
	if err := each(ctx, keys, func(ctx context.Context, at store.Key) error {
		note(k.repair(ctx, v, at, all[at], gone)) // what cannot be done at one quota keeps none of the others
		return nil
	}); err != nil {
		return err
	}
	return errors.Join(failed, k.releaseKeysOfGone(ctx, v, h, gone), retire(ctx, k, v, h))
}

// auditAll compares all quotas that have something, or should.
func (k *Controller) auditAll(v *view, h holdings) map[store.Key]findings {
	admitted, waiting := map[store.Key][]fact{}, map[store.Key][]fact{}
	keys := map[store.Key]bool{}
	for at := range h.snapshots {
		keys[at] = true
	}
	for _, run := range v.runs {
		at := h.pools.keyOf(run.policy, run.tenant)
		switch {
		case run.under(at):
			admitted[at] = append(admitted[at], run)
		case run.waits() && run.tenant == "":
			k.wake(run.name) // nobody has looked at it yet
			continue
		case run.waits():
			at = h.pools.keyOf(v.classes[run.class], run.tenant)
			waiting[at] = append(waiting[at], run)
		default:
			continue
		}
		keys[at] = true
	}
	all := make(map[store.Key]findings, len(keys))
	for at := range keys {
		limit := 0                                            // a policy that is deleted lets nobody in
		if p, ok := v.policies[at.Policy]; ok && !at.Pool() { // a pool gives slots itself
			limit = p.Admission.Limit(at.Tenant)
		}
		all[at] = audit(v, at, h.snapshots[at], limit, admitted[at], waiting[at])
	}
	return all
}

// gone is which runs that the cache does not know do not exist. They are listed, live, only
// when one of them is unknown for a while, or very many are unknown. The list is younger than all
// holdings, so it tells of the others, too. Runs of reservations that have ended are read one by
// one: some client may make such ones all the time. It is nil if the list failed; after an error of
// such a read it tells of those that were read.
func (k *Controller) gone(ctx context.Context, v *view, h holdings, all map[store.Key]findings) (map[types.UID]bool, error) {
	uids, lapsed := unknown(v, h, all)
	if len(lapsed) > mostLooks {
		for uid := range lapsed {
			uids = append(uids, uid)
		}
		lapsed = nil
	}
	now, seen, late := k.clock.Now(), map[types.UID]time.Time{}, false
	for _, uid := range uids {
		late = resyncs.Lasts(k.unknown, seen, uid, now) >= resyncs.UnknownTime || late
	}
	k.unknown = seen
	gone, failed := neverBorn(ctx, k, lapsed)
	if !late && len(seen) <= mostLooks {
		return gone, failed
	}
	existing, err := k.liveUIDs(ctx)
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	for uid := range seen {
		gone[uid] = !existing[uid] // else the cache will know it
	}
	return gone, failed
}

// unknown are the runs that have something and that the cache does not know, and the names of those
// whose reservation of a key has ended. A key that is reserved is no such thing: it is of a run
// that is about to be created.
func unknown(v *view, h holdings, all map[store.Key]findings) (uids []types.UID, lapsed map[types.UID]string) {
	lapsed = map[types.UID]string{}
	for _, f := range all {
		uids = append(uids, f.unknown...)
	}
	for _, owners := range h.claims {
		for _, c := range owners {
			uid := types.UID(c.UID)
			_, known := v.runs[uid]
			switch {
			case known || c.Reserved:
			case c.Lapsed:
				lapsed[uid] = c.Name
			default:
				uids = append(uids, uid)
			}
		}
	}
	return uids, lapsed
}

// neverBorn is which of these runs do not exist, by live reads. One that is created after all
// claims its key, for good. One that is doubted is for the next resync. After a read that fails so
// are the others: each may take its time to fail.
func neverBorn(ctx context.Context, k *Controller, lapsed map[types.UID]string) (gone map[types.UID]bool, doubted error) {
	gone = map[types.UID]bool{}
	for uid, name := range lapsed {
		run, err := k.read(ctx, nameOf(name), uid)
		switch {
		case errors.Is(err, resyncs.ErrDoubted):
			doubted = err // one stands for all: there may be thousands
		case err != nil:
			return gone, errors.Join(doubted, err)
		default:
			gone[uid] = run == nil || run.uid != uid
		}
	}
	return gone, doubted
}

// suspect remembers since when live runs have something where they do not wait, or that they do not
// use, and leaves in the findings those of whom that is known for long enough. Who is to lose what
// it does not use is not woken: it could have it again before who is next.
func (k *Controller) suspect(v *view, all map[store.Key]findings) {
	now := k.clock.Now()
	seen, idle := map[holding]time.Time{}, map[holding]time.Time{}
	for at, f := range all {
		f.unused = slices.DeleteFunc(f.unused, func(run fact) bool {
			return run.keptUntil.After(now) || resyncs.Lasts(k.idle, idle, holding{at, run.uid}, now) < grantTime
		})
		loses := map[types.UID]bool{}
		for _, run := range f.unused {
			loses[run.uid] = true
		}
		f.wake = slices.DeleteFunc(f.wake, func(run fact) bool { return loses[run.uid] })
		var ripe []fact
		patience := suspicionTime
		if _, there := v.policies[at.Policy]; !there {
			patience = goneSuspicionTime
		}
		for _, run := range f.misplaced {
			if resyncs.Lasts(k.suspects, seen, holding{at, run.uid}, now) >= patience {
				ripe = append(ripe, run)
			}
		}
		f.misplaced = ripe
		all[at] = f
	}
	k.suspects, k.idle = seen, idle
}

// repair does what an audit found: slots that are missing first, so that nobody gets in for what is
// freed before they are counted.
func (k *Controller) repair(ctx context.Context, v *view, at store.Key, f findings, gone map[types.UID]bool) error {
	limits := store.Limits{}
	if p, ok := v.policies[at.Policy]; ok {
		limits = limitsOf(p, at.Tenant)
	}
	if err := k.restore(ctx, at, f.missing); err != nil {
		return err
	}
	drop := make([]string, 0, len(f.over))
	for _, uid := range f.over {
		drop = append(drop, string(uid))
	}
	for _, uid := range f.unknown {
		if gone[uid] {
			drop = append(drop, string(uid))
		}
	}
	var failed error
	if len(drop) > 0 {
		next, err := k.quota.Drop(ctx, at, limits, drop)
		failed = k.wakeNext(ctx, at, limits, next) // after an error, too: some were dropped
		if err != nil {
			return errors.Join(fmt.Errorf("free what runs left at the gate: %w", err), failed)
		}
	}
	failed = errors.Join(failed, k.giveAll(ctx, at, limits), k.wakeNext(ctx, at, limits, f.headsBut(gone)))
	failed = errors.Join(failed, takeAll(ctx, k, v, at, limits, f))
	for _, run := range f.wake {
		k.wake(run.name)
	}
	return failed
}

// giveAll gives all that is free in a pool: one call gives to some hundreds only, so that it is
// short.
func (k *Controller) giveAll(ctx context.Context, at store.Key, l store.Limits) error {
	for {
		next, err := k.quota.Next(ctx, at, l)
		if err = errors.Join(err, k.wakeNext(ctx, at, l, next)); err != nil || len(next) == 0 {
			return err
		}
	}
}

// restore gives slots to runs that are admitted and not over, as they are now. One that is doubted
// has its slot with the next resync, and keeps none of the others from theirs.
func (k *Controller) restore(ctx context.Context, at store.Key, missing []fact) (doubted error) {
	var there []store.Member
	for _, run := range missing {
		now, err := readSurely(ctx, k, run.name, run.uid)
		switch {
		case errors.Is(err, resyncs.ErrDoubted):
			doubted = err
		case err != nil:
			return err
		case now != nil && now.uid == run.uid && now.under(at):
			there = append(there, now.member())
		}
	}
	if len(there) == 0 {
		return doubted
	}
	err := k.opened(ctx, at, func() error { return k.quota.Restore(ctx, at, there) })
	if err != nil {
		return fmt.Errorf("restore slots: %w", err)
	}
	return doubted
}

// taking is how something is taken from live runs.
type taking struct {
	at     store.Key
	limits store.Limits
	keeps  func(now fact) bool // whether a run, as it is now, keeps what it has
	free   func(ctx context.Context, at store.Key, l store.Limits, uid string) ([]store.Next, error)
}

// takeAll takes what live runs have where they do not wait, and what those that wait do not use.
func takeAll(ctx context.Context, k *Controller, v *view, at store.Key, limits store.Limits, f findings) (failed error) {
	misplaced := taking{at: at, limits: limits, keeps: func(now fact) bool { return v.waitsAt(now, at) }}
	misplaced.free = func(ctx context.Context, at store.Key, l store.Limits, uid string) ([]store.Next, error) {
		return k.quota.Drop(ctx, at, l, []string{uid})
	}
	for _, run := range f.misplaced {
		if run.newer {
			failed = errors.Join(failed, leaveLine(ctx, k, misplaced, run))
			continue
		}
		failed = errors.Join(failed, takeBack(ctx, k, misplaced, run))
	}
	unused := taking{at: at, limits: limits, keeps: func(now fact) bool { return now.keptUntil.After(k.clock.Now()) }}
	unused.free = func(ctx context.Context, at store.Key, l store.Limits, uid string) ([]store.Next, error) {
		return k.quota.Release(ctx, at, l, uid) // it is no drift: the run may have it again
	}
	for _, run := range f.unused {
		failed = errors.Join(failed, takeBack(ctx, k, unused, run))
	}
	return failed
}

// takeBack takes what a live run has. It is marked first: whoever was granted that slot before, and
// may be paused since, can then not use it. And it is read afterwards, for whoever was granted it
// since. A run that may not be marked has what it has. That is no error: all quotas would be looked
// at again and again.
func takeBack(ctx context.Context, k *Controller, t taking, run fact) error {
	now, err := k.mark(ctx, run, k.newID())
	if resyncs.Unmarked(err) {
		k.log.Info("A run may not be changed, so it keeps a slot, or a place in line, that it does not use", "run", run.name.String(), "cause", err.Error())
		return nil
	}
	if err != nil || now == nil || now.newer || now.under(t.at) || t.keeps(*now) {
		return err // also if it is gone: that is for the next resync
	}
	next, err := t.free(ctx, t.at, t.limits, string(run.uid))
	if err != nil {
		return fmt.Errorf("take back a place: %w", err)
	}
	return errors.Join(k.putBack(ctx, holding{t.at, run.uid}, run.name), k.wakeNext(ctx, t.at, t.limits, next))
}

// leaveLine takes the place in line of a run that needs a newer operator, which is not written, so
// that nobody waits behind it. A slot that it was granted meanwhile may be written by a newer one.
func leaveLine(ctx context.Context, k *Controller, t taking, run fact) error {
	next, err := store.DropPlace(ctx, k.quota.Store, t.at, t.limits, string(run.uid))
	if err != nil {
		return fmt.Errorf("take the place of a run that needs a newer operator: %w", err)
	}
	return k.wakeNext(ctx, t.at, t.limits, next)
}

// releaseKeysOfGone gives up the idempotency keys of runs that are gone, or were themselves refused
// for their key. One that is about to be created is not gone, and one that was created since keeps
// its key.
func (k *Controller) releaseKeysOfGone(ctx context.Context, v *view, h holdings, gone map[types.UID]bool) error {
	type claimed struct {
		tenant, key string
		owner       store.Claim
	}
	var loose []claimed
	for tenant, owners := range h.claims {
		for key, c := range owners {
			if (gone[types.UID(c.UID)] && !c.Reserved) || v.runs[types.UID(c.UID)].refused {
				loose = append(loose, claimed{tenant, key, c})
			}
		}
	}
	return each(ctx, loose, func(ctx context.Context, c claimed) error {
		if err := store.ReleaseClaim(ctx, k.quota.Store, c.tenant, c.key, c.owner); err != nil {
			return fmt.Errorf("give up an idempotency key: %w", err)
		}
		return nil
	})
}

// prune forgets the names of runs that do not wait any more.
func (k *Controller) prune(v *view) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for uid := range k.names {
		if run, ok := v.runs[uid]; !ok || !run.pending() {
			k.forget(uid)
		}
	}
}
