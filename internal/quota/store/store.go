// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/shares"
)

// Bounds.
const (
	// callTimeout bounds each call to Redis, where Options do not.
	callTimeout = time.Second
	// maxName bounds each part of a Key, and of a Run, in bytes.
	maxName = 512
	// maxFloors bounds the keys whose terms a Store remembers.
	maxFloors = 1 << 16
	// window is how many of those in a queue who can be admitted are woken at a time.
	window = 32
	// mostUIDs is how many runs one call of a script is given: what Redis has to read is bounded,
	// and so is how long it waits for the script.
	mostUIDs = 256
)

// Key says whose slots are counted. A slot stays with the policy under which it was taken.
type Key struct {
	// Policy is the name of the LockPolicy; empty for the built-in defaults.
	Policy string
	// Tenant is the tenant of the run.
	Tenant string
}

// String shows a key in errors and logs.
func (k Key) String() string { return fmt.Sprintf("tenant %s, policy %q", k.Tenant, k.Policy) }

// Limits are what the policy says now. They are not stored: each call counts by those that
// it is given.
type Limits struct {
	// Max is how many runs are admitted at a time; below 0: no limit, but runs take slots, so that
	// a limit set later counts them; 0 admits none.
	Max int
	// Lock is the per-tenant lock of strategy Lock; nil is strategy Atomic. Both may be in use at
	// the same time.
	Lock *LockSettings
	// Shares are the limits of all tenants of a pool; nil elsewhere, and for a pool whose policy
	// is gone.
	Shares *shares.Limits
}

// LockSettings tune the per-tenant lock of strategy Lock.
type LockSettings struct {
	// TTL frees the lock of a holder that went silent.
	TTL time.Duration
	// MaxWait is how long the lock is tried for before the decision fails with *BusyError; 0: once.
	MaxWait time.Duration
	// Retry is the wait between two tries.
	Retry policy.BusyRetry
	// OnWaited is told, once in each decision, how often the lock was found busy before it was had
	// or given up, and how long that took; nil: nobody is.
	OnWaited func(busyTries int, waited time.Duration)
}

// Run is what admission has to know of a run. Runs stand in the queue by priority, the highest
// first, then by creation, name and UID.
type Run struct {
	// UID is metadata.uid.
	UID string
	// Name is namespace/name.
	Name string
	// Priority is spec.priority.
	Priority int32
	// Created is the creation time; its seconds count.
	Created time.Time
	// Tenant is the run's, in a Snapshot of a pool; else empty.
	Tenant string
}

// Answer says what was decided, and how things stand after that.
type Answer struct {
	// Admitted: the run has a slot or, by Reserve, a reservation.
	Admitted bool
	// Used, Waiting and Reserved count slots, places in the queue and reservations of the key.
	Used, Waiting, Reserved int
	// Limit is the Max that was asked with.
	Limit int
	// Position is the run's place in the queue, from 1; 0: it has none.
	Position int
	// Ahead is the name of the run just ahead; empty for the first.
	Ahead string
	// All counts slots and reservations of all tenants of a pool, and Total is how many there may
	// be; AllReserved is how many of All are reservations, as Admit says. 0 elsewhere.
	All, Total, AllReserved int
	// Given are others that got slots of a pool by this call.
	Given []Next
	// Next is who else can be admitted now, perhaps, and was not woken yet: one run at most.
	Next []Next
}

