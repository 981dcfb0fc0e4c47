// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// lookAtOnce is how many locks are read with one request.
const lookAtOnce = 250

// Sight is a lock as Redis has it.
type Sight struct {
	// Token is that of the owner; empty: nobody has the lock.
	Token string
	// Left is after which the lock ends if nobody renews it; below 0: it does not end by itself.
	Left time.Duration
	// Offered says that nobody has the lock, and that it is kept for the first in the queue.
	Offered bool
	// Fence is that of the last take; 0: not known any more.
	Fence int64
	// Waiting is how many processes wait in the queue; some of them may be gone.
	Waiting int64
}

// Look reads the locks of runs, for people. It changes nothing. An ACL user
// needs +get, +pttl and +llen.
func Look(ctx context.Context, client redis.UniversalClient, runUIDs []string) (map[string]Sight, error) {
	seen := make(map[string]Sight, len(runUIDs))
	for len(runUIDs) > 0 {
		n := min(len(runUIDs), lookAtOnce)
		if err := look(ctx, client, runUIDs[:n], seen); err != nil {
			return nil, fmt.Errorf("read run locks: %w", Explain(err))
		}
		runUIDs = runUIDs[n:]
	}
	return seen, nil
}

func look(ctx context.Context, client redis.UniversalClient, runUIDs []string, seen map[string]Sight) error {
	type replies struct {
		owner, fence *redis.StringCmd
		left         *redis.DurationCmd
		waiting      *redis.IntCmd
	}
	asked := make([]replies, len(runUIDs))
	commands, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, uid := range runUIDs {
			asked[i] = replies{
				owner: p.Get(ctx, key(uid, "lock")), left: p.PTTL(ctx, key(uid, "lock")),
				fence: p.Get(ctx, key(uid, "fence")), waiting: p.LLen(ctx, key(uid, "queue")),
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	for _, command := range commands { // that of the pipeline is the first, perhaps of a lock that nobody has
		if err := command.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	for i, uid := range runUIDs {
		s := Sight{Token: asked[i].owner.Val(), Left: asked[i].left.Val(), Waiting: asked[i].waiting.Val()}
		s.Fence, _ = asked[i].fence.Int64()
		if strings.HasPrefix(s.Token, "~") {
			s.Token, s.Offered = "", true
		}
		seen[uid] = s
	}
	return nil
}
