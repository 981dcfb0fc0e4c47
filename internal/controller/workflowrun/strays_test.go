// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
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
//   - orphans.go Sort that acks without a live list: the result of a run that the cache does not
//     know yet is lost.
//   - orphans.go Sort that asks before OrphanPatience: the API server is asked for each new run.
//   - deleted.go cleanDeleted without Index.Forget: the entry of a deleted run stays.
//   - gc.go Round that lists runs before messages: not seen here, see the comment there.
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
			w.clock.Step(results.ListPause)
			Expect(r.router.Orphans().Sort(ctx)).To(Succeed())
		}
		Expect(w.settledWith(run)).To(BeEmpty())
		Expect(r.router.Orphans().Backlog().Results).To(BeEquivalentTo(2), "the live list has the run")

		q := newQueue()
		r.Waker.queue.Store(&q)
		r.informer().Create(ctx, event.CreateEvent{Object: run}, newQueue())
		Expect(r.router.Orphans().Backlog().Results).To(BeZero())
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
		Expect(r.router.Orphans().Sort(ctx)).To(Succeed())
		Expect(lists).To(BeZero(), "the cache gets %s to catch up", results.OrphanPatience)
		w.clock.Step(results.OrphanPatience)
		Expect(r.router.Orphans().Sort(ctx)).To(MatchError(errTest), "the API server does not answer")
		Expect(r.router.Orphans().Backlog().Results).To(BeEquivalentTo(1))
		Expect(r.router.Orphans().Sort(ctx)).To(Succeed())
		Expect(lists).To(Equal(1), "at most one list in %s", results.ListPause)

		w.clock.Step(results.ListPause)
		young := &results.Pending{Fact: lifecycle.Result{ID: gone}, Since: w.clock.Now().Add(time.Millisecond), Delivery: &fakeDelivery{}}
		r.router.Route(ctx, young)
		r.hook = nil
		Expect(r.router.Orphans().Sort(ctx)).To(Succeed())
		Expect(r.router.Orphans().Backlog().Results).To(BeEquivalentTo(1), "the list says nothing about what came after it began")
		Expect(r.counter("syncopate_results_total", "outcome", "stale")).To(BeEquivalentTo(1))
		Expect(w.messages(ctx, w.names.ResultsStream())).To(BeZero())
	}, NodeTimeout(2*patience))
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
		r.Index.See(run) // by a pass that had read it before

		r.hook = times(1, "withdraw/before", func(context.Context) error { return errTest })
		_, err := r.pass(ctx, run)
		Expect(err).To(MatchError(errTest), "to be tried again")
		r.mustPass(ctx, run)
		Expect(w.jobsQueued(ctx)).To(BeZero())
		Expect(w.messages(ctx, w.names.ResultsStream())).To(BeZero())
		Expect(r.Batches.Inbox.Backlog().Results).To(BeZero())
		Expect(r.memories.byKey).To(BeEmpty())
		phases, _ := r.Index.Count(r.Driven.Drives)
		Expect(phases).To(BeEmpty())
		Expect(r.Index.TakeDeleted(client.ObjectKeyFromObject(run))).To(BeEmpty())
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
		_, known := r.Index.Find(old.UID)
		Expect(known).To(BeFalse())
		Expect(w.jobsQueued(ctx)).To(BeZero(), "the old run's jobs are gone")
	}, NodeTimeout(2*patience))
})

var _ = Describe("the garbage collector", func() {
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

		Expect(r.GC.Round(ctx)).To(MatchError(errTest))
		r.hook = nil
		Expect(r.GC.Round(ctx)).To(Succeed())
		Expect(w.jobsQueued(ctx)).To(Equal(2))
		left, err := r.bus.Jobs.List(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, job := range left {
			Expect(job.ID.RunUID).To(Equal(string(alive.UID)))
		}
		r.finish(ctx, alive)
	}, NodeTimeout(2*patience))
})

// fakeDelivery keeps what it was settled with.
type fakeDelivery struct{ settled []error }

func (d *fakeDelivery) Settle(_ context.Context, err error) error {
	d.settled = append(d.settled, err)
	if len(d.settled) > 1 {
		return fmt.Errorf("settled twice: %w", errors.Join(d.settled...))
	}
	return nil
}
