package ownership

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options are what a Keeper needs.
type Options struct {
	// Client reads and writes Leases and one ConfigMap; it must not read from a cache.
	Client client.WithWatch
	// Namespace is that of the operator's own objects.
	Namespace string
	// Installation and Prefix say whose partitions they are. A Keeper with others refuses to start.
	Installation, Prefix string
	// Member is the name of this process, and of no other, ever: the name of its pod and something
	// random. It is part of the name of a Lease: 1 to 200 of a-z, 0-9, -, .
	Member string
	// LeaderLease is the name of the Lease of --ownership=leader. While somebody holds it, members
	// own nothing. Empty: it is not looked at.
	LeaderLease string
	// Handler begins and ends the work of partitions.
	Handler Handler
	// Fit says whether this process can work: Redis and NATS are reachable. nil: it always can.
	Fit func(context.Context) error
	// Clock is the time of this process. Its monotonic reading counts, never the time of day.
	Clock clock.WithTicker
	// Spread draws from [0, 1): the jitter of waits.
	Spread  func() float64
	Log     logr.Logger
	Metrics *Metrics
	// Timing scales waits, for tests; the zero value is that of production.
	Timing Timing
}

// Timing are the waits of a Keeper. A zero field has the default.
type Timing struct {
	// Lease is how long a Lease counts after its last renewal: 6 s.
	Lease time.Duration
	// Margin is how long before that its holder stops: 1 s.
	Margin time.Duration
	// Renew is the time from one renewal to the next: 2 s.
	Renew time.Duration
	// Look is the time from one look at the members to the next: 1 s.
	Look time.Duration
	// Settle is how long the members must be the same before partitions are moved: 3 s.
	Settle time.Duration
	// Drain bounds one call of Handler.Lose: 3 s.
	Drain time.Duration
	// Stop bounds the end of Start: 5 s.
	Stop time.Duration
}

// Keeper keeps the partitions of one member.
type Keeper struct {
	opts Options
}

// New makes a Keeper. It owns nothing until it is started.
func New(o Options) *Keeper { return &Keeper{opts: o} }

// Start joins the members, and takes, keeps and hands on partitions until ctx ends. It is called
// once the caches of this process are synced. It implements manager.Runnable. It returns an error
// only where there is no use in trying again, such as ErrOtherInstallation.
func (k *Keeper) Start(context.Context) error { return errors.New("ownership: not built yet") }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Keeper) NeedLeaderElection() bool { return false }

// Owns says whether the work of partition p may be done here now. It is cheap: ask at each pass. It
// turns false by itself when the Lease of this process was not renewed in time.
func (k *Keeper) Owns(int) bool { return false }

// OwnerOf is the owner of a partition as this process last read it; empty: none.
func (k *Keeper) OwnerOf(int) string { return "" }

// Term is the term of a partition as this process last read it: it grows with each change of the
// owner. (The word epoch is taken by the dispatch of jobs.)
func (k *Keeper) Term(int) int64 { return 0 }

// Gone says whether the Lease of a member ended, as this process observed it: its run locks are in
// use no more, and may be replaced at once.
func (k *Keeper) Gone(string) bool { return false }

// While is a context that ends with ctx, or with the cause ErrNotOwned when this member must act
// for p no more. Call cancel when the work has ended.
func (k *Keeper) While(ctx context.Context, p int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(ErrNotOwned)
	return ctx, func() {}
}
