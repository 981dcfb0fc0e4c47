// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/children"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch/backlog"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/gc"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/holds"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/templates"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// errDead is what a killed replica gets from everything it tries: nothing leaves a dead process.
var errDead = errors.New("the process is dead")

// replica is one operator process: Reconciler, inbox, orphan results, lock manager, bus, with
// connections of its own. The spec makes its passes one by one. At each place where something
// leaves or enters the process the spec's hook is asked: its error is the answer, and the place is
// named "<what>/before" or "<what>/after".
type replica struct {
	*Reconciler
	w        *world
	router   *results.Router
	bus      *broker
	manager  *lockmgr.Manager
	redis    redis.UniversalClient
	registry *prometheus.Registry
	recorder *recorder

	hook    func(ctx context.Context, place string) error
	request func(*lockmgr.Request)                            // changes what is asked of the lock manager
	cached  func(*v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun // what the cache says instead of the truth; nil: the truth
	refuse  func(*v1alpha1.WorkflowRun) error                 // what the API server says to a write of status; nil: it may be taken
	// refuseCreation is what the API server says to the creation of an object; nil: it
	// may be taken.
	refuseCreation func(client.Object) error
	outage         time.Time // since when the bus says that NATS does not answer
	dead           atomic.Bool
	quiet          bool // consumes nothing: the spec does it
	handed         bool // follows only what its handover says
	// unsettled bounds the results of all partitions that are not settled; 0: the default.
	unsettled int

	mu      sync.Mutex
	pending []*busresults.Delivery
	busy    time.Duration // real time that passes took
}

// ownsAll owns all partitions for ever.
type ownsAll struct{}

func (ownsAll) Owns(int) bool { return true }

func (ownsAll) While(ctx context.Context, _ int) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// broker is the real connection to NATS, and what uses it.
type broker struct {
	*bus.Conn
	Jobs     *jobs.Queue
	Reader   *busresults.Reader
	Results  *busresults.Consumer
	Payloads *payloads.Store
}

func withClock(c clock.WithTickerAndDelayedExecution) func(*replica) {
	return func(r *replica) { r.Clock = c }
}

// newReplica starts a process, with step events: specs look at each transition.
func (w *world) newReplica(ctx context.Context, holder string, adjust ...func(*replica)) *replica {
	r := &replica{w: w, registry: prometheus.NewRegistry(), recorder: &recorder{}}
	lockMetrics := lockmgr.NewMetrics(r.registry, nil)
	r.Reconciler = &Reconciler{
		Events: r.recorder, StepEvents: true, Clock: w.clock, Rand: rand.Float64, Holder: holder, RecoverPatience: OthersPatience, AloneAfter: AloneAfter,
		Metrics: NewMetrics(r.registry, nil), Waker: &Waker{}, Slots: &slots.Slots{}, Holds: &holds.Holds{}, SemaphoreChanged: func(string) {}, Liveness: &knownWorkers{}, PolicyChanged: func() {},
		Driven: driven.New(w.clock, ownsAll{}),
		Index:  results.NewIndex(), Turns: shares.NewTurns(16, shares.KindMetrics{}, func(types.NamespacedName) {}).WithAside(shares.Aside, shares.KindMetrics{}),
	}
	r.Driven.Begin(protocol.AllPartitions())
	for _, f := range adjust {
		f(r)
	}
	r.Client, r.Statuses = interceptor.NewClient(w.client, r.apiHooks()), hookedStatuses{r}
	r.Live = interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return r.around(ctx, "live", func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return r.around(ctx, "census", func() error { return c.List(ctx, l, opts...) })
		},
	})
	r.Signals = append(r.Signals, &Approvals{Client: r.Client, Live: r.Live})
	resultMetrics := busresults.NewMetrics(r.registry)
	r.connect(ctx, lockMetrics, resultMetrics)
	r.build(lockMetrics, resultMetrics)
	w.mu.Lock()
	w.replicas = append(w.replicas, r)
	r.bus.Results.Follow(slices.Collect(maps.Keys(w.followed))...)
	w.mu.Unlock()
	r.consume(ctx)
	return r
}

