package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// newQueue is a workqueue whose owner is the spec.
func newQueue() queue {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	DeferCleanup(q.ShutDown)
	return q
}

// Mutations that make specs below fail:
//   - strays.go sort that acks without a census: the result of a run that the cache does not know yet is lost.
//   - strays.go sort that asks before strayPatience: the API server is asked for each new run.
//   - intake.go deliver without the second look into the directory: the result waits for ever.
//   - reconciler.go cleanDeleted without directory.forget: the entry of a deleted run stays.
//   - janitor.go round that lists runs before messages: not seen here, see the comment there.
var _ = Describe("a result of a run that the cache does not know", func() {
	var (
		w *world
		r *replica
	)
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		r = w.newReplica(ctx, "r")
	}, NodeTimeout(patience))

	It("waits until the cache knows the run, is delivered then, and wakes the run", func(ctx SpecContext) {
		run := w.create(ctx, diamond())
		other := w.newReplica(ctx, "other")
		other.inFlight(ctx, run, 2)
		other.kill(ctx)
		w.dropLock(ctx, run)
		w.work(ctx)
		r.pumpAll(ctx, 2)
		for range 10 { // the cache lags for as long as it wants
			w.clock.Step(censusPause)
			Expect(r.in.strays.sort(ctx)).To(Succeed())
		}
		Expect(w.settledWith(run)).To(BeEmpty())
		Expect(r.in.strays.parked.backlog().results).To(BeEquivalentTo(2), "the live list has the run")

		q := newQueue()
		r.in.queue.Store(&q)
		r.informer().Create(ctx, event.CreateEvent{Object: run}, newQueue())
		w.clock.Step(strayTick)
		Expect(r.in.strays.sort(ctx)).To(Succeed())
		Expect(r.in.strays.parked.backlog()).To(Equal(backlog{limit: strayBytes}))
		Expect(q.Len()).To(Equal(1))
		woken, _ := q.Get()
		Expect(woken.NamespacedName).To(Equal(client.ObjectKeyFromObject(run)))
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	It("is acknowledged as stale only when a live list, begun after it came, lacks the run", func(ctx SpecContext) {
		gone := protocol.JobID{RunUID: "11111111-2222-3333-4444-555555555555", Step: "a", Item: protocol.NoItem, Attempt: 1}
		w.say(ctx, gone, succeeded(gone))
		r.pumpAll(ctx, 1)
		lists := 0
		r.hook = func(_ context.Context, at string) error {
			if at == "census/before" {
				lists++
				return errTest
			}
			return nil
		}
		Expect(r.in.strays.sort(ctx)).To(Succeed())
		Expect(lists).To(BeZero(), "the cache gets %s to catch up", strayPatience)
		w.clock.Step(strayPatience)
		Expect(r.in.strays.sort(ctx)).To(MatchError(errTest), "the API server does not answer")
		Expect(r.in.strays.parked.backlog().results).To(BeEquivalentTo(1))
		Expect(r.in.strays.sort(ctx)).To(Succeed())
		Expect(lists).To(Equal(1), "at most one list in %s", censusPause)

		w.clock.Step(censusPause)
		young := &letter{fact: lifecycle.Result{ID: gone}, since: w.clock.Now().Add(time.Millisecond), delivery: &fakeDelivery{}}
		r.in.strays.park(ctx, young)
		r.hook = nil
		Expect(r.in.strays.sort(ctx)).To(Succeed())
		Expect(r.in.strays.parked.waiting(types.UID(gone.RunUID))).To(ConsistOf(young), "the list says nothing about what came after it began")
		Expect(r.counter("syncopate_results_total", "outcome", "stale")).To(BeEquivalentTo(1))
		Expect(w.messages(ctx, w.names.ResultsStream())).To(BeZero())
	}, NodeTimeout(2*patience))

	It("goes back to NATS when too many wait, and leaves room for those of another run", func(ctx SpecContext) {
		park := func(run string) *fakeDelivery {
			d := &fakeDelivery{}
			r.in.strays.park(ctx, &letter{fact: lifecycle.Result{ID: protocol.JobID{RunUID: run}}, since: w.clock.Now(), delivery: d})
			return d
		}
		var last *fakeDelivery
		for range strayLimit + 1 {
			last = park("gone")
		}
		Expect(r.in.strays.parked.waiting("gone")).To(HaveLen(strayLimit / 3)) // mutation: one list for all runs makes this fail
		Expect(last.settled).To(HaveLen(1))
		Expect(last.settled[0]).To(MatchError(errUnknownRun))
		Expect(retryDelay(last.settled[0])).To(BeNumerically(">=", censusPause))
		Expect(park("new").settled).To(BeEmpty())
		Expect(r.counter("syncopate_inbox_refusals_total")).To(BeEquivalentTo(strayLimit + 1 - strayLimit/3))
	}, NodeTimeout(patience))

	It("goes back to NATS when its run has its share of the inbox, with a delay that grows; another run's gets in", func(ctx SpecContext) {
		hot, cold := w.create(ctx, diamond()), w.create(ctx, diamond())
		r.inbox = newInbox(100, 30*letterBytes)
		deliver := func(run *v1alpha1.WorkflowRun) *fakeDelivery {
			d := &fakeDelivery{}
			r.directory.see(run)
			r.in.deliver(ctx, client.ObjectKeyFromObject(run), &letter{fact: lifecycle.Result{ID: protocol.JobID{RunUID: string(run.UID)}}, delivery: d})
			return d
		}
		var refused []error
		for range 3 * comeBackRate {
			refused = append(refused, deliver(hot).settled...)
		}
		Expect(r.inbox.waiting(hot.UID)).To(HaveLen(10)) // mutation: no share of bytes for a run makes this fail
		Expect(refused).To(HaveLen(3*comeBackRate - 10))
		Expect(refused[0]).To(MatchError(errInboxFull))
		Expect(retryDelay(refused[0])).To(BeNumerically("~", inboxFullDelay, inboxFullDelay/2))
		// mutation: the same wait for all makes this fail: they come back all at once, and are served before what is new.
		Expect(retryDelay(refused[len(refused)-1])).To(BeNumerically("~", 3*time.Second+inboxFullDelay, time.Second))
		Expect(deliver(cold).settled).To(BeEmpty())
	}, NodeTimeout(patience))

	It("does not wait in the inbox of a run that was deleted while it was on its way", func(ctx SpecContext) {
		run := w.create(ctx, diamond())
		r.directory.see(run)
		key, _ := r.directory.find(run.UID)
		r.deleteRun(ctx, run)
		r.mustPass(ctx, run)
		r.in.deliver(ctx, key, &letter{fact: lifecycle.Result{ID: protocol.JobID{RunUID: string(run.UID)}}, since: w.clock.Now(), delivery: &fakeDelivery{}})
		Expect(r.inbox.backlog().results).To(BeZero())
		Expect(r.in.strays.parked.backlog().results).To(BeEquivalentTo(1))
	}, NodeTimeout(patience))
})

