// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// Options are what a Keeper needs.
type Options struct {
	// Client reads and writes Leases and one ConfigMap; it must not read from a cache.
	Client client.WithWatch
	// Namespace is that of the operator's own objects.
	Namespace string
	// Installation and Prefix say whose partitions they are. A Keeper with others refuses to start.
	Installation, Prefix string
	// InstallationNow reads whose cluster the API server is, to tell owners that were copied from
	// another one, and are written anew, from an API server that has become another one, where
	// Start ends. nil: it always ends.
	InstallationNow func(context.Context) (string, error)
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
	// Redis has this member own nothing while its Redis is not the one of the others. Fit has it
	// told of the name. nil: any Redis does.
	Redis *Redis
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
	// Fresh is for how long a list says whom partitions are given to: a quarter of Look, 250 ms at
	// most.
	Fresh time.Duration
	// Settle is how long the members must be the same before partitions are moved: 3 s.
	Settle time.Duration
	// Drain bounds one call of Handler.Lose: 1.2 s. Whatever does not end by then is cut off, and a
	// partition stands still for as long, with the runs of all who have some there.
	Drain time.Duration
	// Stop bounds the end of Start: 6 s. Three fifths of it are there to hand all on.
	Stop time.Duration
}

// or fills in the defaults.
func (t Timing) or() Timing {
	fill := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	fill(&t.Lease, 6*time.Second)
	fill(&t.Margin, t.Lease/6)
	fill(&t.Renew, t.Lease/3)
	fill(&t.Look, t.Lease/6)
	fill(&t.Fresh, min(t.Look/4, 250*time.Millisecond))
	fill(&t.Settle, t.Lease/2)
	fill(&t.Stop, min(max(5*time.Second, t.Lease), 8*time.Second))
	fill(&t.Drain, min(t.Lease/2, t.Stop/5)) // who leaves has the time to write whom all goes to
	return t
}

// chunk is how many partitions are handed on at a time.
const chunk = 8

// Keeper keeps the partitions of one member.
type Keeper struct {
	opts   Options
	timing Timing
	began  time.Time
	api    *api
	hands  *hands

	mu     sync.Mutex
	member *rules.Member
	users  users
	health health
	gaps   gaps
	// lastList is when the last list that was answered was sent.
	lastList rules.Time

	// joined: there was a session.
	joined atomic.Bool
	owned  [Partitions]atomic.Int64 // the session in which it is owned; 0: it is not
	until  atomic.Pointer[validity]
	known  atomic.Pointer[rules.Effective]
	// told is the object as the watch last told of it; nil: there is none.
	told atomic.Pointer[corev1.ConfigMap]
	// replaced are the last versions of the object that this member replaced. The watch may tell of
	// one of them until it tells of the write.
	replaced []string
	// newer: the last look that was answered showed what a newer version wrote.
	newer atomic.Bool

	// renewNow and lookNow ask the two loops not to wait.
	renewNow, lookNow chan struct{}
	fatal             chan error
}

// validity is until when a session may act.
type validity struct {
	session int64
	until   rules.Time
}

// New makes a Keeper. It owns nothing until it is started.
func New(o Options) *Keeper {
	t := o.Timing.or()
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	k := &Keeper{
		opts: o, timing: t, began: o.Clock.Now(), users: users{}, health: newHealth(o, t), gaps: gaps{map[int]rules.Time{}, map[int]sign{}},
		member: rules.NewMember(o.Member, rules.Settings{
			Partitions: Partitions, Lease: t.Lease, Margin: t.Margin, Settle: t.Settle, Chunk: chunk, Fresh: t.Fresh,
		}),
		renewNow: make(chan struct{}, 1), lookNow: make(chan struct{}, 1), fatal: make(chan error, 1),
	}
	k.health.said = k.health.mark(0, false)
	k.member.Marked(k.health.said, 0)
	k.until.Store(&validity{})
	k.known.Store(&rules.Effective{})
	k.hands = &hands{handler: o.Handler, more: make(chan struct{}, 1), idle: true}
	k.api = &api{client: o.Client, namespace: o.Namespace, scope: scope{o.Installation, o.Prefix}, timeout: t.Lease / 4, now: o.InstallationNow}
	o.Redis.follow(t.Lease, func() {
		k.apply(func(_ *rules.Member, now rules.Time) { k.remark(now) })
		nudge(k.renewNow)
	})
	k.publish(0) // it may never be started: its gauges must not say then that all is well
	return k
}

