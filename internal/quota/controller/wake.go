// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// wakeNext wakes runs that can be admitted now. Those that are over or gone leave their places, and
// whoever comes next for that is woken instead.
func (k *Controller) wakeNext(ctx context.Context, at store.Key, l store.Limits, next []string) error {
	seen := map[string]bool{}
	var failed error
	for len(next) > 0 {
		uid := next[0]
		next = next[1:]
		if seen[uid] {
			continue
		}
		seen[uid] = true
		waits, err := k.wakeUID(ctx, at, types.UID(uid))
		if err == nil && !waits {
			var more []string
			more, err = k.quota.Release(ctx, at, l, uid)
			next = append(next, more...)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// wakeGiven wakes runs that the call of another gave slots of a pool. What fails, the resync does.
func (k *Controller) wakeGiven(ctx context.Context, at store.Key, l store.Limits, given []store.Given) {
	if len(given) == 0 {
		return
	}
	if err := k.wakeNext(ctx, at, l, k.quota.note(given)); err != nil {
		k.log.Info("Not all runs were woken that have slots, the resync does that", "policy", at.Policy, "cause", err.Error())
		k.kick()
	}
}

// wakeUID wakes a run in the queue; false if it is over or gone.
func (k *Controller) wakeUID(ctx context.Context, at store.Key, uid types.UID) (waits bool, err error) {
	name, ok := k.nameOf(uid)
	if !ok {
		if name, ok, err = k.nameInQueue(ctx, at, uid); err != nil || !ok {
			return true, err // it left the queue meanwhile
		}
	}
	if exists, err := k.exists(ctx, name, uid); err != nil || !exists {
		k.forget(uid)
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
		run, err = k.read(ctx, name)
	}
	return run != nil && run.uid == uid && !run.finished, err
}

// nameInQueue asks the quota for the name of a run that another process asked for.
func (k *Controller) nameInQueue(ctx context.Context, at store.Key, uid types.UID) (types.NamespacedName, bool, error) {
	b, err := k.quota.Snapshot(ctx, at)
	if err != nil {
		return types.NamespacedName{}, false, fmt.Errorf("read the line: %w", err)
	}
	for _, r := range b.Queue {
		if r.UID == string(uid) {
			return nameOf(r), true, nil
		}
	}
	return types.NamespacedName{}, false, nil
}

func nameOf(r store.Run) types.NamespacedName {
	namespace, name, _ := strings.Cut(r.Name, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}
