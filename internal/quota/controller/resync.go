// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

const (
	// resyncPause is the time between two resyncs.
	resyncPause = resyncs.Pause
	// reservationSlack is how long after the end of a reservation the resync comes that lets the
	// next one in.
	reservationSlack = 10 * time.Millisecond
	// maxRebuilds bounds the rebuilds in one resync.
	maxRebuilds = 3
)

// errRestless is returned when data was lost, or new quotas came into use, faster than a rebuild
// could follow. The next resync tries again.
var errRestless = errors.New("admission data keeps being lost while it is rebuilt")

// Start makes a resync at once, and then every 30 s, and whenever one is asked for, until ctx ends:
// by this process, within a second, and within two seconds of a loss of data by any. It should run
// in one process: two do no harm, but twice the work. It may be started again after its end.
func (k *Controller) Start(ctx context.Context) error {
	defer k.quota.Show(nil)
	var failed resyncs.Failures
	for ctx.Err() == nil {
		k.kicks.Begin()
		kicked := k.kicks.Asked()
		pause, err := k.resync(ctx)
		if err == nil {
			failed = resyncs.Failures{}
		} else if ctx.Err() == nil {
			pause, kicked = failed.Next(store.Unusable(err)), k.kicks.News() // whoever asks for a resync otherwise gets that one
			if failed.Logs() {
				k.log.Info("Gates of tenants were not looked after, trying on", "delay", pause, "cause", err.Error())
			}
		}
		resyncs.Rest(ctx, k.clock, pause, kicked, k.quota.wanted)
	}
	return nil
}

// resync rebuilds what was lost, compares everything with the runs, repairs the differences, and
// wakes whoever can be admitted. It says when the next one is due.
func (k *Controller) resync(ctx context.Context) (time.Duration, error) {
	for range maxRebuilds {
		held, lost, err := k.inspect(ctx)
		if err != nil {
			return 0, err
		}
		if lost.nothing() {
			return held.nextDue(), k.settle(ctx, held)
		}
		err = k.rebuild(ctx, lost)
		if err != nil && !errors.Is(err, store.ErrRebuildLost) {
			return 0, err
		}
	}
	return 0, errRestless
}

// holdings are everything that the quotas have.
type holdings struct {
	snapshots map[store.Key]store.Snapshot
	claims    map[string]map[string]store.Claim // by tenant
	pools     pools                             // by the register
	tokens    map[store.Key]string              // of all keys in the register
}

// nextDue is when to look again: soon after a reservation ends that somebody waits for. There is a
// pause all the same: reservations may end one after the other, and a resync reads everything.
func (h holdings) nextDue() time.Duration {
	due := resyncPause
	for _, b := range h.snapshots {
		if len(b.Queue) > 0 && len(b.Reserved) > 0 {
			due = min(due, max(resyncs.LeastPause, b.Reserved[0].Left+reservationSlack))
		}
	}
	return due
}

// loss is what has to be rebuilt.
type loss struct {
	register bool                 // and with it all there is
	keys     []store.Key          // closed, though they were in use
	tokens   map[store.Key]string // of all keys in the register
	moves    moves                // of policies that count otherwise from now on
	pools    pools                // after that
}

func (l loss) nothing() bool {
	return !l.register && len(l.keys) == 0 && len(l.moves.together)+len(l.moves.apart) == 0
}

// inspect reads what the quotas have of all keys that are in use.
func (k *Controller) inspect(ctx context.Context) (holdings, loss, error) {
	h := holdings{snapshots: map[store.Key]store.Snapshot{}, claims: map[string]map[string]store.Claim{}}
	tokens, err := k.register(ctx)
	if err != nil {
		return h, loss{}, err
	}
	policies, err := policiesNow(ctx, k.client)
	if err != nil {
		return h, loss{}, err
	}
	lost := loss{register: tokens == nil, tokens: tokens}
	if lost.moves, lost.pools = movesOf(policies, tokens); tokens == nil {
		return h, lost, nil
	}
	h.pools, h.tokens = lost.pools, tokens
	var mu sync.Mutex
	inUse := slices.DeleteFunc(slices.Collect(maps.Keys(tokens)), lost.pools.skips)
	err = each(ctx, inUse, func(ctx context.Context, at store.Key) error {
		var has held
		err := k.openedIfNew(ctx, at, func() (err error) { // somebody may be about to open it
			has, err = k.quota.read(ctx, at)
			return err
		})
		mu.Lock()
		defer mu.Unlock()
		if isClosed(err) {
			lost.keys = append(lost.keys, at)
			return nil
		}
		h.add(at, has)
		return err
	})
	return h, lost, err
}