// Start joins the members, and takes, keeps and hands on partitions until ctx ends. It is called
// once the caches of this process are synced. It implements manager.Runnable. It returns an error
// only where there is no use in trying again, such as ErrOtherInstallation.
func (k *Keeper) Start(ctx context.Context) error {
	if !memberPattern.MatchString(k.opts.Member) {
		return fmt.Errorf("member %q: need 1 to 200 of a-z, 0-9, dot and hyphen", k.opts.Member)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	lease := &ownLease{client: k.opts.Client, namespace: k.opts.Namespace, member: k.opts.Member, lease: k.timing.Lease}
	var all sync.WaitGroup
	for _, loop := range []func(context.Context){
		func(ctx context.Context) { k.renewals(ctx, lease) }, k.looks, k.chores, k.watches, k.lapses, k.work, k.fitness,
	} {
		all.Go(func() { loop(running) })
	}
	var err error
	select {
	case <-ctx.Done():
		k.leave(running)
	case err = <-k.fatal:
		k.opts.Log.Error(err, "Gives up all partitions")
	}
	k.apply(func(m *rules.Member, _ rules.Time) { m.LeaseGone() })
	k.await(running, k.timing.Stop/5, k.hands.isIdle)
	stop()
	all.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.timing.Stop/5)
	defer cancel()
	if gone := lease.remove(last); gone != nil {
		k.opts.Log.Info("Own Lease was left behind; it ends by itself", "cause", gone.Error())
	}
	return err
}

// leave hands all partitions on, within most of the time that there is to stop. First its Lease
// says so: else those who are given partitions would give them back.
func (k *Keeper) leave(ctx context.Context) {
	began := k.opts.Clock.Now()
	k.apply(func(m *rules.Member, now rules.Time) {
		k.health.leaving = true
		k.health.said = k.health.mark(now, m.Session() > 0)
	})
	nudge(k.renewNow)
	k.await(ctx, k.timing.Stop/5, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.health.announced || k.newer.Load() // then its Lease is not renewed
	})
	k.apply(func(m *rules.Member, now rules.Time) { m.Marked(k.health.said, now) })
	nudge(k.lookNow)
	marked, none := k.opts.Clock.Now(), len(k.claimed()) == 0
	if !k.await(ctx, k.timing.Stop*3/5-k.opts.Clock.Since(began), func() bool {
		k.apply(func(*rules.Member, rules.Time) {}) // the time in which it waits for a list may be over
		// Who listed the members a moment before may give it partitions still. One that had some
		// need not wait: its last write has such gifts refused.
		return k.finished() && (!none || k.opts.Clock.Since(marked) > 2*k.timing.Fresh)
	}) {
		k.opts.Log.Info("Partitions could not all be handed on in time: they stand still until the own Lease counts no more", "left", k.claimed())
	}
}

// claimed are the partitions that are this member's in the object, as far as it knows.
func (k *Keeper) claimed() (partitions []int) {
	for p, c := range k.known.Load().Claims {
		if c.Owner == k.opts.Member {
			partitions = append(partitions, p)
		}
	}
	return partitions
}

// await waits until something is done, within a bound. There may be no time left, where the process
// was paused.
func (k *Keeper) await(ctx context.Context, bound time.Duration, done func() bool) bool {
	end := k.opts.Clock.NewTimer(bound)
	defer end.Stop()
	again := k.opts.Clock.NewTicker(max(bound/100, time.Millisecond))
	defer again.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return false
		case <-end.C():
			return false
		case <-again.C():
		}
	}
	return true
}

func (k *Keeper) finished() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.member.Finished() || (k.member.Session() == 0 && k.hands.isIdle())
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Keeper) NeedLeaderElection() bool { return false }

// now is the time since this Keeper was made.
func (k *Keeper) now() rules.Time { return k.opts.Clock.Since(k.began) }

