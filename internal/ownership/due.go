// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// untilNext is the wait before the next look, so long after the last round began, if nothing asks
// for one.
func untilNext(k *Keeper, since rules.Time, failed bool) time.Duration {
	wait := k.spread(k.timing.Look) - since
	if !failed && ends(k) {
		return wait + k.timing.Look
	}
	if list, gift := k.due(); failed && (list || gift) {
		return min(wait, k.spread(k.timing.Fresh))
	}
	return wait
}

// lookOnce does what is due. A gift goes before a round, also one that is to follow from work which
// ends, and so does the list of who leaves, unless the last try failed: a round may wait for the
// API server for a tenth of a second and longer.
func (k *Keeper) lookOnce(ctx context.Context, full *rules.Time, failed bool) error {
	list, gift := k.due()
	first := gift || (list && k.leaves())
	switch now := k.now(); {
	case wantsRound(k, now-*full, failed) && (failed || !first):
		*full = now
		return k.round(ctx)
	case gift:
		return k.write(ctx) // without a look: a conflict has one
	case list:
		return k.give(ctx)
	case k.isNews():
		return k.glance(ctx)
	}
	return nil
}

// wantsRound says whether there is to be a round, so long after the last one began.
func wantsRound(k *Keeper, since rules.Time, failed bool) bool {
	if !failed && settles(k) {
		return true
	}
	if ends(k) && !failed {
		return since >= k.timing.Look*19/10
	}
	return since >= k.timing.Look*9/10
}

// settles says whether a list is to say now which Redis the others use.
func settles(k *Keeper) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.opts.Redis.wantsList(k.lastList)
}

// ends says whether the work of partitions is ending.
func ends(k *Keeper) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return rules.Ends(k.member)
}

// isNews says whether the watch told of another version than this member knows, or a look is to
// begin its session. Of its own writes the watch tells, too.
func (k *Keeper) isNews() bool {
	told := k.told.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.member.Session() == 0 || told == nil {
		return true
	}
	return told.ResourceVersion != k.member.Version() && !slices.Contains(k.replaced, told.ResourceVersion)
}

// leaves says whether this member hands all on.
func (k *Keeper) leaves() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.health.leaving
}

// due says what there is to do beside a look.
func (k *Keeper) due() (list, gift bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.member.Due(k.now())
}