func (r *replica) connect(ctx context.Context, lockMetrics *lockmgr.Metrics, resultMetrics *busresults.Metrics) {
	var err error
	r.redis, err = lockmgr.NewClient(lockmgr.ClientConfig{Addrs: []string{r.w.redis.Addr()}})
	Expect(err).NotTo(HaveOccurred())
	r.manager = lockmgr.New(r.redis, lockmgr.Options{Holder: r.Holder, Log: GinkgoLogr, Metrics: lockMetrics})
	r.bus = &broker{}
	r.bus.Conn, err = bus.Connect(ctx, bus.Config{
		URL: r.w.nats.URL(), DuplicateWindow: r.w.window, Log: GinkgoLogr, Metrics: bus.NewMetrics(r.registry),
	})
	Expect(err).NotTo(HaveOccurred())
	ring, err := keys.New(testKeys, nil, clock.RealClock{})
	Expect(err).NotTo(HaveOccurred())
	r.bus.Reader, r.bus.Payloads = busresults.NewReader(r.bus.Conn, ring), payloads.New(r.bus.Conn)
	r.bus.Results = busresults.NewConsumer(r.bus.Conn, ring, deadletters.NewWriter(r.bus.Conn), busresults.Options{
		AckWait: ackWait, AckPending: r.unsettled, Metrics: resultMetrics,
	})
	r.bus.Jobs = jobs.New(r.bus.Conn, ring, r.bus.Reader, jobs.Options{Metrics: jobs.NewMetrics(r.registry)})
	Eventually(func() error { return r.bus.EnsureStreams(ctx) }).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

// build makes the parts, as cmd/manager does, with the spec's hooks at their edges.
func (r *replica) build(lockMetrics *lockmgr.Metrics, resultMetrics *busresults.Metrics) {
	queue, inbox := hookedJobs{r}, results.NewInbox(10_000, 96<<20)
	r.NATS, r.Outputs, r.Delays = hookedLink{r}, hookedOutputs{r}, resultMetrics
	r.Desks = shares.NewDesks(shares.Room{Desks: 1, Rest: 1}, r.Turns, r.Clock, shares.KindMetrics{})
	r.Leases = leases.New(leases.Options{
		Locks: hookedLocks{r}, Clock: r.Clock, Rand: rand.Float64, Spread: rand.Float64, NewID: uuid.NewString, Holder: r.Holder,
		Metrics: lockMetrics, TakeOver: r.Metrics.TakeOver, DrivenSince: r.Driven.Since, Wake: r.Waker.Wake,
	})
	settler := results.NewSettler(inbox, resultMetrics)
	r.Batches = &results.Batches{
		Inbox: inbox, Settler: settler, Clock: r.Clock, Spread: rand.Float64, Applied: r.Metrics.Applied, PerWrite: r.Metrics.ResultsPerWrite,
	}
	r.router = results.NewRouter(results.Options{
		Index: r.Index, Inbox: inbox, Settler: settler, Live: r.Live, Clock: r.Clock, Spread: rand.Float64, Refusals: r.Metrics.Refusals, Wake: r.Waker.Wake, WakeAfter: r.Waker.WakeAfter,
	})
	r.Known = r.router.Orphans().Known
	r.Stream = &results.Stream{Answers: hookedReader{r}, Clock: r.Clock, Asked: r.Metrics.AnswersAsked}
	seen := func() backlog.Stream { return backlog.Stream(bus.JobsBytes(r.bus.Conn)) }
	r.Dispatch = &dispatch.Dispatcher{
		Jobs: queue, Clock: r.Clock, Recoveries: r.Metrics.Recoveries, Latency: r.Metrics.DispatchLatency, Backlog: backlog.New(seen, r.Driven.Part),
	}
	r.registry.MustRegister(r.Dispatch.Backlog)
	r.GC = &gc.Collector{Jobs: queue, Outputs: hookedOutputs{r}, Uploads: r.bus.Payloads, Strays: r.bus.Payloads, Cache: r.Client, Live: r.Live, Clock: r.Clock}
	r.Templates = templates.New(r.Live, &revisions.Store{Live: r.Live, Client: r.Client, Owner: FieldOwner}, r.Clock, templates.MaxBytes)
	r.Children = &children.Children{Client: r.Client, Live: r.Live, Clock: r.Clock, Owner: FieldOwner, Wake: r.Waker.Wake}
}

// consume collects deliveries; pump hands them on when the spec wants it.
func (r *replica) consume(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() {
		if r.quiet {
			return
		}
		_ = r.bus.Results.Consume(ctx, func(_ context.Context, d *busresults.Delivery) { // fails when the replica was killed
			r.mu.Lock()
			defer r.mu.Unlock()
			r.pending = append(r.pending, d)
		})
	})
	DeferCleanup(func(ctx SpecContext) {
		cancel()
		done.Wait()
		r.Leases.Cache.Stop(ctx)
		_ = r.manager.Close(ctx) // fails when Redis is down
		r.bus.Close(ctx)
		_ = r.redis.Close() // twice when the replica was killed
	}, NodeTimeout(patience))
}

