// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	// scanCount is how many keys a server looks at for one SCAN: it does nothing else meanwhile.
	scanCount = 500
	// maxScans bounds the questions to one server: 10,000,000 keys.
	maxScans = 20_000
)

// List lists the UIDs of the runs whose locks are in Redis, for whoever compares them with the
// runs: at most so many; all is false if there are more. It looks at all keys of the servers, so it
// is for now and then. Locks that come or go meanwhile may be in it, or not. An ACL user needs
// +scan.
func List(ctx context.Context, client redis.UniversalClient, most int) (uids []string, all bool, err error) {
	l := listing{most: most, seen: map[string]bool{}, all: true}
	cluster, ok := client.(*redis.ClusterClient)
	if ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return l.scan(ctx, c) })
	} else {
		err = l.scan(ctx, client)
	}
	if err != nil {
		return nil, false, fmt.Errorf("list run locks: %w", Explain(err))
	}
	for uid := range l.seen {
		uids = append(uids, uid)
	}
	return uids, l.all, nil
}

// listing is the UIDs that servers have told.
type listing struct {
	most int

	mu   sync.Mutex
	seen map[string]bool // SCAN may tell a key twice
	all  bool
}

func (l *listing) scan(ctx context.Context, c redis.Cmdable) error {
	var cursor uint64
	for range maxScans {
		keys, next, err := c.Scan(ctx, cursor, key("*", "lock"), scanCount).Result()
		if err != nil {
			return err
		}
		if !l.add(keys) || next == 0 {
			return nil
		}
		cursor = next
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = false
	return nil
}

func (l *listing) add(keys []string) (room bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		if len(l.seen) >= l.most {
			l.all = false
			return false
		}
		l.seen[strings.TrimSuffix(strings.TrimPrefix(k, "{run:"), "}:lock")] = true
	}
	return true
}

// Free releases the lock of a run if the token owns it, and offers it to the first that waits: for
// people's tools. The holder, if it lives, notices at its next renewal; what it writes until then
// is judged by its fence, as ever.
func Free(ctx context.Context, client redis.UniversalClient, runUID, token string) (was bool, err error) {
	was, err = newRedisStore(client).Release(ctx, runUID, token)
	if err != nil {
		return false, Explain(err)
	}
	return was, nil
}