var _ = Describe("a deleted run", func() {
	It("leaves nothing behind: queued jobs, results, parked results, memory", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.inFlight(ctx, run, 2)
		id := protocol.JobID{RunUID: string(run.UID), Step: "a", Item: protocol.NoItem, Attempt: 1}
		w.say(ctx, id, succeeded(id))
		r.pumpAll(ctx, 1)
		r.deleteRun(ctx, run)
		r.directory.see(run) // by a pass that had read it before

		r.hook = times(1, "withdraw/before", func(context.Context) error { return errTest })
		_, err := r.pass(ctx, run)
		Expect(err).To(MatchError(errTest), "to be tried again")
		r.mustPass(ctx, run)
		Expect(w.jobsQueued(ctx)).To(BeZero())
		Expect(w.messages(ctx, w.names.ResultsStream())).To(BeZero())
		Expect(r.inbox.backlog().results).To(BeZero())
		Expect(r.memories.byKey).To(BeEmpty())
		Expect(r.directory.known).To(BeEmpty())
		Expect(r.directory.deleted).To(BeEmpty())
		Expect(w.settledWith(run)).To(HaveLen(1))
	}, NodeTimeout(2*patience))

	It("whose name is taken again at once does not pass anything on to the new run", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		old := w.create(ctx, diamond())
		r.inFlight(ctx, old, 2)
		was := w.get(ctx, old)
		Expect(w.client.Delete(ctx, was)).To(Succeed())
		next := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{WorkloadClass: w.ns, Steps: diamond()}}
		next.Name, next.Namespace = old.Name, old.Namespace
		Expect(w.client.Create(ctx, next)).To(Succeed())
		q := newQueue() // the watch was away: to the informer both are one update
		r.informer().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: next}, q)
		Expect(q.Len()).To(Equal(1))
		end := r.finish(ctx, next)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(end.UID).NotTo(Equal(old.UID))
		_, known := r.directory.find(old.UID)
		Expect(known).To(BeFalse())
		Expect(w.jobsQueued(ctx)).To(BeZero(), "the old run's jobs are gone")
	}, NodeTimeout(2*patience))
})

