// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
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
)

// renewalsAtOnce bounds the background calls under way. Without a bound a burst of renewals would
// queue for connections while their timeouts run, and healthy leases would count failures.
const renewalsAtOnce = 64

// processLength is that of the first half of lease ids: 80 random bits.
const processLength = 16

// NewProcess is a name for a process: 16 of a-z and 2-7.
func NewProcess() string { return strings.ToLower(rand.Text()[:processLength]) }

// Options are what a Manager needs besides Redis. The zero value of each field but Holder has
// a sensible meaning.
type Options struct {
	// Holder names this process in logs.
	Holder string
	// Process names this process, and no other ever, in tokens and in the queue: see NewProcess.
	// Empty: a new one.
	Process string
	// Clock tells the time; the real one if nil. Its times must carry a monotonic reading: lease
	// validity must not follow the wall clock.
	Clock clock.WithTicker
	// Rand is uniform in [0,1) and safe for concurrent use. It spreads waits for busy locks,
	// as policies say.
	Rand func() float64
	// Spread is as Rand, for all other waits: those before Redis is tried again; Rand if nil. One
	// that is always 0.5 makes them exact.
	Spread func() float64
	// NewID makes the second half of lease ids: unguessable, at most 47 bytes.
	NewID func() string
	// Log receives losses, and failing renewals at debug level. The zero value discards them.
	Log logr.Logger
	// Metrics counts; unregistered if nil.
	Metrics *Metrics
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
	if o.Process == "" {
		o.Process = NewProcess()
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil, nil)
	}
	o.Log = o.Log.WithValues("holder", o.Holder)
	return o
}

// spread is uniform in [0.8, 1.2].
func (o Options) spread() float64 { return 1 - spreadFraction + 2*spreadFraction*o.Spread() }

// Request asks for the lock of a run.
type Request struct {
	// RunUID is the metadata.uid of the run.
	RunUID string
	// Floor is the fence in the run's status as the caller read it; 0: none.
	Floor int64
	// FloorLeaseID is status.lock.leaseID as the caller read it; empty: none.
	FloorLeaseID string
	// Policy tunes the lock.
	Policy policy.RunLock
	// PolicyName is the name of the LockPolicy, for metrics.
	PolicyName string
	// Path says who asks, for metrics: reconcile (the default), result.
	Path string
	// Waiter tells those apart who want the lock of the same run in this process; default Path.
	// Whoever asks again under the same name keeps its place in the queue.
	Waiter string
	// Wake is called when the caller should look at the lock of the run: after a *BusyError with
	// Queued set, when the lock is there for it (Acquire then has it at once; after a second it
	// goes to the next in the queue); and while it holds a lease, when the lease's Status or Err
	// changed. It must not block; it is called without locks held. nil: nobody is told, and nobody
	// waits in the queue.
	Wake func()
	// Gone says of a process that it uses none of its locks any more, for good: its lock is
	// replaced at once. nil: locks end by their TTL.
	Gone func(process string) bool
	// Since is when the caller began to want the lock, for metrics; zero: now.
	Since time.Time
	// Retries is how often the caller tried again since then, for metrics.
	Retries int
}

func (r Request) check() error {
	if r.RunUID == "" || r.Policy.Validity() <= 0 {
		return fmt.Errorf("%w: run %q, validity %s", ErrInvalidRequest, r.RunUID, r.Policy.Validity())
	}
	return nil
}

func (r Request) withDefaults(now time.Time) Request {
	if r.Since.IsZero() {
		r.Since = now
	}
	if r.Path == "" {
		r.Path = "reconcile"
	}
	if r.Waiter == "" {
		r.Waiter = r.Path
	}
	return r
}

// Manager takes, keeps and gives back the run locks of one process. Safe for concurrent use.
type Manager struct {
	opts    Options
	process string // name of this process in tokens and in the queue; unguessable
	store   store
	slots   chan struct{}   // one element per background call under way
	wake    chan struct{}   // the next event is earlier than the timer; capacity 1
	stop    chan struct{}   // closed when the scheduler must end
	life    context.Context //nolint:containedctx // ends all background calls when Close gives up
	die     context.CancelFunc
	tasks   sync.WaitGroup

	mu      sync.Mutex
	runs    map[string]*run
	queue   eventQueue
	armed   time.Time     // when the scheduler wakes by itself; zero: never
	started bool          // the scheduler runs, and news are listened to
	closed  bool          // no more takes
	gone    bool          // Close does not wait any more: no calls, no goroutines
	active  int           // runs that are being taken or held
	drained chan struct{} // closed when closed and active is 0
}

// New makes a Manager. It starts nothing and asks Redis nothing before the first Acquire. The
// caller must Close it.
func New(client redis.UniversalClient, o Options) *Manager {
	return newManager(newRedisStore(client), o)
}

func newManager(s store, o Options) *Manager {
	o = o.withDefaults()
	life, die := context.WithCancel(context.Background()) //nolint:forbidigo // a Manager lives as long as its owner wants it
	return &Manager{
		life: life, die: die,
		opts:    o,
		process: o.Process,
		store:   s,
		slots:   make(chan struct{}, renewalsAtOnce),
		wake:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		runs:    map[string]*run{},
		drained: make(chan struct{}),
	}
}

// bounded is a context for a call to Redis: it ends after timeout, and when Close gives up.
func (m *Manager) bounded(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	forget := context.AfterFunc(m.life, cancel)
	return ctx, func() { forget(); cancel() }
}

// slot waits for the right to make a background call; false: Close gave up, or ctx ended.
func (m *Manager) slot(ctx context.Context) bool {
	select {
	case m.slots <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-m.life.Done():
	}
	return false
}

func (m *Manager) now() time.Time { return m.opts.Clock.Now() }

// Ping says whether Redis answers, within a second or so.
func (m *Manager) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.store.Ping(ctx)
}
