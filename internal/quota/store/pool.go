// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/internal/shares"
)

// poolTenant is where the pool of a policy is. No tenant has this name.
const poolTenant = "*"

// maxTold bounds the tries to tell a pool its limits in one call.
const maxTold = 2

// PoolOf is the key of the pool of a policy: the slots of all its tenants.
func PoolOf(policyName string) Key { return Key{Policy: policyName, Tenant: poolTenant} }

// Pool says that a key is a pool.
func (k Key) Pool() bool { return k.Tenant == poolTenant }

// Next is a run in a queue whose turn has come by the call of another. In a pool it has its slot;
// else it is to ask for it.
type Next struct {
	UID string
	// Name is namespace/name.
	Name string
}

// Member is a run that has a slot of a pool.
type Member struct {
	UID, Tenant string
	// Name is namespace/name.
	Name string
}

// errTold is what a pool says that does not know the newest limits.
var errTold = errors.New("the pool does not know the newest limits")

// Pools are the slots of tenants that share a total.
type Pools struct{ *Store }

// Pools are those of this store.
func (g *Store) Pools() Pools { return Pools{g} }

// poolKeys are the Redis keys of a pool, in the order of pool.lua.
func (g Pools) poolKeys(k Key) []string {
	keys := g.keys(k)
	base := strings.TrimSuffix(keys[0], "slots")
	return append(keys, base+"limits", base+"turn")
}

// Admit is that of a Store, for a policy whose tenants share a total. Slots that it gives to others
// are in Answer.Given, for the caller to wake. tenant is that of the run; l.Shares are the limits.
//
// Errors: as Admit.
func (g Pools) Admit(ctx context.Context, k Key, l Limits, tenant string, r Run) (Answer, error) {
	if err := errors.Join(k.checkPool(), checkTenant(tenant), r.check()); err != nil {
		return Answer{}, err
	}
	return g.decideShared(ctx, surfaceController, k, l, tenant, func(ctx context.Context, token string) (reply, error) {
		return g.ask(ctx, g.scripts.poolAdmit, k, g.poolKeys(k), token, l.Shares.Version, tenant, r.UID, r.Name, member(r))
	})
}

// Reserve is that of a Store, for a policy whose tenants share a total.
//
// Errors: as Admit.
func (g Pools) Reserve(ctx context.Context, k Key, l Limits, tenant string, r Run, ttl time.Duration) (Answer, error) {
	if err := errors.Join(k.checkPool(), checkTenant(tenant), r.check()); err != nil {
		return Answer{}, err
	}
	return g.decideShared(ctx, surfaceWebhook, k, l, tenant, func(ctx context.Context, token string) (reply, error) {
		return g.ask(ctx, g.scripts.poolReserve, k, g.poolKeys(k), token, l.Shares.Version, tenant, r.UID, max(0, ttl).Milliseconds())
	})
}

// decideShared makes a decision by the strategy of the limits. One lock of strategy Lock is for all
// tenants of the pool.
func (g Pools) decideShared(
	ctx context.Context, surface string, k Key, l Limits, tenant string, script func(context.Context, string) (reply, error),
) (Answer, error) {
	if l.Shares == nil {
		return Answer{}, fmt.Errorf("%w: no limits of %s", ErrInvalidRequest, k)
	}
	of := Key{Policy: k.Policy, Tenant: tenant}
	return g.decideAs(ctx, surface, k, of, l, func(ctx context.Context, token string) (Answer, error) {
		var got reply
		err := g.told(ctx, k, l, func() (err error) { got, err = script(ctx, token); return err })
		if err != nil {
			return Answer{}, err
		}
		g.learn(g.poolKeys(k)[0], got)
		a := Answer{
			Limit: l.Max, Used: got.number(1), Waiting: got.number(2), Reserved: got.number(3), Admitted: got.number(4) == 1, Position: got.number(5),
			All: got.number(7), Total: got.number(8), Given: nextOf(got.list(9)), AllReserved: got.number(10),
		}
		if ahead, err := parseMember(got.text(6)); err == nil {
			a.Ahead = ahead.Name
		}
		return a, nil
	})
}

// told makes a call, and tells the pool its limits first if it does not know them.
func (g Pools) told(ctx context.Context, k Key, l Limits, call func() error) error {
	err := call()
	for range maxTold {
		if !errors.Is(err, errTold) {
			return err
		}
		if err = g.tell(ctx, k, *l.Shares); err == nil {
			err = call()
		}
	}
	if errors.Is(err, errTold) { // evicted each time
		return g.unavailable(k, err)
	}
	return err
}

func (g Pools) tell(ctx context.Context, k Key, l shares.Limits) error {
	args := []any{strconv.FormatInt(l.Version, 10), l.Total, l.Max}
	for tenant, s := range l.Tenants {
		if err := checkTenant(tenant); err != nil {
			return err
		}
		args = append(args, tenant, fmt.Sprintf("%d %d %d", s.Max, s.Guaranteed, max(1, s.Weight)))
	}
	_, err := g.ask(ctx, g.scripts.poolLimits, k, g.poolKeys(k), args...)
	return err
}

// Release is that of a Store and, without UIDs, Next. What is free is given to those who
// are next; they are returned for the caller to wake. Without l.Shares nobody is next.
//
// Errors: as Release.
func (g Pools) Release(ctx context.Context, k Key, l Limits, uids ...string) ([]Next, error) {
	given, _, err := g.freeShared(ctx, k, l, uids)
	return given, err
}

