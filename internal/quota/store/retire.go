// SPDX-License-Identifier: Apache-2.0

package store

import "context"

// Retire ends slots or, without a policy, idempotency keys that are open and hold nothing: they are
// as if they were never used, and nobody was granted anything of them. ended is false if they hold
// something. What a pool was told of limits ends by itself.
//
// Errors: *UnavailableError (it may have happened), *RebuildingError, ErrInvalidRequest.
func Retire(ctx context.Context, g *Store, k Key) (ended bool, err error) {
	if err := k.check(); err != nil {
		return false, err
	}
	keys := g.claimKeys(k.Tenant)
	if k.Policy != "" {
		keys = g.keys(k)[:4] // a lock that is held keeps nothing
	}
	got, err := g.ask(ctx, g.scripts.retire, k, keys)
	if err != nil {
		return false, err
	}
	return got.number(1) == 1, nil
}