// kill ends the process at once: connections break, nothing is handed back or released.
func (r *replica) kill(ctx context.Context) {
	if !r.dead.Swap(true) {
		r.bus.Close(ctx)
		_ = r.redis.Close()
	}
}

// killAt kills the replica when it gets to a place for the nth time.
func (r *replica) killAt(place string, n int) {
	var count atomic.Int64
	r.hook = func(ctx context.Context, at string) error {
		if at == place && count.Add(1) == int64(n) {
			r.kill(context.WithoutCancel(ctx))
			return errDead
		}
		return nil
	}
}

func (r *replica) at(ctx context.Context, place string) error {
	if r.dead.Load() {
		return errDead
	}
	if r.hook == nil {
		return nil
	}
	return r.hook(ctx, place)
}

// around does something between its two places. An error of the hook after it hides that
// it was done.
func (r *replica) around(ctx context.Context, what string, do func() error) error {
	if err := r.at(ctx, what+"/before"); err != nil {
		return err
	}
	err := do()
	if hidden := r.at(ctx, what+"/after"); hidden != nil {
		return hidden
	}
	return err
}

func (r *replica) apiHooks() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return r.around(ctx, "get", func() error {
				if err := c.Get(ctx, key, o, opts...); err != nil {
					return err
				}
				if run, ok := o.(*v1alpha1.WorkflowRun); ok && r.cached != nil {
					if old := r.cached(run); old != nil {
						old.DeepCopyInto(run)
					}
				}
				return nil
			})
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if l, ok := list.(*v1alpha1.LockPolicyList); ok {
				l.Items = r.w.policies // policies come from the cache, at no cost
				return nil
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return r.around(ctx, "create", func() error {
				if r.refuseCreation != nil {
					if err := r.refuseCreation(o); err != nil {
						return err
					}
				}
				return c.Create(ctx, o, opts...)
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return r.around(ctx, "delete", func() error { return c.Delete(ctx, o, opts...) })
		},
	}
}

// hookedStatuses are the real ones, with what the spec does before and after.
type hookedStatuses struct{ r *replica }

func (h hookedStatuses) Put(ctx context.Context, run *v1alpha1.WorkflowRun, body []byte, size int) error {
	return h.r.around(ctx, "status", func() error {
		if h.r.refuse != nil {
			if err := h.r.refuse(run); err != nil {
				return err
			}
		}
		if err := suite.statuses.Put(ctx, run, body, size); err != nil {
			return err
		}
		suite.history.believe(run)
		return nil
	})
}

type hookedLocks struct{ r *replica }

func (h hookedLocks) Acquire(ctx context.Context, q lockmgr.Request) (*lockmgr.Lease, error) {
	if err := h.r.at(ctx, "acquire/before"); err != nil {
		return nil, err
	}
	if h.r.request != nil {
		h.r.request(&q)
	}
	return h.r.manager.Acquire(ctx, q)
}

func (h hookedLocks) Leave(ctx context.Context, of func(string) bool) {
	if h.r.at(ctx, "leave/before") == nil {
		h.r.manager.Leave(ctx, of)
	}
}

type hookedJobs struct{ r *replica }

func (h hookedJobs) Publish(ctx context.Context, j jobs.Job) error {
	return h.r.around(ctx, "publish", func() error { return h.r.bus.Jobs.Publish(ctx, j) })
}

func (h hookedJobs) Fence(ctx context.Context, j jobs.Job) (epoch uint64, err error) {
	err = h.r.around(ctx, "fence", func() error {
		epoch, err = h.r.bus.Jobs.Fence(ctx, j)
		return err
	})
	return epoch, err
}

func (h hookedJobs) Recover(ctx context.Context, j jobs.Job) (outcome jobs.RecoverOutcome, err error) {
	err = h.r.around(ctx, "recover", func() error {
		outcome, err = h.r.bus.Jobs.Recover(ctx, j)
		return err
	})
	return outcome, err
}

func (h hookedJobs) Found(ctx context.Context, topic string, ids []protocol.JobID) (found map[protocol.JobID]jobs.RecoverOutcome, err error) {
	err = h.r.around(ctx, "find", func() error {
		found, err = h.r.bus.Jobs.Found(ctx, topic, ids)
		return err
	})
	return found, err
}

