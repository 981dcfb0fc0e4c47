// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// annotationRebuilt marks runs that were not admitted when the data was rebuilt; its value is that
// of the last rebuild. All it is for is to change the run's resourceVersion.
const annotationRebuilt = "syncopate.dev/admission-rebuilt"

// maxLists bounds the live lists of a rebuild.
const maxLists = 5

// rebuilding is one rebuild.
type rebuilding struct {
	*Controller
	lost    loss
	tokens  map[store.Key]string // of the keys that are being rebuilt
	runs    map[types.UID]fact
	claims  map[types.UID]store.Claim // of those with idempotency keys
	touched int
}

// rebuild counts the runs anew and opens what is closed. See "Rebuild" in the
// package documentation.
//
// Errors: store.ErrRebuildLost: begin anew.
func (k *Controller) rebuild(ctx context.Context, lost loss) (err error) {
	began := k.clock.Now()
	r := &rebuilding{Controller: k, lost: lost, tokens: map[store.Key]string{}}
	defer func() {
		outcome := outcomeDone
		if err != nil {
			outcome = outcomeFailed
		}
		k.metrics.rebuilds.WithLabelValues(outcome).Inc()
	}()
	if err := r.run(ctx); err != nil {
		return fmt.Errorf("rebuild admission data: %w", err)
	}
	k.log.Info("Admission data was lost and is rebuilt", "all", lost.register, "gates", len(r.tokens), "runs", len(r.runs),
		"marked", r.touched, "took", k.clock.Since(began).String())
	return nil
}

func (r *rebuilding) run(ctx context.Context) error {
	var register string
	if r.lost.register {
		var err error
		if register, err = r.quota.BeginRebuildKeys(ctx, registerTenant); err != nil {
			return err
		}
		for name := range r.lost.pools { // also without a run: nobody opens a pool that is not in the register
			r.lost.keys = append(r.lost.keys, store.PoolOf(name))
		}
		// What the cache knows is begun first; then usually one list will do.
		if err := r.fromCache(ctx); err != nil {
			return err
		}
	} else if err := r.move(ctx); err != nil {
		return err
	}
	if _, err := r.beginAll(ctx, r.lost.keys); err != nil {
		return err
	}
	if err := r.count(ctx); err != nil {
		return err
	}
	if err := r.finishAll(ctx); err != nil {
		return err
	}
	if r.lost.register {
		return r.enter(ctx, register, r.tokens) // last: nobody opens a key by itself before
	}
	return r.dissolve(ctx) // last, too
}

// move shuts what policies have counted otherwise until now.
func (r *rebuilding) move(ctx context.Context) error {
	v, err := r.look(ctx)
	if err != nil {
		return err
	}
	runs := map[string][]fact{}
	for _, run := range v.runs {
		if run.admitted() && !run.finished && !run.child {
			runs[run.policy] = append(runs[run.policy], run)
		}
	}
	keys, err := r.shut(ctx, runs)
	r.lost.keys = append(r.lost.keys, keys...)
	return err
}

func (r *rebuilding) fromCache(ctx context.Context) error {
	v, err := r.look(ctx)
	if err != nil {
		return err
	}
	_, err = r.beginAll(ctx, r.keysOf(v.runs))
	return err
}

// count lists all runs, live, and marks those that may still be admitted, until all keys that any
// of them has were begun before the list: those of the list, and those of runs that were admitted
// between the list and the mark.
func (r *rebuilding) count(ctx context.Context) error {
	for range maxLists {
		if err := r.list(ctx); err != nil {
			return err
		}
		if err := r.touch(ctx); err != nil {
			return err
		}
		if more, err := r.beginNew(ctx); err != nil || !more {
			return err
		}
	}
	return errRestless
}

// beginNew begins the keys of listed runs that were not begun before the list.
func (r *rebuilding) beginNew(ctx context.Context) (more bool, err error) {
	keys := r.keysOf(r.runs)
	if !r.lost.register { // other keys are open
		keys = slices.DeleteFunc(keys, func(at store.Key) bool { return !r.lost.moves.apart[at.Policy] })
	}
	return r.beginAll(ctx, keys)
}

// keysOf are all keys that runs have something of.
func (r *rebuilding) keysOf(runs map[types.UID]fact) []store.Key {
	var keys []store.Key
	for _, run := range runs {
		if at := r.lost.pools.keyOf(run.policy, run.tenant); run.under(at) {
			keys = append(keys, at)
		}
		if run.owns() {
			keys = append(keys, store.Key{Tenant: run.tenant})
		}
	}
	return keys
}

// owns says whether the run has its idempotency key for certain: nobody is admitted without.
func (f fact) owns() bool { return f.admitted() && f.key != "" && f.tenant != "" }

func (r *rebuilding) beginAll(ctx context.Context, keys []store.Key) (more bool, err error) {
	var fresh []store.Key
	for _, at := range keys {
		if _, ok := r.tokens[at]; !ok {
			r.tokens[at] = ""
			fresh = append(fresh, at)
		}
	}
	var mu sync.Mutex
	err = each(ctx, fresh, func(ctx context.Context, at store.Key) error {
		token, err := r.begin(ctx, at)
		mu.Lock()
		defer mu.Unlock()
		r.tokens[at] = token
		return err
	})
	return len(fresh) > 0, err
}

