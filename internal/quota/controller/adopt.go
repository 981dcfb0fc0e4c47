// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// adopt enters keys of runs that are open and not in the register, and reads what they have: a
// register that was lost alone is rebuilt with the keys of admitted runs only. Else nobody would
// free what a run left there, and who comes after a loss of such a key would take it for one that
// was never used. What is read here is younger than the view. That does no harm: the live list that
// tells who is gone is younger still.
func adopt(ctx context.Context, k *Controller, v *view, h holdings) error {
	var mu sync.Mutex
	return each(ctx, v.keysWithout(h), func(ctx context.Context, at store.Key) error {
		has, err := k.quota.read(ctx, at)
		if isClosed(err) {
			return nil // it was never used
		}
		if err == nil { // no opening has this token, and no strike
			_, err = k.quota.ClaimKey(ctx, registerTenant, entryOf(at), store.Claim{UID: k.newID()})
		}
		if err != nil {
			return fmt.Errorf("enter a gate that is open into the register: %w", err)
		}
		mu.Lock()
		defer mu.Unlock()
		h.add(at, has)
		return nil
	})
}

// keysWithout are the keys that runs have or had something of, or want, and of which nothing
// was read.
func (v *view) keysWithout(h holdings) []store.Key {
	keys := map[store.Key]bool{}
	for _, run := range v.runs {
		if run.tenant == "" {
			continue
		}
		if p := v.policyOf(run); p != "" && !run.child {
			keys[h.pools.keyOf(p, run.tenant)] = true
		}
		if run.key != "" {
			keys[store.Key{Tenant: run.tenant}] = true
		}
	}
	return slices.DeleteFunc(slices.Collect(maps.Keys(keys)), func(at store.Key) bool { return !h.lacks(at) })
}

// policyOf is the policy under which a run was admitted, or is to be.
func (v *view) policyOf(run fact) string {
	if run.admitted() {
		return run.policy
	}
	return v.classes[run.class]
}