func (h hookedJobs) Gone(ctx context.Context, topic string, ids []protocol.JobID) (gone []protocol.JobID, err error) {
	err = h.r.around(ctx, "gone", func() error {
		gone, err = h.r.bus.Jobs.Gone(ctx, topic, ids)
		return err
	})
	return gone, err
}

func (h hookedJobs) List(ctx context.Context) ([]jobs.QueuedJob, error) {
	return h.r.bus.Jobs.List(ctx)
}

func (h hookedJobs) Withdraw(ctx context.Context, topic string, id protocol.JobID) error {
	return h.r.around(ctx, "withdraw", func() error { return h.r.bus.Jobs.Withdraw(ctx, topic, id) })
}

type hookedReader struct{ r *replica }

func (h hookedReader) Answers(ctx context.Context, runUID string, from uint64) (page busresults.AnswerPage, err error) {
	err = h.r.around(ctx, "answers", func() error {
		page, err = h.r.bus.Reader.Answers(ctx, runUID, from)
		return err
	})
	return page, err
}

// hookedLink is what a replica believes of its connection.
type hookedLink struct{ r *replica }

func (h hookedLink) Connected() bool { return h.r.bus.Connected() && h.r.outage.IsZero() }

func (h hookedLink) Outage() time.Time { return h.r.outage }

func (h hookedLink) Losses() uint64 { return h.r.bus.Losses() }

func (h hookedJobs) Cancel(ctx context.Context, runUID string, list []protocol.JobID) error {
	return h.r.around(ctx, "cancel", func() error { return h.r.bus.Jobs.Cancel(ctx, runUID, list) })
}

// watched is a delivery whose settlement is looked at before it leaves the process.
type watched struct {
	*busresults.Delivery
	r       *replica
	pending *results.Pending
}

func (d *watched) Settle(ctx context.Context, as error) error {
	return d.r.around(ctx, "settle", func() error {
		if as == nil {
			d.r.w.checkAck(d.pending.Fact)
		}
		d.r.w.mu.Lock()
		d.r.w.settled = append(d.r.w.settled, settled{
			id: d.pending.Fact.ID, status: d.pending.Fact.Result.Status, err: as, stored: d.PublishedAt, deliveries: d.Deliveries, failures: d.Failures,
		})
		d.r.w.mu.Unlock()
		return d.Delivery.Settle(ctx, as)
	})
}

// pump hands the results that have come to the inbox, and says how many. One that waits there, or
// was acknowledged, came again because its acknowledgement took longer than AckWait: it
// is no other.
func (r *replica) pump(ctx context.Context) (came int) {
	r.mu.Lock()
	got := r.pending
	r.pending = nil
	r.mu.Unlock()
	for _, d := range got {
		if !r.has(d) {
			came++
		}
		p := results.NewPending(d, r.Clock.Now())
		p.Delivery = &watched{Delivery: d, r: r, pending: p}
		r.router.Route(ctx, p)
	}
	return came
}

// has says whether a message waits in the inbox, or was acknowledged.
func (r *replica) has(d *busresults.Delivery) bool {
	waits := slices.ContainsFunc(r.Batches.Inbox.Waiting(types.UID(d.ID.RunUID)), func(p *results.Pending) bool {
		other, ok := p.Delivery.(*watched)
		return ok && other.ID == d.ID && other.PublishedAt.Equal(d.PublishedAt)
	})
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return waits || slices.ContainsFunc(r.w.settled, func(s settled) bool {
		return s.err == nil && s.id == d.ID && s.stored.Equal(d.PublishedAt)
	})
}

// pumpAll waits until n results are in the inbox.
func (r *replica) pumpAll(ctx context.Context, n int) {
	GinkgoHelper()
	got := 0
	until(ctx, fmt.Sprintf("%d results come", n), func() bool {
		got += r.pump(ctx)
		return got >= n
	})
}

// pumpOf waits until a result of each task is in the inbox. Others may have come again: an
// acknowledgement takes longer than AckWait now and then.
func (r *replica) pumpOf(ctx context.Context, tasks ...*task) {
	GinkgoHelper()
	until(ctx, fmt.Sprintf("results of %d tasks come", len(tasks)), func() bool {
		r.pump(ctx)
		return !slices.ContainsFunc(tasks, func(t *task) bool {
			waiting := r.Batches.Inbox.Waiting(types.UID(t.id.RunUID))
			return !slices.ContainsFunc(waiting, func(p *results.Pending) bool { return p.Fact.ID == t.id })
		})
	})
}

