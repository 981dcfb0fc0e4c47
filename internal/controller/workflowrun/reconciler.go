package workflowrun

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/children"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/gc"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// lookAgain is when a run under way is looked at at the latest, whatever it waits for: a safety net for wake-ups that
	// were lost, say by a clock that was set back.
	lookAgain = 5 * time.Minute
	// forgetDelay is when a finished run is looked at again to drop what is remembered of it.
	forgetDelay = 5 * time.Second
	// decideTimeout bounds what a decision under the lock asks of the object store.
	decideTimeout = 8 * time.Second
	// passTimeout bounds the write and the effects of one pass, from when it was decided on, also while the operator stops.
	passTimeout = 8 * time.Second
	// resultPatience is how long results wait for Redis or the API server before they go back to NATS. How long they wait for a
	// busy lock is a matter of the policy.
	resultPatience = 3 * time.Second
	// refreshDelay is the wait before the next pass after the run had to be read live.
	refreshDelay = 10 * time.Millisecond
	// publishParallel bounds the jobs that one pass publishes at the same time.
	publishParallel = 16
	// othersPatience is how long a process leaves attempts alone that another one dispatched. Only operators that
	// share runs meet such a young attempt: a new leader begins seconds after the last one wrote.
	othersPatience = time.Second
	// nextPriority is that of runs whose turn it is at their tenant's gate; others have 0.
	nextPriority = 10
)

// locks hands out run locks; *lockmgr.Manager does.
type locks interface {
	Acquire(ctx context.Context, r lockmgr.Request) (*lockmgr.Lease, error)
}

// link says what is known of the connection to NATS; *bus.Conn does.
type link interface {
	Connected() bool
	// Outage is since when NATS does not answer; zero: it does, as far as is known.
	Outage() time.Time
	// Losses is how often NATS has lost data, as far as is known.
	Losses() uint64
}

// dispatcher is where jobs go; *jobs.Queue does it.
type dispatcher interface {
	Publish(ctx context.Context, j jobs.Job) error
	Fence(ctx context.Context, j jobs.Job) (epoch uint64, err error)
	Recover(ctx context.Context, j jobs.Job) (jobs.RecoverOutcome, error)
	Withdraw(ctx context.Context, topic string, id protocol.JobID) error
	Cancel(ctx context.Context, runUID string, jobs []protocol.JobID) error
}

// reader reads results of a run that are stored and not settled; *results.Reader does.
type reader interface {
	Answers(ctx context.Context, runUID string, from uint64) (busresults.AnswerPage, error)
}

// Reconciler advances runs. See the package's documentation.
type Reconciler struct {
	client   client.Client // reads from the cache, writes directly
	live     client.Reader // reads from the API server
	statuses statuses
	locks    locks
	nats     link
	jobs     dispatcher
	reader   reader
	outputs  outputs
	slots    *slots.Slots
	crews    crews
	// policyChanged tells the quota controller that limits may be others now.
	policyChanged func()

	events events.EventRecorder
	clock  clock.WithTickerAndDelayedExecution
	rand   func() float64 // spreads waits for busy locks, as policies say
	spread func() float64 // spreads all other waits; uniform in [0,1) likewise
	newID  func() string
	holder string
	// recoverPatience is how long attempts that others dispatched are left to them: see recoverFrom.
	recoverPatience time.Duration
	// requireLists: namespaces without lists of classes and topics permit none.
	requireLists bool

	// writes has a place for each status write that may be under way at the same time; nil: any number.
	writes *shares.Shares
	// turns has a place for each pass that may be under way.
	turns *shares.Turns
	// desks has a place for each pass that may do what takes long.
	desks *shares.Desks

	metrics       *Metrics
	locked        *lockmgr.Metrics // of lock-busy retries
	resultMetrics *busresults.Metrics

	inbox    *results.Inbox
	settler  *results.Settler
	memories *memories
	lists    *lists
	index    *results.Index
	gc       *gc.Collector
	children *children.Children
	breaker  *breaker
	keeper   *keeper
	queue    atomic.Pointer[queue]     // nil before the controller starts
	leading  atomic.Pointer[time.Time] // since when; nil before the controller starts
}

// queue is the part of the controller's workqueue that wakes a run.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// wake has a pass made over a run soon; it does not block.
func (r *Reconciler) wake(key types.NamespacedName) {
	if q := r.queue.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: key})
	}
}

// wakeNext has a pass made over a run that may be let in, before those over others that wait for a pass: a slot that nobody uses is
// time lost for its tenant, and new runs of others can wait for it.
func (r *Reconciler) wakeNext(key types.NamespacedName) {
	q := r.queue.Load()
	if q == nil {
		return
	}
	if prior, ok := (*q).(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		prior.AddWithOpts(priorityqueue.AddOpts{Priority: new(nextPriority)}, reconcile.Request{NamespacedName: key})
		return
	}
	(*q).Add(reconcile.Request{NamespacedName: key})
}

// Reconcile makes one pass over a run: observe, decide, persist, act.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.turns.See(req.Namespace, r.clock.Now())
	turn, may := r.turns.Enter(req.NamespacedName)
	if !may {
		return reconcile.Result{}, nil // it is woken
	}
	defer r.turns.Leave(turn)
	// What a deleted run of the same name left must not keep this one waiting.
	cleaned := r.cleanDeleted(ctx, req.NamespacedName)
	p, err := r.observe(ctx, req.NamespacedName)
	if err != nil || p == nil {
		return reconcile.Result{}, errors.Join(cleaned, err)
	}
	defer p.desk.StandUp()
	if cause := p.needsNewer(); cause != nil {
		return p.leaveToNewer(ctx, cause), cleaned
	}
	result, err := p.advance(ctx)
	return result, errors.Join(cleaned, err)
}

// cleanDeleted takes back what deleted runs of this name left behind: queued jobs and parked results.
func (r *Reconciler) cleanDeleted(ctx context.Context, key types.NamespacedName) error {
	gone := r.index.TakeDeleted(key)
	if len(gone) > 0 {
		r.crews.Forget(key)
	}
	for i, g := range gone {
		r.keeper.drop(ctx, g.UID)
		r.lists.keep(g.UID, nil)
		r.index.Forget(g.UID) // a pass that read the run before it was deleted may have entered it again
		if m := r.memories.peek(key); m != nil && m.uid == g.UID {
			if held := m.slot.Holding; held != nil {
				g.Holding, gone[i].Holding = held, held // its status need not have told
			}
			r.memories.forget(key)
		}
		r.settler.Gone(ctx, g.UID)
		if err := errors.Join(r.gc.Deleted(ctx, g), r.slots.ReleaseDeleted(ctx, g.UID, g.Holding, g.Tenant, g.Key)); err != nil {
			r.index.PutBack(key, gone[i:])
			return err
		}
	}
	return nil
}

// again asks for another pass at a time; the zero time asks for none.
func (r *Reconciler) again(at time.Time) reconcile.Result {
	if at.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(at.Sub(r.clock.Now()), time.Millisecond)}
}
