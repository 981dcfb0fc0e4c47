// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// pools are the policies whose tenants are counted together.
type pools map[string]bool

// keyOf is where a run of a tenant is counted that was admitted under a policy.
func (p pools) keyOf(policyName, tenant string) store.Key {
	if p[policyName] {
		return store.PoolOf(policyName)
	}
	return store.Key{Policy: policyName, Tenant: tenant}
}

// skips says that a key is out of use: its tenant is counted in the pool.
func (p pools) skips(at store.Key) bool { return at.Policy != "" && !at.Pool() && p[at.Policy] }

// policiesNow are all policies by the cache, by name.
func policiesNow(ctx context.Context, cache client.Reader) (map[string]policy.Effective, error) {
	var list v1alpha1.LockPolicyList
	if err := cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list lock policies: %w", err)
	}
	all := make(map[string]policy.Effective, len(list.Items))
	for i := range list.Items {
		all[list.Items[i].Name] = policy.Of(&list.Items[i])
	}
	return all, nil
}

// ownersNow are the owners of all classes by the cache.
func ownersNow(ctx context.Context, cache client.Reader) (policy.Owners, error) {
	var list v1alpha1.LockPolicyList
	if err := cache.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list lock policies: %w", err)
	}
	return policy.OwnersOf(list.Items), nil
}

// moves are the policies that count their tenants otherwise than the register says: together from
// now on, or apart. Nobody is admitted under them until their runs were counted anew.
//
//	together   its pool is entered, and the slots of its tenants are shut; from then on none of them is
//	           opened any more. Then the runs are listed and marked, and the pool is opened
//	apart      its pool is shut, the slots of its tenants are counted, and then the pool is struck from
//	           the register, after which tenants that have no run may be opened by whoever comes
type moves struct {
	together, apart pools
}

// movesOf compares policies with the register, and says what is counted together after the moves. A
// policy that is deleted stays as it was.
func movesOf(policies map[string]policy.Effective, tokens map[store.Key]string) (moves, pools) {
	m, now := moves{pools{}, pools{}}, pools{}
	for at := range tokens {
		if at.Pool() {
			now[at.Policy] = true
		}
	}
	for name, p := range policies {
		switch shared := p.Admission.Total != nil; {
		case shared && !now[name]:
			m.together[name], now[name] = true, true
		case !shared && now[name]:
			m.apart[name] = true
			delete(now, name)
		}
	}
	return m, now
}

// shut closes what moves have to count anew, and says which keys that are. It also closes what a
// move that was cut off should have closed. runs are those of the cache; a live list
// finds the others.
func (r *rebuilding) shut(ctx context.Context, runs map[string][]fact) ([]store.Key, error) {
	keys, err := r.gather(ctx)
	if err != nil {
		return nil, err
	}
	closing, err := r.closing(ctx)
	if err != nil {
		return nil, err
	}
	apart := r.lost.moves.apart
	for _, at := range closing {
		if apart[at.Policy] && !at.Pool() {
			keys = append(keys, at)
		}
	}
	for name := range apart {
		for _, run := range runs[name] {
			keys = append(keys, store.Key{Policy: name, Tenant: run.tenant})
		}
	}
	err = each(ctx, closing, func(ctx context.Context, at store.Key) error {
		if err := r.quota.Shut(ctx, at); err != nil {
			return fmt.Errorf("shut slots that are counted elsewhere: %w", err)
		}
		return nil
	})
	slices.SortFunc(keys, compareKeys)
	return slices.Compact(keys), err
}

// closing are the keys that are counted elsewhere from now on. The register is read once more,
// after the pools are in it: whoever did not see them there before it opens the slots of a tenant
// had entered these before.
func (r *rebuilding) closing(ctx context.Context) (keys []store.Key, err error) {
	tokens, err := r.register(ctx)
	if err != nil {
		return nil, err
	}
	if tokens == nil {
		return nil, store.ErrRebuildLost
	}
	moving := maps.Clone(r.lost.moves.together)
	for _, at := range r.lost.keys {
		if at.Pool() { // closed: the move that began it may have been cut off
			moving[at.Policy] = true
		}
	}
	for at := range tokens {
		if moving[at.Policy] && !at.Pool() || r.lost.moves.apart[at.Policy] {
			keys = append(keys, at)
		}
	}
	return keys, nil
}

// gather enters the pools of policies that count together from now on into the register: from then
// on nobody opens slots of their tenants.
func (r *rebuilding) gather(ctx context.Context) (keys []store.Key, err error) {
	for name := range r.lost.moves.together {
		at := store.PoolOf(name)
		token, err := r.begin(ctx, at)
		if err != nil {
			return nil, err
		}
		if _, err := r.quota.ClaimKey(ctx, registerTenant, entryOf(at), store.Claim{UID: token}); err != nil {
			return nil, fmt.Errorf("enter the pool of %s: %w", name, err)
		}
		keys = append(keys, at)
	}
	return keys, nil
}

func compareKeys(a, b store.Key) int {
	return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Tenant, b.Tenant))
}

// dissolve strikes pools from the register whose tenants were counted apart.
func (r *rebuilding) dissolve(ctx context.Context) error {
	return each(ctx, slices.Collect(maps.Keys(r.lost.moves.apart)), func(ctx context.Context, name string) error {
		at := store.PoolOf(name)
		return r.strike(ctx, at, r.lost.tokens[at])
	})
}

// inPool says whether the register has a pool of a policy. Then no tenant of it is counted apart.
func (k *Controller) inPool(ctx context.Context, at store.Key) (bool, error) {
	if at.Policy == "" || at.Pool() {
		return at.Pool(), nil
	}
	owner, err := k.quota.ReserveKey(ctx, registerTenant, entryOf(store.PoolOf(at.Policy)), store.Claim{UID: "-"}, 0)
	return owner.UID != "", err
}