// pass makes one pass over a run.
func (r *replica) pass(ctx context.Context, run *v1alpha1.WorkflowRun) (reconcile.Result, error) {
	ctx = log.IntoContext(ctx, GinkgoLogr)
	begin := time.Now()
	defer func() { r.busy = time.Since(begin) }()
	return r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(run)})
}

// mustPass makes one pass that must not fail.
func (r *replica) mustPass(ctx context.Context, run *v1alpha1.WorkflowRun) reconcile.Result {
	GinkgoHelper()
	res, err := r.pass(ctx, run)
	Expect(err).NotTo(HaveOccurred())
	return res
}

// longestStep bounds how far drive moves the clock: what is due later waits for something
// else than time.
const longestStep = 5 * time.Second

// turn hands out results, makes one pass, and moves the clock to the next one. Errors are retried,
// as the workqueue does.
func (r *replica) turn(ctx context.Context, run *v1alpha1.WorkflowRun) {
	r.pump(ctx)
	res, err := r.pass(ctx, run)
	// A result that came before the first pass found no run in the index.
	_ = r.router.Orphans().Sort(ctx) // fails when the replica was killed
	switch {
	case err != nil:
		r.w.clock.Step(100 * time.Millisecond)
	case res.RequeueAfter > 0 && res.RequeueAfter <= longestStep:
		r.w.clock.Step(res.RequeueAfter)
	}
}

// drive makes turns until the run is as wanted, or the replica is dead.
func (r *replica) drive(ctx context.Context, run *v1alpha1.WorkflowRun, done func(*v1alpha1.WorkflowRun) bool) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	var now *v1alpha1.WorkflowRun
	there := false
	defer func() {
		if !there {
			r.tell(now)
		}
	}()
	until(ctx, "the run gets there", func() bool {
		r.turn(ctx, run)
		now = r.w.get(ctx, run)
		return r.dead.Load() || done(now)
	})
	there = true
	return now
}

// finish drives a run to its end, with the worker at work.
func (r *replica) finish(ctx context.Context, run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	return r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
		if !r.dead.Load() {
			r.w.work(ctx)
		}
		return lifecycle.Finished(now)
	})
}

// finishBoth drives a run to its end by several replicas in turn: each result comes to one of them.
func (w *world) finishBoth(ctx context.Context, run *v1alpha1.WorkflowRun, replicas ...*replica) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	var now *v1alpha1.WorkflowRun
	until(ctx, "the run ends", func() bool {
		w.work(ctx)
		for _, r := range replicas {
			r.turn(ctx, run)
		}
		now = w.get(ctx, run)
		return lifecycle.Finished(now)
	})
	return now
}

// inFlight waits until n attempts are in flight and their jobs are stored.
func (r *replica) inFlight(ctx context.Context, run *v1alpha1.WorkflowRun, n int) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	return r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
		m := r.memories.peek(client.ObjectKeyFromObject(run))
		return len(lifecycle.InFlight(now)) == n && m != nil && len(m.jobs.Unpublished(now, r.bus.Losses())) == 0
	})
}

// drained waits until all results of a finished run are acknowledged, also those that come again.
func (r *replica) drained(ctx context.Context, run *v1alpha1.WorkflowRun) {
	GinkgoHelper()
	acknowledged := false
	defer func() {
		if !acknowledged {
			r.tell(r.w.get(context.WithoutCancel(ctx), run))
		}
	}()
	until(ctx, "all results are acknowledged", func() bool {
		r.turn(ctx, run)
		return r.w.messages(ctx, r.w.names.ResultsStream()) == 0
	})
	acknowledged = true
}

// counter reads a metric; labels are pairs of name and value. Absent: 0.
func (r *replica) counter(name string, labels ...string) float64 {
	families, err := r.registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || (l.GetName() == labels[i] && l.GetValue() == labels[i+1])
				}
				if !found {
					continue metrics
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return sum
}

// recorder keeps events.
type recorder struct {
	mu   sync.Mutex
	seen []string // "<type> <reason> <note>"
}

// Eventf implements events.EventRecorder.
func (r *recorder) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, kind+" "+reason+" "+fmt.Sprintf(note, args...))
}

// count is how many events were of a type and reason.
func (r *recorder) count(kind string) int {
	n := 0
	for _, e := range r.list() {
		if strings.HasPrefix(e, kind+" ") {
			n++
		}
	}
	return n
}

// reasons are those of all events.
func (r *recorder) reasons() []string {
	var reasons []string
	for _, e := range r.list() {
		reasons = append(reasons, strings.Fields(e)[1])
	}
	return reasons
}

func (r *recorder) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.seen...)
}