// list reads all runs live.
func (r *rebuilding) list(ctx context.Context) error {
	r.runs, r.claims = map[types.UID]fact{}, map[types.UID]store.Claim{}
	page := &v1alpha1.WorkflowRunList{}
	for {
		next := page.Continue
		page = &v1alpha1.WorkflowRunList{}
		if err := r.live.List(ctx, page, client.Limit(runsPage), client.Continue(next)); err != nil {
			return fmt.Errorf("list runs live: %w", err)
		}
		for i := range page.Items {
			run := factOf(&page.Items[i])
			r.runs[run.uid] = run
			if run.key == "" {
				continue
			}
			claim, err := claimOf(&page.Items[i])
			if err != nil {
				return err
			}
			r.claims[run.uid] = claim
		}
		if page.Continue == "" {
			return nil
		}
	}
}

// touch marks the runs that may still be admitted: what was decided about them before the loss
// cannot be written after that. What comes back says who was admitted before. One that is suspended
// needs no mark: nobody was granted a slot for it since that edit, which moved its resourceVersion.
// One that may not be marked holds up nobody: see asIfAdmitted.
func (r *rebuilding) touch(ctx context.Context) error {
	pending := r.undecided()
	r.touched = len(pending)
	id := r.newID() // another one each time: the same changes nothing
	var frozen []fact
	var mu sync.Mutex
	if err := each(ctx, pending, func(ctx context.Context, run fact) error {
		now, refused, err := markOrRead(ctx, r, run, id)
		mu.Lock()
		defer mu.Unlock()
		if delete(r.runs, run.uid); now != nil {
			r.runs[run.uid] = *now
		}
		if refused && now != nil && now.pending() && !now.stopped {
			frozen = append(frozen, *now)
		}
		return err
	}); err != nil {
		return err
	}
	return asIfAdmitted(ctx, r, frozen)
}

// undecided are the runs that somebody may have been about to let in under keys that are lost.
func (r *rebuilding) undecided() (pending []fact) {
	tenants, all := map[string]bool{"": true}, r.lost.register // a run that is not pinned may be anybody's
	for at := range r.tokens {
		tenants[at.Tenant], all = true, all || at.Pool()
	}
	for _, run := range r.runs {
		if run.pending() && !run.stopped && (all || tenants[run.tenant]) {
			pending = append(pending, run)
		}
	}
	return pending
}

// markOrRead marks a run. One that may not be marked, or that needs a newer operator, and is pinned
// to a tenant, is read as it is.
func markOrRead(ctx context.Context, r *rebuilding, run fact, id string) (now *fact, refused bool, err error) {
	if err = fmt.Errorf("run %s: %w", run.name, errNewer); !run.newer {
		now, err = r.mark(ctx, run, id)
	}
	switch {
	case err == nil && now != nil && now.newer: // since the list: what it says of its admission may not be all
		return now, now.tenant != "", nil
	case (run.newer || resyncs.Unmarked(err)) && run.tenant != "":
		now, err = unmarked(ctx, r, run, err)
		return now, true, err
	}
	return now, false, err
}

// mark changes the resourceVersion of a run and returns what it is then; nil if it is gone. A write
// that was prepared before is refused from then on.
func (k *Controller) mark(ctx context.Context, run fact, id string) (*fact, error) {
	o, err := k.marker.Mark(ctx, run.name, run.uid, id)
	if err != nil || o == nil {
		return nil, err
	}
	now := factOf(o)
	return &now, nil
}

// finishAll opens the keys with what was counted. Those that nobody has and nobody waits for leave
// the register instead, if they are in it: whoever comes opens them.
func (r *rebuilding) finishAll(ctx context.Context) error {
	has, used := r.contents(), r.usedTenants()
	keys := make([]store.Key, 0, len(r.tokens))
	for at := range r.tokens {
		keys = append(keys, at)
	}
	return each(ctx, keys, func(ctx context.Context, at store.Key) error {
		was := r.lost.tokens[at]
		if !r.lost.register && !at.Pool() && !used[at.Tenant] && !used[""] {
			return r.strike(ctx, at, was)
		}
		if !r.lost.register {
			// First: what is open is in the register, whenever this ends. A strike of somebody who
			// was paused since must not hit, and nobody may take this for an opening that was left
			// half done: the token is neither the old one nor that of the rebuild.
			if err := r.quota.ReplaceKey(ctx, registerTenant, entryOf(at), was, store.Claim{UID: r.newID()}); err != nil {
				return err
			}
		}
		return r.finish(ctx, at, r.tokens[at], has[at])
	})
}

// contents are what the listed runs have.
func (r *rebuilding) contents() map[store.Key]contents {
	all := map[store.Key]contents{}
	owners := map[store.Key]map[string]fact{}
	for _, run := range r.runs {
		if at := r.lost.pools.keyOf(run.policy, run.tenant); run.under(at) {
			c := all[at]
			c.slots = append(c.slots, run.member())
			all[at] = c
		}
		if !run.owns() {
			continue
		}
		at := store.Key{Tenant: run.tenant}
		if owners[at] == nil {
			owners[at] = map[string]fact{}
		}
		if first, ok := owners[at][run.key]; !ok || run.older(first) {
			owners[at][run.key] = run
		}
	}
	for at, runs := range owners {
		c := contents{owners: map[string]store.Claim{}}
		for key, run := range runs {
			c.owners[key] = r.claims[run.uid]
		}
		all[at] = c
	}
	return all
}

// usedTenants are those of runs that may have, or still want, something at a quota.
func (r *rebuilding) usedTenants() map[string]bool {
	used := map[string]bool{}
	for _, run := range r.runs {
		if !run.finished || run.key != "" {
			used[run.tenant] = true
		}
	}
	return used
}
