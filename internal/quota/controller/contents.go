// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// Contents are what the quotas have, for whoever compares it with the runs.
type Contents struct {
	// Snapshots are of the slots in use, and Claims of the idempotency keys of each tenant.
	Snapshots map[store.Key]store.Snapshot
	Claims    map[string]map[string]store.Claim
	// Closed are the keys whose data was lost and is being rebuilt.
	Closed []store.Key

	pools pools
}

// KeyOf is where the runs of a tenant are counted that were admitted under a policy.
func (c *Contents) KeyOf(policyName, tenant string) store.Key {
	return c.pools.keyOf(policyName, tenant)
}

// ReadContents reads what the quotas have, and changes nothing. Nil and no error: all of it is
// being rebuilt. Errors: those of the store, and that there are more keys than most.
func ReadContents(ctx context.Context, q *store.Store, most int) (*Contents, error) {
	k := &Controller{quota: counts{q}}
	tokens, err := k.register(ctx)
	if err != nil || tokens == nil {
		return nil, err
	}
	if len(tokens) > most {
		return nil, fmt.Errorf("there are %d quotas, and at most %d are read", len(tokens), most)
	}
	c := &Contents{Snapshots: map[store.Key]store.Snapshot{}, Claims: map[string]map[string]store.Claim{}}
	_, c.pools = movesOf(nil, tokens)
	var inUse []store.Key
	for at := range tokens {
		if entryOf(at) != selfEntry && !c.pools.skips(at) {
			inUse = append(inUse, at)
		}
	}
	var mu sync.Mutex
	return c, each(ctx, inUse, func(ctx context.Context, at store.Key) error { return c.read(ctx, k.quota, at, &mu) })
}

func (c *Contents) read(ctx context.Context, q counts, at store.Key, mu *sync.Mutex) error {
	has, err := q.read(ctx, at)
	mu.Lock()
	defer mu.Unlock()
	switch {
	case isClosed(err):
		c.Closed = append(c.Closed, at)
		return nil
	case err != nil:
		return err
	case at.Policy == "":
		c.Claims[at.Tenant] = has.owners
	default:
		c.Snapshots[at] = has.slots
	}
	return nil
}

// CountedAt says under which policy and tenant a run has to have a slot, until it ends; not ok:
// under none, as a child run, or one that is not admitted.
func CountedAt(run *v1alpha1.WorkflowRun) (policyName, tenant string, ok bool) {
	f := factOf(run)
	return f.policy, f.tenant, f.admitted() && !f.finished && !f.child && f.policy != ""
}

// RefusedForKey says whether a run ended because another one has its idempotency key.
func RefusedForKey(run *v1alpha1.WorkflowRun) bool { return factOf(run).refused }

// RestoreSlot enters the slot of a run that is under way, for people's tools. Errors: as Restore
// of the store.
func RestoreSlot(ctx context.Context, q *store.Store, at store.Key, run *v1alpha1.WorkflowRun) error {
	return counts{q}.Restore(ctx, at, []store.Member{factOf(run).member()})
}

// DropRuns takes slots and places from runs that are over or gone, for people's tools. Nobody is
// woken: the resync does that. Errors: as Drop of the store.
func DropRuns(ctx context.Context, q *store.Store, at store.Key, uids ...string) error {
	_, err := counts{q}.Drop(ctx, at, store.Limits{}, uids)
	return err
}