// Options are what a Store needs besides Redis. The zero value of each field has a
// sensible meaning.
type Options struct {
	// Clock tells the time; the real one if nil.
	Clock clock.Clock
	// Rand is uniform in [0,1) and safe for concurrent use. It spreads waits for the busy lock of
	// strategy Lock, as policies say.
	Rand func() float64
	// Spread is as Rand, for the waits that errors ask for; Rand if nil. One that is always 0.5
	// makes them exact.
	Spread func() float64
	// NewID makes tokens: unguessable, without spaces.
	NewID func() string
	// Timeout bounds each call to Redis; 1 s if 0.
	Timeout time.Duration
	// Log receives what is not worth an error, at debug level, and once that the user of Redis
	// lacks a right. The zero value discards it.
	Log logr.Logger
	// Metrics counts; unregistered if nil.
	Metrics *Metrics
	// KeyPrefix comes before the names of all keys, inside of the braces. No braces, no spaces.
	KeyPrefix string
	// Installation is whose the data is: Redis that names another one is not used, see
	// ForeignError. "": nobody looks.
	Installation string
	// Home is the namespace of the operators in their cluster: one serves the whole of it. "": it
	// does not matter.
	Home string
	// HomeGone says for certain that a namespace is no more, and with it all operators in it: what
	// was theirs becomes this one's; nil: none is.
	HomeGone func(ctx context.Context, namespace string) bool
	// TakeOver is an installation, or a Home in this one, whose Redis becomes this one's.
	TakeOver string
	// Naming has the replicas use one Redis; nil: nobody looks which one it is.
	Naming Naming
	// Nameless has a Redis be used that takes no name now, as a full one: what frees room in it
	// must go on. It is for who needs no name, since one process at a time drives all runs.
	Nameless bool
	// Since says since when the Redis of that name is the one in use without another one in
	// between, in ms of its clock. It is asked before each usage of Naming, and keeps the answer
	// outside of all Redis; now is the answer where another one was used last. Data that is older
	// counts as lost, and is rebuilt. nil: nobody moves.
	Since func(ctx context.Context, name string, now int64) (since int64, err error)
	// Explain turns an error of Redis into one that tells a user what to do; nil: as it is.
	Explain func(error) error
	// OnBusyRetry is called before each wait for a busy lock of strategy Lock, and counts it;
	// nil: nobody does.
	OnBusyRetry func(policy string, fixed bool, delay time.Duration)
	// OnTaken is called when a lock of strategy Lock was had after so many retries, and counts it;
	// nil: nobody does.
	OnTaken func(policy string, retries int)
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Rand == nil {
		o.Rand = mathrand.Float64
	}
	if o.Spread == nil {
		o.Spread = o.Rand
	}
	if o.NewID == nil {
		o.NewID = rand.Text
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil, 0)
	}
	if o.HomeGone == nil {
		o.HomeGone = func(context.Context, string) bool { return false }
	}
	if o.Explain == nil {
		o.Explain = func(err error) error { return err }
	}
	if o.OnBusyRetry == nil {
		o.OnBusyRetry = func(string, bool, time.Duration) {}
	}
	if o.OnTaken == nil {
		o.OnTaken = func(string, int) {}
	}
	return o
}

// Store decides which runs are admitted. It has no goroutines and is never closed. Safe for
// concurrent use, also by many processes.
type Store struct {
	client  redis.UniversalClient
	opts    Options
	scripts scripts
	timeout time.Duration // of one call to Redis
	window  int

	scanless sync.Once // that its user may not HSCAN is logged

	mu     sync.Mutex
	floors map[string]int64 // highest term seen, by the name of the Redis key
	whose                   // guarded by mu
	moves                   // guarded by mu
}

// New makes a Gate. It asks Redis nothing before the first call. client should be made for
// short calls: it must end a call when its context does, and not repeat it in secret for
// longer than that.
func New(client redis.UniversalClient, o Options) *Store {
	return &Store{client: client, opts: o.withDefaults(), scripts: loadScripts(longestReservation), timeout: cmp.Or(o.Timeout, callTimeout), window: window, floors: map[string]int64{}, moves: moves{turn: make(chan struct{}, 1)}}
}

// keys are the Redis keys of slots, in the order of queue.lua. The braces make them live in one
// slot of a Redis Cluster.
func (g *Store) keys(k Key) []string {
	base := "{" + g.opts.KeyPrefix + "adm:" + k.Policy + ":" + k.Tenant + "}:"
	return []string{base + "slots", base + "line", base + "places", base + "reserved", base + "lock"}
}

// check refuses what could be mistaken for another key. A policy has no colon, so the first
// one ends it.
func (k Key) check() error {
	if !plain(k.Policy) || strings.Contains(k.Policy, ":") || !plain(k.Tenant) || k.Tenant == "" {
		return fmt.Errorf("%w: %.100q", ErrInvalidRequest, k)
	}
	return nil
}

// check refuses what could be mistaken for something else in the queue or among the slots.
func (r Run) check() error {
	if !plain(r.Name) || r.Name == "" {
		return fmt.Errorf("%w: name of a run %.100q", ErrInvalidRequest, r.Name)
	}
	return checkUIDs(r.UID)
}

func checkUIDs(uids ...string) error {
	for _, uid := range uids {
		if !plain(uid) || uid == "" || strings.HasPrefix(uid, ":") {
			return fmt.Errorf("%w: UID %.100q", ErrInvalidRequest, uid)
		}
	}
	return nil
}

// plain says that s is short and has no spaces, control characters or braces.
func plain(s string) bool {
	return len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '{' || r == '}' || r == 0x7f })
}
