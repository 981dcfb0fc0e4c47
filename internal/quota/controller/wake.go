// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// mostLooks is how many runs one call looks at, about, when those that are next are over or gone. A
// tenant may have deleted thousands that wait.
const mostLooks = 256

// wakeNext wakes runs that can be admitted now. Those that are over or gone leave their places, and
// whoever comes next for that is woken instead. Where very many are gone a resync does the rest: it
// finds them with one list.
func (k *Controller) wakeNext(ctx context.Context, at store.Key, l store.Limits, next []store.Next) error {
	seen := map[string]bool{}
	var failed error
	for len(seen) < mostLooks {
		var gone []string
		for _, run := range next {
			if seen[run.UID] {
				continue
			}
			seen[run.UID] = true
			waits, err := k.wakeRun(ctx, run)
			if err == nil && !waits {
				gone = append(gone, run.UID)
			}
			failed = errors.Join(failed, err)
		}
		if len(gone) == 0 {
			return failed
		}
		var err error
		next, err = k.quota.Release(ctx, at, l, gone...)
		failed = errors.Join(failed, err)
	}
	if len(next) > 0 {
		k.quota.wish(ctx) // the leader may be another process
		k.kicks.Tell()
	}
	return failed
}

// wakeGiven wakes runs that the call of another gave slots of a pool, or that it named as next.
// What fails, the resync does.
func (k *Controller) wakeGiven(ctx context.Context, at store.Key, l store.Limits, given []store.Next) {
	if len(given) == 0 {
		return
	}
	if err := k.wakeNext(ctx, at, l, given); err != nil {
		k.log.Info("Not all runs were woken whose turn has come, the resync does that", "policy", at.Policy, "cause", err.Error())
		k.kicks.After(store.Unusable(err))
	}
}

// wakeRun wakes a run whose turn has come; false if it is over or gone.
func (k *Controller) wakeRun(ctx context.Context, next store.Next) (waits bool, err error) {
	name, uid := nameOf(next.Name), types.UID(next.UID)
	if exists, err := k.exists(ctx, name, uid); err != nil || !exists {
		k.Forget(uid)
		return false, err
	}
	k.wake(name)
	return true, nil
}

// exists says whether a run is there and not over. The cache may be trusted with an end, but not
// with an absence.
func (k *Controller) exists(ctx context.Context, name types.NamespacedName, uid types.UID) (bool, error) {
	run, err := k.cached(ctx, name)
	if err == nil && (run == nil || run.uid != uid) {
		run, err = k.read(ctx, name, uid)
	}
	return run != nil && run.uid == uid && !run.finished, err
}

// nameOf is a name that is written namespace/name.
func nameOf(text string) types.NamespacedName {
	namespace, name, _ := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}
