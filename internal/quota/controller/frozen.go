// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// errNewer is why a run is not marked that an operator of an older version leaves alone.
var errNewer = errors.New("it needs a newer operator, and this one does not write it")

// endOfTime is when runs are admitted that are counted as if they were: after all others.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// unmarked is a run that waits and may not be marked, because of cause, as it is now. It is nil if
// the run is gone.
func unmarked(ctx context.Context, r *rebuilding, run fact, cause error) (*fact, error) {
	now, err := readSurely(ctx, r.Controller, run.name, run.uid)
	if err != nil || now == nil || now.uid != run.uid {
		return nil, err
	}
	if now.pending() {
		r.log.Info("A run may not be changed: it may be counted as one that is admitted", "run", run.name.String(), "cause", cause.Error())
	}
	return now, nil
}

// asIfAdmitted counts runs that wait and may not be marked as if they were admitted: what was
// decided before the loss may be written once they may be changed. Of each quota those count that
// are first in line, and no more than could have been granted a slot beside those that were
// admitted. The idempotency key of each of them is its own, unless one that is admitted has it.
func asIfAdmitted(ctx context.Context, r *rebuilding, frozen []fact) error {
	if len(frozen) == 0 {
		return nil
	}
	owners, err := ownersNow(ctx, r.client)
	if err != nil {
		return err
	}
	policies, err := policiesNow(ctx, r.client)
	if err != nil {
		return err
	}
	room := roomBeside(r, policies)
	slices.SortFunc(frozen, func(a, b fact) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), a.created.Compare(b.created), cmp.Compare(a.uid, b.uid))
	})
	for _, run := range frozen {
		run.admittedAt, run.policy = endOfTime, owners.Of(run.class)
		if !room.take(run) {
			run.policy = "" // it is counted nowhere
		}
		r.runs[run.uid] = run
	}
	return nil
}

// room is what is left of the limits of quotas.
type room struct {
	policies map[string]policy.Effective
	pools    pools
	used     map[store.Key]int // of tenants, and of pools
}

// roomBeside is what those leave that are admitted.
func roomBeside(r *rebuilding, policies map[string]policy.Effective) room {
	left := room{policies: policies, pools: r.lost.pools, used: map[store.Key]int{}}
	for _, run := range r.runs {
		if run.under(left.pools.keyOf(run.policy, run.tenant)) {
			left.count(run)
		}
	}
	return left
}

func (l room) count(run fact) {
	l.used[store.Key{Policy: run.policy, Tenant: run.tenant}]++
	l.used[store.PoolOf(run.policy)]++
}

// take counts a run if its tenant, and the pool that it is in, have room for it.
func (l room) take(run fact) bool {
	p := l.policies[run.policy].Admission
	limit := p.Limit(run.tenant)
	if limit >= 0 && l.used[store.Key{Policy: run.policy, Tenant: run.tenant}] >= limit {
		return false
	}
	if l.pools[run.policy] && p.Total != nil && l.used[store.PoolOf(run.policy)] >= int(p.Total.MaxConcurrentRuns) {
		return false
	}
	l.count(run)
	return true
}
