// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/locks"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// errRebuilding is the cause where Redis lost its data: nothing can be said until it is counted
// anew.
var errRebuilding = errors.New("the data in Redis is being rebuilt")

// quotas says where the runs of a policy and tenant are counted; nil: not known.
type quotas func(policyName, tenant string) audit.Quota

func (s *Stores) slots(ctx context.Context, snap *audit.Snapshot) (quotas, error) {
	c, err := quota.ReadContents(ctx, s.Quota, maxQuotas)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read slots: %w", err)
	case c == nil:
		return nil, errRebuilding
	}
	for at, b := range c.Snapshots {
		for _, slot := range b.Slots {
			snap.Slots = append(snap.Slots, audit.Slot{Quota: audit.Quota(at), UID: slot.UID})
		}
		for _, place := range b.Queue {
			snap.Places = append(snap.Places, audit.Slot{Quota: audit.Quota(at), UID: place.UID})
		}
	}
	for tenant, claims := range c.Claims {
		for key, claim := range claims {
			if !claim.Reserved { // its run is about to be created
				snap.Keys = append(snap.Keys, audit.Claim{Tenant: tenant, Key: key, UID: claim.UID})
			}
		}
	}
	for _, at := range c.Closed {
		snap.Closed[audit.Quota(at)] = true
	}
	return func(policyName, tenant string) audit.Quota { return audit.Quota(c.KeyOf(policyName, tenant)) }, nil
}

func (s *Stores) locks(ctx context.Context, snap *audit.Snapshot) error {
	seen, err := s.Quota.SnapshotLocks(ctx)
	if _, closed := errors.AsType[*store.RebuildingError](err); closed {
		return errRebuilding
	}
	if err != nil {
		return fmt.Errorf("read locks: %w", err)
	}
	for _, h := range seen.Holds {
		snap.Holds = append(snap.Holds, audit.Hold{Ticket: h.Ticket.ID, UID: string(locks.OwnerOf(h.Ticket.ID)), Fence: h.Fence})
	}
	for _, w := range seen.Waiters {
		snap.Waiters = append(snap.Waiters, audit.Hold{Ticket: w.Ticket.ID, UID: string(locks.OwnerOf(w.Ticket.ID))})
	}
	return nil
}

func (s *Stores) runLocks(ctx context.Context, snap *audit.Snapshot) error {
	uids, all, err := lockmgr.List(ctx, s.Redis, maxLocks)
	if err != nil {
		return err
	}
	if !all {
		return fmt.Errorf("there are more than %d run locks", maxLocks)
	}
	seen, err := lockmgr.Look(ctx, s.Redis, uids)
	if err != nil {
		return err
	}
	for uid, l := range seen {
		snap.RunLocks = append(snap.RunLocks, audit.RunLock{UID: uid, Token: l.Token, Fence: l.Fence, Left: l.Left})
	}
	return nil
}
