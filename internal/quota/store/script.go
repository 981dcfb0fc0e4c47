// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/epoch.lua
var epochSource string

//go:embed scripts/queue.lua
var queueSource string

//go:embed scripts/admit.lua
var admitSource string

//go:embed scripts/reserve.lua
var reserveSource string

//go:embed scripts/free.lua
var freeSource string

//go:embed scripts/restore.lua
var restoreSource string

//go:embed scripts/begin.lua
var beginSource string

//go:embed scripts/retire.lua
var retireSource string

//go:embed scripts/snapshot.lua
var snapshotSource string

//go:embed scripts/unlock.lua
var unlockSource string

//go:embed scripts/claim.lua
var claimSource string

//go:embed scripts/release_key.lua
var releaseKeySource string

//go:embed scripts/replace_key.lua
var replaceKeySource string

//go:embed scripts/claims.lua
var claimsSource string

//go:embed scripts/reclaim.lua
var reclaimSource string

//go:embed scripts/locks.lua
var locksSource string

//go:embed scripts/locks_take.lua
var locksTakeSource string

//go:embed scripts/locks_drop.lua
var locksDropSource string

//go:embed scripts/locks_restore.lua
var locksRestoreSource string

//go:embed scripts/locks_snapshot.lua
var locksSnapshotSource string

//go:embed scripts/locks_refuse.lua
var locksRefuseSource string

//go:embed scripts/pool.lua
var poolSource string

//go:embed scripts/pool_admit.lua
var poolAdmitSource string

//go:embed scripts/pool_reserve.lua
var poolReserveSource string

//go:embed scripts/pool_free.lua
var poolFreeSource string

//go:embed scripts/pool_restore.lua
var poolRestoreSource string

//go:embed scripts/pool_limits.lua
var poolLimitsSource string

//go:embed scripts/pool_snapshot.lua
var poolSnapshotSource string

// pools are the scripts of pools.
type pools struct {
	poolAdmit, poolReserve, poolFree, poolRestore, poolLimits, poolSnapshot *redis.Script
}

type scripts struct {
	pools

	admit, reserve, free, restore, begin, retire, snapshot, unlock *redis.Script
	claim, releaseKey, replaceKey, claims, reclaim                 *redis.Script

	locksTake, locksDrop, locksRestore, locksSnapshot, locksRefuse *redis.Script
}

// longestReservation is how long a slot or an idempotency key is reserved at most. Redis' clock may
// have been ahead when one was given, so that its end is far away.
const longestReservation = time.Minute

func loadScripts(longest time.Duration) scripts {
	common := fmt.Sprintf("local longest = %d\n", longest.Milliseconds()) + epochSource
	ofSlots := func(source string) *redis.Script { return redis.NewScript(common + queueSource + source) }
	ofClaims := func(source string) *redis.Script { return redis.NewScript(common + source) }
	ofLocks := func(source string) *redis.Script { return redis.NewScript(common + locksSource + source) }
	return scripts{
		pools: poolScripts(func(source string) *redis.Script { return redis.NewScript(common + poolSource + source) }),
		admit: ofSlots(admitSource), reserve: ofSlots(reserveSource), free: ofSlots(freeSource),
		restore: ofSlots(restoreSource), snapshot: ofSlots(snapshotSource),
		claim: ofClaims(claimSource), releaseKey: ofClaims(releaseKeySource), replaceKey: ofClaims(replaceKeySource),
		claims: ofClaims(claimsSource), reclaim: ofClaims(reclaimSource),
		begin: ofClaims(beginSource), retire: ofClaims(retireSource), unlock: redis.NewScript(unlockSource),
		locksTake: ofLocks(locksTakeSource), locksDrop: ofLocks(locksDropSource), locksRestore: ofLocks(locksRestoreSource),
		locksSnapshot: ofLocks(locksSnapshotSource), locksRefuse: ofLocks(locksRefuseSource),
	}
}

func poolScripts(ofPool func(string) *redis.Script) (all pools) {
	all.poolAdmit, all.poolReserve, all.poolFree = ofPool(poolAdmitSource), ofPool(poolReserveSource), ofPool(poolFreeSource)
	all.poolRestore, all.poolLimits, all.poolSnapshot = ofPool(poolRestoreSource), ofPool(poolLimitsSource), ofPool(poolSnapshotSource)
	return all
}

// errLost is what a script says when a token is not, or no more, what it should be.
var errLost = errors.New("the token is not known any more")

// reply is what a script answered after its first word.
type reply []any

// ask runs a script whose first argument is the floor. keys[0] is the hash with the epoch. Errors:
// *UnavailableError, also for a *ForeignError, *RebuildingError, errLost.
func (g *Store) ask(ctx context.Context, s *redis.Script, k Key, keys []string, args ...any) (reply, error) {
	if err := own(ctx, g); err != nil {
		return nil, g.unavailable(k, err)
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	got, err := s.Run(ctx, g.client, keys, append([]any{g.floor(keys[0])}, args...)...).Slice()
	if err != nil {
		return nil, g.unavailable(k, err)
	}
	word, rest := "", reply(got)
	if len(got) > 0 {
		word, rest = rest.text(0), rest[1:]
	}
	switch word {
	case "ok":
		return rest, nil
	case "closed": // it may have lost whose it is, too
		g.mu.Lock()
		g.doubt()
		g.mu.Unlock()
		return nil, &RebuildingError{Key: k, Why: RebuildReason(rest.text(0)), delay: g.spread(rebuildingDelay)}
	case "lost":
		return nil, errLost
	case "limits":
		return nil, errTold
	default:
		return nil, g.unavailable(k, fmt.Errorf("the script answered %.200q", fmt.Sprint(got)))
	}
}

// learn remembers the term of an answer, which is its first element. Who opened the data may be of
// another installation: so after a new term the next call looks whose Redis is.
func (g *Store) learn(key string, r reply) {
	term := int64(r.number(0))
	g.mu.Lock()
	defer g.mu.Unlock()
	if known, ok := g.floors[key]; term > known && (ok || len(g.floors) < maxFloors) {
		g.floors[key] = term
		g.doubt()
	}
}

// floor is the term that data must have at least.
func (g *Store) floor(key string) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.floors[key], g.since)
}

// number is the i-th element as a number; 0 if it is none.
func (r reply) number(i int) int {
	if i >= len(r) {
		return 0
	}
	switch v := r[i].(type) {
	case int64:
		return int(v)
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return int(n)
	}
	return 0
}

// text is the i-th element as a string; empty if it is none.
func (r reply) text(i int) string {
	if i >= len(r) {
		return ""
	}
	s, _ := r[i].(string)
	return s
}

// list is the i-th element as a list; nil if it is none.
func (r reply) list(i int) reply {
	if i >= len(r) {
		return nil
	}
	l, _ := r[i].([]any)
	return l
}

// texts are all elements from the i-th on.
func (r reply) texts(from int) []string {
	if from >= len(r) {
		return nil
	}
	all := make([]string, 0, len(r)-from)
	for i := from; i < len(r); i++ {
		all = append(all, r.text(i))
	}
	return all
}

func anys(ss []string) []any {
	all := make([]any, len(ss))
	for i, s := range ss {
		all[i] = s
	}
	return all
}
