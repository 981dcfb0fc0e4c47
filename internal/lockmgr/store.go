// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// fenceTTL is how long Redis remembers the last fence of a run after a take. It only has to
// outlive the time between a take and the status write that carries its fence; after that the
// floor takes over.
const fenceTTL = 7 * 24 * time.Hour

// Times of the queue of waiting processes.
const (
	// offerTime is how long a lock is kept for whoever is next: a process in Redis, a waiter
	// in this process.
	offerTime = time.Second
	// ticketTime is how long a process keeps its place without asking again: it may miss one
	// time, not two.
	ticketTime = 2500 * time.Millisecond
	// listenCheck is how long a connection for news may be silent before it is checked.
	listenCheck = 5 * time.Second
	// maxTickets bounds the processes that wait for one run.
	maxTickets = 64
)

// claim asks for a lock.
type claim struct {
	runUID     string
	token      string
	supersedes string // a token that may be replaced; empty: none
	floor      int64  // the fence is above it
	ttl        time.Duration
	process    string // who waits in the queue if the lock is busy; empty: nobody
}

// grant is the answer to a claim.
type grant struct {
	fence   int64         // 0: busy
	others  bool          // taken: other processes wait in the queue
	queued  bool          // busy: the process waits in the queue
	offered time.Duration // busy: how much longer the lock is kept for another process; 0: it is not
	owner   string        // busy: the token that owns the lock; empty: none, it is offered
	left    time.Duration // busy with an owner: after which the lock ends, if it is not renewed; below 0: it does not end
}

// news is what a process is told about the lock of a run.
type news string

const (
	newsOffered news = "offered" // the lock is kept for this process: claim it
	newsWanted  news = "wanted"  // another process waits for the lock, which this process has
	// newsBegin is of no lock: what was told before is lost.
	newsBegin news = "begin"
)

// store is the lock in Redis, one verb per script. Each verb is idempotent by token, so that any of
// them may be repeated when its reply was lost. An error says nothing about whether the verb took
// effect, or will.
type store interface {
	// Acquire makes token the owner unless a token other than supersedes owns the lock, or another
	// process is before it in line. A token that is the owner already keeps its fence, unless floor
	// went past it.
	Acquire(ctx context.Context, c claim) (grant, error)
	// Renew starts the TTL anew. owner is false, and nothing was changed, when token is
	// not the owner.
	Renew(ctx context.Context, runUID, token string, ttl time.Duration) (owner bool, err error)
	// Release frees the lock, or keeps it for the first in the queue and tells it. owner is false,
	// and nothing was changed, when token was not the owner.
	Release(ctx context.Context, runUID, token string) (owner bool, err error)
	// Leave gives up the place of a process in the queue. A lock that is kept for it is kept for
	// the next, or freed.
	Leave(ctx context.Context, runUID, process string) error
	// Listen passes on the news for a process until ctx ends or the connection is lost. The first
	// is newsBegin, once it listens. News may be lost or come twice.
	Listen(ctx context.Context, process string, hear func(n news, runUID string))
	// Ping says whether Redis answers.
	Ping(ctx context.Context) error
	// Repeats says whether a verb may be sent more than once behind the caller's back.
	Repeats() bool
}

//go:embed scripts/queue.lua
var queueSource string

//go:embed scripts/acquire.lua
var acquireSource string

//go:embed scripts/renew.lua
var renewSource string

//go:embed scripts/release.lua
var releaseSource string

//go:embed scripts/leave.lua
var leaveSource string

// redisStore is the store. The braces make all keys of a run live in one slot of a Redis Cluster.
type redisStore struct {
	client                         redis.UniversalClient
	acquire, renew, release, leave *redis.Script
}

func newRedisStore(client redis.UniversalClient) *redisStore {
	return &redisStore{
		client:  client,
		acquire: redis.NewScript(queueSource + acquireSource),
		renew:   redis.NewScript(renewSource),
		release: redis.NewScript(queueSource + releaseSource),
		leave:   redis.NewScript(queueSource + leaveSource),
	}
}

// Repeats implements store. The client of a cluster repeats a call up to three times, whatever it
// is told, on network errors.
func (s *redisStore) Repeats() bool {
	_, cluster := s.client.(*redis.ClusterClient)
	return cluster
}

func key(runUID, kind string) string { return "{run:" + runUID + "}:" + kind }