var _ = Describe("the janitor", func() {
	It("takes back the jobs of runs that ended or are gone, and no others", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		alive, ended, gone := w.create(ctx, diamond()), w.create(ctx, diamond()), w.create(ctx, diamond())
		for _, run := range []*v1alpha1.WorkflowRun{alive, ended, gone} {
			r.inFlight(ctx, run, 2)
		}
		r.hook = func(_ context.Context, at string) error { // the process dies before each clean-up
			if at == "withdraw/before" {
				return errTest
			}
			return nil
		}
		w.patch(ctx, ended, `{"spec":{"shutdown":"Cancel"}}`)
		r.drive(ctx, ended, finished)
		Expect(w.client.Delete(ctx, w.get(ctx, gone))).To(Succeed())
		Expect(w.jobsQueued(ctx)).To(Equal(6), "nothing was taken back")

		j := &janitor{Reconciler: r.Reconciler, stock: r.bus}
		Expect(j.takeBackJobs(ctx)).To(MatchError(errTest))
		r.hook = nil
		Expect(j.takeBackJobs(ctx)).To(Succeed())
		Expect(w.jobsQueued(ctx)).To(Equal(2))
		left, err := r.bus.QueuedJobs(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, job := range left {
			Expect(job.ID.RunUID).To(Equal(string(alive.UID)))
		}
		r.finish(ctx, alive)
	}, NodeTimeout(2*patience))

	It("makes a round at once and then at its pace, and outlives errors", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		rounds := make(chan struct{}, 10)
		j := &janitor{Reconciler: r.Reconciler, stock: stockFunc{r.bus, func() error { rounds <- struct{}{}; return errTest }}}
		running, stop := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- j.Start(running) }()
		Eventually(rounds).WithContext(ctx).Should(Receive())
		Consistently(rounds, 50*time.Millisecond).ShouldNot(Receive())
		Eventually(func() chan struct{} {
			w.clock.Step(janitorPause) // it need not have begun to wait yet
			return rounds
		}).WithContext(ctx).Should(Receive())
		stop()
		Eventually(done).WithContext(ctx).Should(Receive(BeNil()))
	}, NodeTimeout(patience))
})

// stockFunc is a stock whose jobs cannot be listed.
type stockFunc struct {
	stock
	jobs func() error
}

func (s stockFunc) QueuedJobs(context.Context) ([]bus.QueuedJob, error) { return nil, s.jobs() }

// fakeDelivery keeps what it was settled with.
type fakeDelivery struct {
	settled []error
	buried  bool
}

func (d *fakeDelivery) Buried() bool { return d.buried }

func (d *fakeDelivery) Settle(_ context.Context, err error) error {
	d.settled = append(d.settled, err)
	if len(d.settled) > 1 {
		return fmt.Errorf("settled twice: %w", errors.Join(d.settled...))
	}
	return nil
}
