// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClaimVote claims the one vote that a tenant has in a period of a rollout, which period names, for
// the caller: the first who asks has it, over all processes. It is remembered for ttl, by the clock
// of Redis.
//
// Errors: *UnavailableError, ErrInvalidRequest. After an error nobody may vote: the claim may have
// been made.
func (g *Store) ClaimVote(ctx context.Context, k Key, period string, ttl time.Duration) (ours bool, err error) {
	if err := k.check(); err != nil {
		return false, err
	}
	if !plain(period) || period == "" {
		return false, fmt.Errorf("%w: period %.100q", ErrInvalidRequest, period)
	}
	if err = own(ctx, g); err != nil {
		return false, g.unavailable(k, err)
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	err = g.client.SetArgs(ctx, g.voteKey(k, period), "1", redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	switch {
	case errors.Is(err, redis.Nil):
		return false, nil
	case err != nil:
		return false, g.unavailable(k, err)
	default:
		return true, nil
	}
}

// voteKey is beside the slots of the tenant.
func (g *Store) voteKey(k Key, period string) string {
	return "{" + g.opts.KeyPrefix + "adm:" + k.Policy + ":" + k.Tenant + "}:vote:" + period
}
