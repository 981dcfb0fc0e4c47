// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// locks hands out run locks; *lockmgr.Manager does.
type locks interface {
	Acquire(ctx context.Context, r lockmgr.Request) (*lockmgr.Lease, error)
	Leave(ctx context.Context, of func(runUID string) bool)
}

// Options are what Leases need.
type Options struct {
	Locks  locks
	Clock  clock.PassiveClock
	Rand   func() float64 // spreads waits for busy locks, as policies say
	Spread func() float64 // spreads all other waits; uniform in [0,1) likewise
	NewID  func() string  // random lease ids for forced ends
	Holder string         // name of this replica
	// Gone says of a process of a lock manager that it uses its locks no more; nil: none is.
	Gone    func(process string) bool
	Metrics *lockmgr.Metrics
	// TakeOver measures take-overs.
	TakeOver prometheus.Observer
	// DrivenSince is when this process began to drive a run; zero: it does not. nil: it drives all.
	DrivenSince func(run types.UID) time.Time
	// Wake has a pass made over a run soon; it does not block.
	Wake func(types.NamespacedName)
}

// Leases takes, keeps and gives back the locks of runs.
type Leases struct {
	Options
	Cache   *Cache
	Breaker *Breaker
}

// New makes leases; the Cache is to be started.
func New(o Options) *Leases {
	drives := func(run types.UID) bool { return o.DrivenSince == nil || !o.DrivenSince(run).IsZero() }
	return &Leases{Options: o, Cache: NewCache(drives), Breaker: &Breaker{clock: o.Clock}}
}

// State is what this process remembers of the lock of one run.
type State struct {
	// Writer is the lease under which this process last wrote the run. While status shows it no
	// other has written since. "": none.
	Writer string
	// Lost is the reason why this process lost its last lease of the run, until status tells it.
	Lost string
	// floor is the highest fence of others that NATS has told of; a lease at or below it
	// could dispatch nothing.
	floor int64
	// busy is about the lock that the run waits for, and busyRetries how often it was tried again
	// since it was first found busy.
	busy        busyWait
	busyRetries int
	// called is set by the lock manager when the run is to look again, as a rule as it is its turn,
	// until the lock is asked for again; nil: it was not asked for.
	called *atomic.Bool
	// Votes are what these waits say of the policy.
	Votes Votes
	// leaselessSince is up to when metrics know how long the run has wanted a lease again after it
	// lost one; zero: it has one, or wants none.
	leaselessSince time.Time
	// inHand is set once this process has looked after the run: it does what is due, and no lock
	// keeps it from it.
	inHand bool
}

// Raise has the next lease taken above a fence of another.
func (st *State) Raise(fence int64) { st.floor = max(st.floor, fence) }

// leaveTimeout bounds how long Leave takes with a Redis that hangs.
const leaveTimeout = time.Second

// Leave gives up places in the queues of locks of runs that this process drives no more, and locks
// that nobody here uses. Else the next owner, in those queues behind this process, would wait for a
// lock that is offered to nobody who wants it. It has a time of its own, a short one, also where
// that of ctx is over.
func (l *Leases) Leave(ctx context.Context, of func(types.UID) bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	l.Locks.Leave(ctx, func(runUID string) bool { return of(types.UID(runUID)) })
}

// Session is what one pass does with the lock of its run.
type Session struct {
	*State
	all    *Leases
	key    types.NamespacedName
	uid    types.UID
	policy policy.Effective
	kept   *lockmgr.Lease // kept by the run, and not worked under yet; nil: none
	// Held is worked under; nil: without the lock.
	Held *lockmgr.Lease
	// Ahead says that something is decided under the lease and not written, or may soon be: it is
	// kept for that.
	Ahead bool
}

// Session begins a pass over a run.
func (l *Leases) Session(st *State, key types.NamespacedName, uid types.UID, p policy.Effective) *Session {
	return &Session{State: st, all: l, key: key, uid: uid, policy: p}
}