// apply changes the member, and carries out what follows from that.
func (k *Keeper) apply(change func(m *rules.Member, now rules.Time)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.member.Session()
	change(k.member, k.now())
	now := k.now()
	a := k.member.Act(now)
	k.noteSessions(was, now)
	k.gaps.forget(k.member, k.opts.Member)
	k.publish(now)
	for _, p := range a.Cut {
		k.users.end(p)
	}
	k.hands.add(a.Gain, a.Lose, now)
	if len(a.Gain)+len(a.Lose) > 0 {
		k.opts.Log.Info("Partitions change", "gained", a.Gain, "lost", a.Lose, "atOnce", a.Cut, "owned", k.count())
	}
}

// noteSessions counts sessions that ended, and says on the Lease what changed. Needs mu.
func (k *Keeper) noteSessions(was int, now rules.Time) {
	is := k.member.Session()
	if was == is {
		return
	}
	k.joined.Store(true)
	if was > 0 {
		k.opts.Redis.lapsed()
	}
	if was > 0 && !k.health.leaving {
		k.opts.Metrics.lapses.Inc()
		k.health.lapsed(now)
		k.opts.Log.Info("Own Lease or the owners of partitions were not renewed in time: no partition is worked on here", "owned", k.count())
		nudge(k.renewNow)
	}
	k.remark(now)
}

// remark marks the member by its health. Needs mu.
func (k *Keeper) remark(now rules.Time) {
	mark := k.health.mark(now, k.member.Session() > 0)
	if mark != k.health.said {
		k.health.said = mark
		k.member.Marked(mark, now)
		nudge(k.renewNow)
	}
	if k.opts.Redis.withdraw(now, k.timing.Lease, k.health.fails(now)) {
		nudge(k.renewNow)
	}
}

// publish shows what the member knows to those who ask. Without a session it knows of nobody who
// works: owners whose Leases are live may have given up for the same cause. Needs mu.
func (k *Keeper) publish(now rules.Time) {
	session := int64(k.member.Session())
	unowned := 0
	known := k.member.Known()
	owned := 0
	for p := range k.owned {
		mine := int64(0)
		if session > 0 && k.member.Acts(p, now) {
			mine = session
			owned++
		}
		k.owned[p].Store(mine)
		if session == 0 || p >= len(known.Claims) || nobodyWorksFor(k, known.Claims[p].Owner) {
			unowned++
		}
	}
	k.until.Store(&validity{session, k.member.ValidUntil()})
	k.known.Store(&known)
	k.opts.Metrics.owned.Set(float64(owned))
	k.opts.Metrics.unowned.Set(float64(unowned))
	k.opts.Metrics.members.Set(float64(len(k.member.Eligible())))
}

// nobodyWorksFor says whether an owner works on nothing, as far as this member knows. Needs mu.
func nobodyWorksFor(k *Keeper, owner string) bool {
	return owner == "" || k.member.Gone(owner) || (owner == k.opts.Member && k.health.ownsNothing())
}

func (k *Keeper) count() (n int) {
	for p := range k.owned {
		if k.Owns(p) {
			n++
		}
	}
	return n
}

// Owns says whether the work of partition p may be done here now. It is cheap: ask at each pass. It
// turns false by itself when the Lease of this process was not renewed in time.
func (k *Keeper) Owns(p int) bool {
	if !inRange(p) {
		return false
	}
	session := k.owned[p].Load()
	v := k.until.Load()
	return session > 0 && session == v.session && k.now() < v.until
}

// ProcessGone says whether the Lease of a member ended, as this process observed it: its run locks
// are in use no more, and may be replaced at once. Its name ends with a point and the name of its
// process, which is what tokens of run locks have. It is false for one that was never a member.
func (k *Keeper) ProcessGone(process string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.member.ProcessGone(process)
}

// Joined says whether this member could ever be given partitions. Whoever has this process replace
// another one has to wait for that.
func (k *Keeper) Joined() bool { return k.joined.Load() }

// While is a context that ends with ctx, or with the cause ErrNotOwned when this member must act
// for p no more. Call cancel when the work has ended.
func (k *Keeper) While(ctx context.Context, p int) (context.Context, context.CancelFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.users.add(ctx, &k.mu, p, k.Owns(p))
}

// nudge asks a loop not to wait.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
