// SPDX-License-Identifier: Apache-2.0

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
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

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
	open func(o opening) (take acquire, end func(context.Context) error, err error)
}

// opening is what a strategy needs to be made ready.
type opening struct {
	client  redis.UniversalClient // its commands are counted
	address string                // of Redis, for a strategy with a client of its own,
	command func()                // which tells of each command just before it sends that
	process string
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
		{"rueidislock", false, rueidisLock},
	}
}

func ours(names ...string) []strategy {
	return slices.DeleteFunc(strategies(), func(s strategy) bool { return !slices.Contains(names, s.name) })
}

func lockPolicy(p policy.RunLock) func(opening) (acquire, func(context.Context) error, error) {
	return func(o opening) (acquire, func(context.Context) error, error) {
		m := lockmgr.New(o.client, lockmgr.Options{Holder: o.process})
		return func(ctx context.Context, contender int) (func(context.Context), error) {
			lease, err := contend.Acquire(ctx, m, func(context.Context) (lockmgr.Request, error) {
				return lockmgr.Request{RunUID: "contended", Waiter: strconv.Itoa(contender), Policy: p}, nil
			})
			if err != nil {
				return nil, err
			}
			return lease.Release, nil
		}, m.Close, nil
	}
}

func nothing(context.Context) error { return nil }

func redisLock(o opening) (acquire, func(context.Context) error, error) {
	locks := redislock.New(o.client)
	return func(ctx context.Context, _ int) (func(context.Context), error) {
		l, err := locks.Obtain(ctx, "contended", lockTTL, &redislock.Options{
			RetryStrategy: redislock.ExponentialBackoff(16*time.Millisecond, 512*time.Millisecond),
		})
		if err != nil {
			return nil, fmt.Errorf("redislock: %w", err)
		}
		return func(ctx context.Context) { _ = l.Release(ctx) }, nil // the TTL frees it otherwise
	}, nothing, nil
}

func redSync(o opening) (acquire, func(context.Context) error, error) {
	locks := redsync.New(goredis.NewPool(o.client))
	return func(ctx context.Context, _ int) (func(context.Context), error) {
		m := locks.NewMutex("contended", redsync.WithExpiry(lockTTL), redsync.WithTries(1<<20))
		if err := m.LockContext(ctx); err != nil {
			return nil, fmt.Errorf("redsync: %w", err)
		}
		return func(ctx context.Context) { _, _ = m.UnlockContext(ctx) }, nil // the TTL frees it otherwise
	}, nothing, nil
}

// rueidisLock waits for news of the key by client-side caching. One key, as there is one Redis.
func rueidisLock(o opening) (acquire, func(context.Context) error, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{o.address}},
		ClientBuilder: func(option rueidis.ClientOption) (rueidis.Client, error) {
			c, err := rueidis.NewClient(option)
			return counted{c, o.command}, err
		},
		KeyMajority: 1, KeyValidity: lockTTL, NoLoopTracking: true,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("rueidislock: %w", err)
	}
	return func(ctx context.Context, _ int) (func(context.Context), error) {
			_, release, err := locks.WithContext(ctx, "contended")
			if err != nil {
				return nil, fmt.Errorf("rueidislock: %w", err)
			}
			return func(context.Context) { release() }, nil
		}, func(context.Context) error {
			locks.Close()
			return nil
		}, nil
}

// counted tells of each command. Scripts, which is all that rueidislock sends, go through Do.
type counted struct {
	rueidis.Client
	command func()
}

// Do implements rueidis.Client.
func (c counted) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	c.command()
	return c.Client.Do(ctx, cmd)
}
