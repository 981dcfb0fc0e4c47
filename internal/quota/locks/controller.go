// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// mutexPrefix begins the names of mutexes. The name of a semaphore has no colon.
const mutexPrefix = "mutex:"

// longestMutexQueue is how many may wait for a mutex.
const longestMutexQueue = 10_000

// mostLooks is how many runs one call looks at when those that are next are over or gone. A
// tenant may have deleted thousands that wait.
const mostLooks = 256

// Options are what a Controller needs.
type Options struct {
	// Store decides, in Redis.
	Store *store.Store
	// Client reads from the cache, and writes.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Wake has the run controller look at a run soon. It must not block.
	Wake func(types.NamespacedName)
	// Clock tells the time; the real one if nil.
	Clock clock.Clock
	// NewID makes marks of rebuilds, no two alike; random ones if nil.
	NewID func() string
	// Log receives what the resyncs do.
	Log logr.Logger
	// Metrics counts; unregistered if nil.
	Metrics *Metrics
}

// Controller lets runs and steps have their locks. Safe for concurrent use, also by many processes;
// Start is for one of them.
type Controller struct {
	store   *store.Store
	client  client.Client
	live    client.Reader
	marker  resyncs.Marker
	wake    func(types.NamespacedName)
	clock   clock.Clock
	newID   func() string
	log     logr.Logger
	metrics *Metrics

	kicks resyncs.Kicks

	mu      sync.Mutex
	changed map[string]bool // semaphores that changed since the last resync; nil: resyncs are made elsewhere
	refused time.Time       // when it was last said that a run may not be cancelled

	// Used by resyncs only.
	idle     map[string]time.Time    // since when a ticket has what status does not say
	refusals map[types.UID]time.Time // when a run could last not be marked, to take what it has
	unknown  map[types.UID]time.Time // since when the cache does not know a run that has tickets
	ended    ended                   // rings
	ahead    map[holdID]time.Time    // since when a hold was seen whose fence was ahead of the clock
}

