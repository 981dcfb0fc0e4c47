// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// keyOf is where the runs of a tenant are counted under a policy: apart, or in the pool of all its
// tenants.
func keyOf(p policy.Effective, tenant string) store.Key {
	if p.Admission.Total != nil {
		return store.PoolOf(p.Name)
	}
	return store.Key{Policy: p.Name, Tenant: tenant}
}

// counts are the slots of tenants and of pools.
type counts struct{ *store.Store }

// Admit is as that of the store, for tenants and pools.
func (c counts) Admit(ctx context.Context, at store.Key, l store.Limits, tenant string, r store.Run) (store.Answer, error) {
	if !at.Pool() {
		return c.Store.Admit(ctx, at, l, r)
	}
	return c.Pools().Admit(ctx, at, l, tenant, r)
}

// Reserve is as that of the store, for tenants and pools.
func (c counts) Reserve(ctx context.Context, at store.Key, l store.Limits, tenant string, r store.Run, ttl time.Duration) (store.Answer, error) {
	if !at.Pool() {
		return c.Store.Reserve(ctx, at, l, r, ttl)
	}
	return c.Pools().Reserve(ctx, at, l, tenant, r, ttl)
}

// Release is as that of the store, for tenants and pools.
func (c counts) Release(ctx context.Context, at store.Key, l store.Limits, uids ...string) ([]store.Next, error) {
	if !at.Pool() {
		return c.Store.Release(ctx, at, l, uids...)
	}
	return c.Pools().Release(ctx, at, l, uids...)
}

// Next gives what is free in a pool to those who are next. Slots of tenants are given to who asks.
func (c counts) Next(ctx context.Context, at store.Key, l store.Limits) ([]store.Next, error) {
	if !at.Pool() {
		return nil, nil
	}
	return c.Pools().Release(ctx, at, l)
}

// Drop is as that of the store, for tenants and pools.
func (c counts) Drop(ctx context.Context, at store.Key, l store.Limits, uids []string) ([]store.Next, error) {
	if !at.Pool() {
		return c.Store.Drop(ctx, at, l, uids)
	}
	return c.Pools().Drop(ctx, at, l, uids)
}

// Restore is as that of the store, for tenants and pools.
func (c counts) Restore(ctx context.Context, at store.Key, all []store.Member) error {
	if !at.Pool() {
		return c.Store.Restore(ctx, at, uidsOf(all))
	}
	return c.Pools().Restore(ctx, at, all)
}

// FinishRebuild is as that of the store, for tenants and pools.
func (c counts) FinishRebuild(ctx context.Context, at store.Key, token string, all []store.Member) error {
	if !at.Pool() {
		return c.Store.FinishRebuild(ctx, at, token, uidsOf(all))
	}
	return c.Pools().FinishRebuild(ctx, at, token, all)
}

// Snapshot is as that of the store, for tenants and pools.
func (c counts) Snapshot(ctx context.Context, at store.Key) (store.Snapshot, error) {
	if !at.Pool() {
		return c.Store.Snapshot(ctx, at)
	}
	return c.Pools().Snapshot(ctx, at)
}

// held is what a key has: slots with all that belongs to them, or owners of idempotency keys.
type held struct {
	slots  store.Snapshot
	owners map[string]store.Claim
}

// read is what a key has. Errors: as Snapshot and Claims of the store.
func (c counts) read(ctx context.Context, at store.Key) (h held, err error) {
	if at.Policy == "" {
		h.owners, err = c.Claims(ctx, at.Tenant)
	} else {
		h.slots, err = c.Snapshot(ctx, at)
	}
	return h, err
}

// add adds what a key has.
func (h holdings) add(at store.Key, has held) {
	if at.Policy == "" {
		h.claims[at.Tenant] = has.owners
		return
	}
	h.snapshots[at] = has.slots
}

// lacks says whether nothing was read of a key.
func (h holdings) lacks(at store.Key) bool {
	if at.Policy == "" {
		_, read := h.claims[at.Tenant]
		return !read
	}
	_, read := h.snapshots[at]
	return !read
}

// empty says whether a key that was read has nothing.
func (h holdings) empty(at store.Key) bool {
	b := h.snapshots[at]
	return len(b.Slots)+len(b.Queue)+len(b.Reserved) == 0 && (at.Policy != "" || len(h.claims[at.Tenant]) == 0)
}

func uidsOf(all []store.Member) []string {
	uids := make([]string, 0, len(all))
	for _, m := range all {
		uids = append(uids, m.UID)
	}
	return uids
}

// member is a run as a pool counts it.
func (f fact) member() store.Member {
	return store.Member{UID: string(f.uid), Tenant: f.tenant, Name: f.name.String()}
}
