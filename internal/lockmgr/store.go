package lockmgr

import (
	"context"
	_ "embed" // the scripts
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// fenceTTL is how long Redis remembers the last fence of a run after a take. It only has to outlive the time between a take
// and the status write that carries its fence; after that the floor takes over.
const fenceTTL = 7 * 24 * time.Hour

// store is the lock in Redis, one verb per script. Each verb is idempotent by token, so that any of them may be repeated
// when its reply was lost. An error says nothing about whether the verb took effect, or will.
type store interface {
	// Acquire makes token the owner unless a token other than supersedes owns the lock, and returns its fence, above floor.
	// ok is false when the lock is busy. A token that is the owner already keeps its fence, unless floor went past it.
	Acquire(ctx context.Context, runUID, token, supersedes string, floor int64, ttl time.Duration) (fence int64, ok bool, err error)
	// Renew starts the TTL anew. owner is false, and nothing was changed, when token is not the owner.
	Renew(ctx context.Context, runUID, token string, ttl time.Duration) (owner bool, err error)
	// Release frees the lock. owner is false, and nothing was changed, when token was not the owner.
	Release(ctx context.Context, runUID, token string) (owner bool, err error)
	// Ping says whether Redis answers.
	Ping(ctx context.Context) error
}

//go:embed scripts/acquire.lua
var acquireSource string

//go:embed scripts/renew.lua
var renewSource string

//go:embed scripts/release.lua
var releaseSource string

// redisStore is the store. The braces make both keys of a run live in one slot of a Redis Cluster.
type redisStore struct {
	client                  redis.UniversalClient
	acquire, renew, release *redis.Script
}

func newRedisStore(client redis.UniversalClient) *redisStore {
	return &redisStore{
		client:  client,
		acquire: redis.NewScript(acquireSource),
		renew:   redis.NewScript(renewSource),
		release: redis.NewScript(releaseSource),
	}
}

func lockKey(runUID string) string  { return "{run:" + runUID + "}:lock" }
func fenceKey(runUID string) string { return "{run:" + runUID + "}:fence" }

// Acquire implements store.
func (s *redisStore) Acquire(ctx context.Context, runUID, token, supersedes string, floor int64, ttl time.Duration) (int64, bool, error) {
	keys := []string{lockKey(runUID), fenceKey(runUID)}
	fence, err := s.acquire.Run(ctx, s.client, keys, token, supersedes, ttl.Milliseconds(), floor, fenceTTL.Milliseconds()).Int64()
	if err != nil {
		return 0, false, fmt.Errorf("acquire run lock: %w", err)
	}
	return fence, fence > 0, nil
}

// Renew implements store.
func (s *redisStore) Renew(ctx context.Context, runUID, token string, ttl time.Duration) (bool, error) {
	owner, err := s.renew.Run(ctx, s.client, []string{lockKey(runUID)}, token, ttl.Milliseconds()).Bool()
	if err != nil {
		return false, fmt.Errorf("renew run lock: %w", err)
	}
	return owner, nil
}

// Release implements store.
func (s *redisStore) Release(ctx context.Context, runUID, token string) (bool, error) {
	owner, err := s.release.Run(ctx, s.client, []string{lockKey(runUID)}, token).Bool()
	if err != nil {
		return false, fmt.Errorf("release run lock: %w", err)
	}
	return owner, nil
}

// Ping implements store.
func (s *redisStore) Ping(ctx context.Context) error {
	if err := s.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ping lock store: %w", err)
	}
	return nil
}
