package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/test/contend"
)

// lockTTL is that of the libraries' locks: the default of a LockPolicy.
const lockTTL = 30 * time.Second

// acquire takes the lock for a contender, however long it takes, and returns what gives it back.
type acquire func(ctx context.Context, contender int) (release func(context.Context), err error)

// strategy is a way to share a lock.
type strategy struct {
	name string
	wave bool // it is in the picture of attempts
	// open makes it ready in a process, end ends it.
	open func(client redis.UniversalClient, process string) (take acquire, end func(context.Context) error)
}

// strategies are those of a LockPolicy, then other libraries.
func strategies() []strategy {
	handOff := policy.Defaults().RunLock
	jittered := handOff
	jittered.Wait.Poll = true
	fixed := jittered
	fixed.BusyRetry = policy.BusyRetry{Fixed: true, Delay: jittered.BusyRetry.Delay}
	return []strategy{
		{"HandOff", true, lockPolicy(handOff)},
		{"Poll jittered", true, lockPolicy(jittered)},
		{"Poll fixed", true, lockPolicy(fixed)},
		{"bsm/redislock", false, redisLock},
		{"redsync", false, redSync},
	}
}

func ours(names ...string) []strategy {
	return slices.DeleteFunc(strategies(), func(s strategy) bool { return !slices.Contains(names, s.name) })
}

func lockPolicy(p policy.RunLock) func(redis.UniversalClient, string) (acquire, func(context.Context) error) {
	return func(client redis.UniversalClient, process string) (acquire, func(context.Context) error) {
		m := lockmgr.New(client, lockmgr.Options{Holder: process})
		return func(ctx context.Context, contender int) (func(context.Context), error) {
			lease, err := contend.Acquire(ctx, m, func(context.Context) (lockmgr.Request, error) {
				return lockmgr.Request{RunUID: "contended", Waiter: strconv.Itoa(contender), Policy: p}, nil
			})
			if err != nil {
				return nil, err
			}
			return lease.Release, nil
		}, m.Close
	}
}

func nothing(context.Context) error { return nil }

func redisLock(client redis.UniversalClient, _ string) (acquire, func(context.Context) error) {
	locks := redislock.New(client)
	return func(ctx context.Context, _ int) (func(context.Context), error) {
		l, err := locks.Obtain(ctx, "contended", lockTTL, &redislock.Options{
			RetryStrategy: redislock.ExponentialBackoff(16*time.Millisecond, 512*time.Millisecond),
		})
		if err != nil {
			return nil, fmt.Errorf("redislock: %w", err)
		}
		return func(ctx context.Context) { _ = l.Release(ctx) }, nil // the TTL frees it otherwise
	}, nothing
}

func redSync(client redis.UniversalClient, _ string) (acquire, func(context.Context) error) {
	locks := redsync.New(goredis.NewPool(client))
	return func(ctx context.Context, _ int) (func(context.Context), error) {
		m := locks.NewMutex("contended", redsync.WithExpiry(lockTTL), redsync.WithTries(1<<20))
		if err := m.LockContext(ctx); err != nil {
			return nil, fmt.Errorf("redsync: %w", err)
		}
		return func(ctx context.Context) { _, _ = m.UnlockContext(ctx) }, nil // the TTL frees it otherwise
	}, nothing
}