// Drop is that of a Store.
//
// Errors: as Release.
func (g Pools) Drop(ctx context.Context, k Key, l Limits, uids []string) ([]Next, error) {
	given, freed, err := g.freeShared(ctx, k, l, uids)
	g.opts.Metrics.drifted(driftLeaked, freed.slots)
	g.opts.Metrics.drifted(driftStalePlace, freed.places)
	return given, err
}

func (g Pools) freeShared(ctx context.Context, k Key, l Limits, uids []string) ([]Next, freed, error) {
	if err := errors.Join(k.checkPool(), checkUIDs(uids...)); err != nil {
		return nil, freed{}, err
	}
	version := ""
	if l.Shares != nil {
		version = strconv.FormatInt(l.Shares.Version, 10)
	}
	var given []Next
	var had freed
	err := inPortions(uids, func(some []string, last bool) error {
		version := version
		if !last {
			version = "" // nobody is given a slot who is in a portion that comes
		}
		var got reply
		if err := g.told(ctx, k, l, func() (err error) {
			got, err = g.ask(ctx, g.scripts.poolFree, k, g.poolKeys(k), append([]any{version}, anys(some)...)...)
			return err
		}); err != nil {
			return err
		}
		g.learn(g.poolKeys(k)[0], got)
		given = nextOf(got[min(6, len(got)):])
		had.slots, had.places = had.slots+got.number(4), had.places+got.number(5)
		return nil
	})
	return given, had, err
}

// Restore is that of a Store.
//
// Errors: as Restore.
func (g Pools) Restore(ctx context.Context, k Key, all []Member) error {
	added, err := g.restoreShared(ctx, k, "", all)
	g.opts.Metrics.drifted(driftMissing, added)
	return err
}

// FinishRebuild is that of a Store.
//
// Errors: as FinishRebuild.
func (g Pools) FinishRebuild(ctx context.Context, k Key, token string, all []Member) error {
	if err := checkToken(token); err != nil {
		return err
	}
	_, err := g.restoreShared(ctx, k, token, all)
	if errors.Is(err, errLost) {
		return fmt.Errorf("%w (%s)", ErrRebuildLost, k)
	}
	return err
}

// restoreShared is restoreAll for a pool.
func (g Pools) restoreShared(ctx context.Context, k Key, token string, all []Member) (added int, err error) {
	err = k.checkPool()
	for _, m := range all {
		err = errors.Join(err, checkTenant(m.Tenant), Run{UID: m.UID, Name: m.Name}.check())
	}
	if err != nil {
		return 0, err
	}
	err = inPortions(all, func(some []Member, last bool) error {
		args := []any{token, moreComes(last)}
		for _, m := range some {
			args = append(args, m.UID, m.Tenant, m.Name)
		}
		got, err := g.ask(ctx, g.scripts.poolRestore, k, g.poolKeys(k), args...)
		if err != nil {
			return err
		}
		g.learn(g.poolKeys(k)[0], got)
		added += got.number(4)
		return nil
	})
	return added, err
}

// Snapshot is that of a Store; its queue is by tenant.
//
// Errors: as Snapshot.
func (g Pools) Snapshot(ctx context.Context, k Key) (Snapshot, error) {
	if err := k.checkPool(); err != nil {
		return Snapshot{}, err
	}
	got, err := g.ask(ctx, g.scripts.poolSnapshot, k, g.poolKeys(k))
	if err != nil {
		return Snapshot{}, err
	}
	g.learn(g.poolKeys(k)[0], got)
	b, now := Snapshot{}, got.number(4)
	for all := got.list(5); len(all) > 1; all = all[2:] {
		at, rest, _ := strings.Cut(all.text(1), " ")
		tenant, _, _ := strings.Cut(rest, " ")
		b.Slots = append(b.Slots, Slot{UID: all.text(0), Age: millis(max(0, now-reply{at}.number(0))), Tenant: tenant})
	}
	slices.SortFunc(b.Slots, func(x, y Slot) int { return strings.Compare(x.UID, y.UID) })
	for _, m := range got.list(6).texts(0) {
		tenant, m, _ := strings.Cut(m, " ")
		run, err := parseMember(m)
		if err != nil {
			return Snapshot{}, g.unavailable(k, err)
		}
		run.Tenant = tenant
		b.Queue = append(b.Queue, run)
	}
	b.Reserved = reservationsOf(got.list(7), now)
	return b, nil
}

func nextOf(r reply) []Next {
	var all []Next
	for ; len(r) > 1; r = r[2:] {
		all = append(all, Next{UID: r.text(0), Name: r.text(1)})
	}
	return all
}

func (k Key) checkPool() error {
	if !k.Pool() {
		return fmt.Errorf("%w: %s has no pool", ErrInvalidRequest, k)
	}
	return k.check()
}

// checkTenant refuses what could be mistaken for something else in a pool.
func checkTenant(tenant string) error {
	if !plain(tenant) || tenant == "" || tenant == poolTenant || strings.HasPrefix(tenant, ":") {
		return fmt.Errorf("%w: tenant %.100q", ErrInvalidRequest, tenant)
	}
	return nil
}