// Acquire implements store.
func (s *redisStore) Acquire(ctx context.Context, c claim) (grant, error) {
	keys := []string{key(c.runUID, "lock"), key(c.runUID, "fence"), key(c.runUID, "queue"), key(c.runUID, "tickets")}
	got, err := s.acquire.Run(ctx, s.client, keys, c.token, c.supersedes, c.ttl.Milliseconds(), c.floor, fenceTTL.Milliseconds(),
		c.process, c.runUID, offerTime.Milliseconds(), ticketTime.Milliseconds(), maxTickets).Slice()
	if err != nil {
		return grant{}, fmt.Errorf("acquire run lock: %w", err)
	}
	g, ok := grantOf(got)
	if !ok {
		return grant{}, fmt.Errorf("acquire run lock: the script answered %v", got)
	}
	return g, nil
}

// grantOf reads an answer of acquire.lua.
func grantOf(got []any) (g grant, ok bool) {
	n, owner := [4]int64{}, ""
	for i, v := range got {
		if i < len(n) {
			n[i], ok = v.(int64)
		} else {
			owner, ok = v.(string)
		}
		if !ok {
			return grant{}, false
		}
	}
	switch words := len(got); {
	case words == 2 && n[0] > 0:
		return grant{fence: n[0], others: n[1] > 0}, true
	case words == 3 && n[0] == 0:
		return grant{queued: n[1] > 0, offered: time.Duration(max(0, n[2])) * time.Millisecond}, true
	case words == 5 && n[0] == 0:
		return grant{queued: n[1] > 0, owner: owner, left: time.Duration(n[3]) * time.Millisecond}, true
	default:
		return grant{}, false
	}
}

// Renew implements store.
func (s *redisStore) Renew(ctx context.Context, runUID, token string, ttl time.Duration) (bool, error) {
	owner, err := s.renew.Run(ctx, s.client, []string{key(runUID, "lock")}, token, ttl.Milliseconds()).Bool()
	if err != nil {
		return false, fmt.Errorf("renew run lock: %w", err)
	}
	return owner, nil
}

// Release implements store.
func (s *redisStore) Release(ctx context.Context, runUID, token string) (bool, error) {
	keys := []string{key(runUID, "lock"), key(runUID, "queue"), key(runUID, "tickets")}
	owner, err := s.release.Run(ctx, s.client, keys, token, runUID, offerTime.Milliseconds()).Bool()
	if err != nil {
		return false, fmt.Errorf("release run lock: %w", err)
	}
	return owner, nil
}

// Leave implements store.
func (s *redisStore) Leave(ctx context.Context, runUID, process string) error {
	keys := []string{key(runUID, "lock"), key(runUID, "queue"), key(runUID, "tickets")}
	if err := s.leave.Run(ctx, s.client, keys, process, runUID, offerTime.Milliseconds()).Err(); err != nil {
		return fmt.Errorf("leave the queue of a run lock: %w", err)
	}
	return nil
}

// Listen implements store.
func (s *redisStore) Listen(ctx context.Context, process string, hear func(n news, runUID string)) {
	Listen(ctx, s.client, "syncopate:locks:"+process, func() { hear(newsBegin, "") }, func(text string) {
		if kind, runUID, ok := strings.Cut(text, " "); ok {
			hear(news(kind), runUID)
		}
	})
}

// Listen passes on what is published on a channel until ctx ends or the connection is lost. What is
// published while nobody listens is lost, so begun is called when it begins.
func Listen(ctx context.Context, client redis.UniversalClient, channel string, begun func(), hear func(text string)) {
	subscription := client.Subscribe(ctx, channel)
	defer func() { _ = subscription.Close() }()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // the end of its context does not end a receive
	for asked := false; ctx.Err() == nil; {
		got, err := subscription.ReceiveTimeout(ctx, listenCheck)
		timeout, _ := errors.AsType[net.Error](err)
		switch {
		case err == nil:
			asked = false
		case timeout != nil && timeout.Timeout() && !asked && subscription.Ping(ctx) == nil:
			asked = true // it may be silent because nothing happens
		default:
			return
		}
		switch m := got.(type) {
		case *redis.Subscription:
			begun()
		case *redis.Message:
			hear(m.Payload)
		}
	}
}

// Ping implements store.
func (s *redisStore) Ping(ctx context.Context) error {
	if err := s.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ping lock store: %w", Explain(err))
	}
	return nil
}