// New makes a Controller. It asks nobody anything before the first call.
func New(o Options) *Controller {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.NewID == nil {
		o.NewID = rand.Text
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Wake == nil {
		o.Wake = func(types.NamespacedName) {}
	}
	return &Controller{
		store: o.Store, client: o.Client, live: o.Live, wake: o.Wake, clock: o.Clock, newID: o.NewID, log: o.Log, metrics: o.Metrics,
		marker: resyncs.Marker{Client: o.Client, Live: o.Live, Doubts: resyncs.NewDoubts(o.Clock), Name: annotationRebuilt, Log: o.Log},
		kicks:  resyncs.NewKicks(), idle: map[string]time.Time{}, refusals: map[types.UID]time.Time{},
	}
}

// Request is a lock that a run or a step asks for.
type Request struct {
	// Name of the lock, and how many permits of it.
	Name    string
	Permits int32
}

// UnusableError is why a lock cannot be used now: its semaphore is gone, is not for the
// namespace, or does not say for which it is in a way that can be read.
type UnusableError struct{ Lock, Why string }

// Error implements error.
func (e *UnusableError) Error() string { return "lock " + e.Lock + ": " + e.Why }

// Answer is what became of a question.
type Answer struct {
	store.LocksAnswer
	// TTL bounds the wait; 0: nothing does.
	TTL time.Duration
	// Again is when one that waits for a rate is to ask again; zero: it is woken.
	Again time.Time
}

// Take takes all locks of a part of a run (see PartOf), or none. run must have been read before
// the call, and the write that it has them must carry its resourceVersion.
//
// Errors: *UnusableError; those of reading the cache; and as store.Store.TakeLocks. After an error
// nothing may be used.
func (c *Controller) Take(ctx context.Context, run *v1alpha1.WorkflowRun, part string, requests []Request) (Answer, error) {
	at, err := standingOf(ctx, c.client, run)
	if err != nil {
		return Answer{}, err
	}
	t := store.Ticket{
		ID: TicketOf(run.UID, part), Run: run.Namespace + "/" + run.Name, Tree: TreeOf(run), Version: run.ResourceVersion,
		Priority: at.priority, Created: at.created, Came: run.CreationTimestamp.Time,
	}
	wants, ttl, err := c.wants(ctx, run, part, requests)
	if err != nil {
		return Answer{}, err
	}
	a, err := c.store.TakeLocks(ctx, t, wants)
	if err != nil {
		c.closed(ctx, err)
		return Answer{}, fmt.Errorf("take locks: %w", err)
	}
	c.metrics.answered(a.State)
	c.follow(ctx, t.Run, a)
	answer := Answer{LocksAnswer: a, TTL: ttl}
	if a.Rest > 0 {
		answer.Again = c.clock.Now().Add(a.Rest)
	}
	return answer, nil
}

// follow cancels and wakes whom an answer names. What fails, the resync does. It cancels first: the
// longer that takes the more of them have ended, and need not be cancelled. Where its time ends
// meanwhile that is left to the resync that is due: one at once would have the same run ask again,
// for the same many runs.
func (c *Controller) follow(ctx context.Context, run string, a store.LocksAnswer) {
	cancelled := c.cancelAll(ctx, a.Cancel, run)
	late := ctx.Err() != nil
	woken := c.wakeAll(ctx, a.Wake)
	err := errors.Join(cancelled, woken)
	if err == nil {
		return
	}
	c.log.Info("Not all were woken or cancelled for a lock, the resync does that", "lock", a.Lock, "cause", err.Error())
	if woken != nil || !late {
		c.kicks.After(store.Unusable(err))
	}
}

// wants are what semaphores say of requests, and the shortest bound of the wait; 0: nothing
// bounds it.
func (c *Controller) wants(ctx context.Context, run *v1alpha1.WorkflowRun, part string, requests []Request) ([]store.Want, time.Duration, error) {
	var ttl time.Duration
	all := make([]store.Want, 0, len(requests))
	for _, r := range requests {
		w, most, err := c.want(ctx, run.Namespace, r)
		if err != nil {
			return nil, 0, err
		}
		if w.Permits > w.Limit && !PartOf(run, part).Waits { // the limit of one that waits may have been lowered, and be raised again
			return nil, 0, &UnusableError{Lock: r.Name, Why: fmt.Sprintf("%d permits are asked for, and there are %d", w.Permits, w.Limit)}
		}
		if most > 0 && (ttl == 0 || most < ttl) {
			ttl = most
		}
		all = append(all, w)
	}
	return all, ttl, nil
}

// want is what a semaphore says of a request.
func (c *Controller) want(ctx context.Context, namespace string, r Request) (store.Want, time.Duration, error) {
	w := store.Want{Name: r.Name, Permits: int(r.Permits), Limit: 1, Longest: longestMutexQueue}
	if strings.HasPrefix(r.Name, mutexPrefix) {
		return w, 0, nil
	}
	name := semaphoreOf(r.Name)
	sem, err := c.semaphore(ctx, name)
	if err != nil {
		return w, 0, err
	}
	if sem == nil {
		return w, 0, &UnusableError{Lock: r.Name, Why: "there is no Semaphore " + name}
	}
	why, err := c.shut(ctx, sem, namespace)
	if err != nil {
		return w, 0, err
	}
	if why != "" {
		return w, 0, &UnusableError{Lock: r.Name, Why: why}
	}
	w.Limit, w.OnBusy, w.Ordered = int(sem.Spec.Permits), store.OnBusy(sem.Spec.OnBusy), sem.Spec.Order == v1alpha1.OrderOrdered
	w.Longest = int(sem.Spec.Queue.MaxLength)
	if w.Longest == 0 {
		w.Longest = longestMutexQueue
	}
	if r := sem.Spec.Rate; r != nil {
		w.Rate = &store.Rate{Starts: int(r.Starts), Period: time.Duration(r.PerSeconds) * time.Second, Since: sem.CreationTimestamp.Time}
	}
	var ttl time.Duration
	if s := sem.Spec.Queue.TTLSeconds; s != nil {
		ttl = time.Duration(*s) * time.Second
	}
	return w, ttl, nil
}

// Drop takes from tickets what they have, and wakes who is next: see store.Dropping. While the data
// is being rebuilt there is nothing to do: the resync after that looks at all runs.
//
// Errors: *store.UnavailableError, and those of reading a run. The next resync does what was not
// done.
func (c *Controller) Drop(ctx context.Context, all ...store.Dropping) error {
	dropped, err := c.store.DropLocks(ctx, all...)
	c.metrics.ended(dropped.Ended)
	woken := c.wakeAll(ctx, dropped.Wake) // after an error, too: some were dropped
	if c.closed(ctx, err) {
		return nil
	}
	if err = errors.Join(err, woken); err != nil {
		c.kicks.After(store.Unusable(err))
		return fmt.Errorf("drop locks: %w", err)
	}
	return nil
}

// wakeAll wakes runs. Those that are over or gone lose their places, and whoever is next is woken
// instead. What they hold stays, for who knows what is below them: one may have got its locks since
// it was named, and keep them for a child that is at its clean-up. Where very many are gone a
// resync does the rest: it finds them with one list.
func (c *Controller) wakeAll(ctx context.Context, next []store.Wake) error {
	seen := map[string]bool{}
	var failed error
	left := false
	for len(next) > 0 && !left {
		var over []store.Dropping
		for _, one := range next {
			if seen[one.Ticket] {
				continue
			}
			if left = len(seen) == mostLooks; left {
				break
			}
			seen[one.Ticket] = true
			there, err := c.wakeOne(ctx, one)
			if err == nil && !there {
				over = append(over, store.Dropping{Ticket: one.Ticket, Seen: store.PlaceOnly})
			}
			failed = errors.Join(failed, err)
		}
		if len(over) == 0 {
			break
		}
		dropped, err := c.store.DropLocks(ctx, over...)
		next, failed = dropped.Wake, errors.Join(failed, err)
	}
	if left {
		c.kicks.Tell()
	}
	return failed
}

// wakeOne wakes a run; false if it is over or gone.
func (c *Controller) wakeOne(ctx context.Context, one store.Wake) (there bool, err error) {
	name := nameOf(one.Run)
	if there, err = c.there(ctx, name, uidOf(one.Ticket)); there {
		c.wake(name)
	}
	return there, err
}

// there says whether a run exists and is not over. The cache may be trusted with an end, but not
// with an absence.
func (c *Controller) there(ctx context.Context, name types.NamespacedName, uid types.UID) (bool, error) {
	for _, from := range []client.Reader{c.client, c.live} {
		run := &v1alpha1.WorkflowRun{}
		err := from.Get(ctx, name, run, client.UnsafeDisableDeepCopy) // it is read only, and once for each that is woken
		switch {
		case client.IgnoreNotFound(err) != nil:
			return false, fmt.Errorf("read run %s: %w", name, err)
		case err == nil && run.UID == uid:
			return run.Status == nil || run.Status.CompletedAt == nil, nil
		}
	}
	return false, nil
}

// SemaphoreChanged is called after a semaphore was made, changed or deleted, when the cache has it:
// a resync wakes all that wait for it. It does not block. Where Start does not run nothing is
// noted: the first resync of each Start takes all semaphores for changed.
func (c *Controller) SemaphoreChanged(name string) {
	c.note(name)
	c.kicks.Tell()
}

// note notes semaphores that changed.
func (c *Controller) note(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if c.changed != nil {
			c.changed[name] = true
		}
	}
}

// everySemaphore stands for all semaphores among those that changed.
const everySemaphore = ""

// notes begins and ends the time in which changes of semaphores are noted.
func (c *Controller) notes(changed map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = changed
}

func (c *Controller) takeChanged() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.changed
	if changed != nil {
		c.changed = map[string]bool{}
	}
	return changed
}

// closed has locks rebuilt that are closed, and says whether they are. Data that is older than what
// this process has seen is open to one that has not seen that: so it is closed for all.
func (c *Controller) closed(ctx context.Context, err error) bool {
	why, is := errors.AsType[*store.RebuildingError](err)
	if !is {
		return false
	}
	if why.Why == store.RebuildOlder {
		_, _ = c.store.BeginLocks(ctx) // else whoever asks next does
	}
	c.kicks.Kick()
	return true
}
