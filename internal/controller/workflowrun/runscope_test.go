// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// forRun keeps the lock from admission to the end, renews early and has a short TTL. The validity
// is 4.85 s.
func forRun(onFailure v1alpha1.RenewalFailureMode) v1alpha1.RunLockPolicy {
	p := quick()
	p.Scope = v1alpha1.LockScopeRun
	p.Renewal.OnFailure = onFailure
	p.Renewal.MaxConsecutiveFailures = 100 // the deadline decides
	p.Renewal.SafetyMarginMillis = new(int64(100))
	return p
}

// twoSteps is a step and one after it.
func twoSteps() []v1alpha1.Step { return []v1alpha1.Step{step("a"), step("b", "a")} }

func (w *world) locked(ctx context.Context, run *v1alpha1.WorkflowRun) bool {
	return w.redis.Client().Exists(ctx, lockKey(run)).Val() == 1
}

// awake gives the replica a workqueue; woken makes the passes that it asks for, until done.
func (r *replica) awake() queue {
	q := newQueue()
	r.Waker.queue.Store(&q)
	return q
}

func (r *replica) woken(ctx context.Context, q queue, what string, done func() bool) {
	GinkgoHelper()
	until(ctx, what, func() bool {
		r.pump(ctx)
		var early []reconcile.Request
		for q.Len() > 0 {
			item, _ := q.Get()
			res, err := r.Reconcile(ctx, item)
			Expect(err).NotTo(HaveOccurred())
			if res.RequeueAfter > 0 && res.RequeueAfter <= time.Second { // the next write may not begin yet
				early = append(early, item)
			}
			q.Done(item)
		}
		for _, item := range early {
			q.Add(item)
		}
		return done()
	})
}

// lockStory is what each write of a run said of its lock, in a row.
func (w *world) lockStory(ctx context.Context, run *v1alpha1.WorkflowRun) []string {
	now := w.get(ctx, run)
	var versions []*v1alpha1.WorkflowRun
	until(ctx, "the watch has seen the last write", func() bool {
		versions = suite.history.of(now.UID, now.ResourceVersion)
		return len(versions) > 0
	})
	var story []string
	for _, v := range versions {
		if !v.Unwritten() {
			story = append(story, reason(v, v1alpha1.ConditionRunLockRenewed)+" "+reason(v, v1alpha1.ConditionRunLockAbandoned))
		}
	}
	return story
}

// Mutations that make specs below fail:
//   - leases: session.go Return that never keeps: three acquisitions instead of one, and the lock
//     is free between passes.
//   - deleted.go takeBack without Cache.Drop: the lock of a deleted run stays.
//   - observe.go observe without letGo: the lock of an earlier run of the same name stays.
//   - leases: cache.go keep that ignores stopped: a pass that ends after the stop leaves its lock
//     behind, and Close waits.
//   - leases: session.go Wanted false: a run that waits for nothing has no lock after a restart.
//   - leases: session.go TakeKept without the look at the writer: a write that is refused.
//   - leases: session.go TakeKept without the look at the policy: a changed policy is never used.
//   - leases: session.go Take that asks the breaker first: no result is applied while
//     Redis is away.
//   - leases: session.go Take without Wake: nobody is woken.
//   - leases: lock.go LookAgain that changes nothing: that a lease was lost is not taken back
//     before the next result comes.
var _ = Describe("scope Run", func() {
	var (
		w   *world
		r   *replica
		run *v1alpha1.WorkflowRun
	)
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.policy(ctx, forRun(v1alpha1.RenewalFailureFence))
		r = w.newReplica(ctx, "r")
		run = w.create(ctx, twoSteps())
	}, NodeTimeout(patience))
	acquired := func() float64 { return r.counter("syncopate_run_lock_acquisitions_total", "outcome", "acquired") }

	It("keeps one lease over all passes, from admission to the end", func(ctx SpecContext) {
		r.inFlight(ctx, run, 1)
		first := w.get(ctx, run).Status.Lock.LeaseID
		Expect(w.locked(ctx, run)).To(BeTrue(), "between passes")
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			w.work(ctx)
			return now.Status.Progress == "1/2"
		})
		Expect(w.locked(ctx, run)).To(BeTrue())
		end := r.finish(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(acquired()).To(BeEquivalentTo(1))
		Expect(end.Status.Lock.LeaseID).To(Equal(first))
		Expect(w.locked(ctx, run)).To(BeFalse(), "after the end")
		Expect(r.Leases.Cache.Runs()).To(BeEmpty())
	}, NodeTimeout(2*patience))

	It("takes no lock for a run that is not admitted yet, and keeps it for one that is suspended later", func(ctx SpecContext) {
		waiting := w.create(ctx, twoSteps(), func(s *v1alpha1.WorkflowRunSpec) { s.Suspend = true })
		r.mustPass(ctx, waiting)
		Expect(w.locked(ctx, waiting)).To(BeFalse())
		r.inFlight(ctx, run, 1)
		w.patch(ctx, run, `{"spec":{"suspend":true}}`)
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			w.work(ctx)
			return now.Status.Progress == "1/2"
		})
		r.kill(ctx)
		w.dropLock(ctx, run)
		next := w.newReplica(ctx, "next")
		next.mustPass(ctx, run)
		Expect(w.locked(ctx, run)).To(BeTrue(), "there is nothing to do, but the lock is the run's")
		Expect(next.mustPass(ctx, run).RequeueAfter).To(Equal(lookAgain))
	}, NodeTimeout(2*patience))

	It("shows once that the lock is renewed", func(ctx SpecContext) {
		q := r.awake()
		r.inFlight(ctx, run, 1)
		r.woken(ctx, q, "a renewal is shown", func() bool {
			w.clock.Step(time.Second)
			return reason(w.get(ctx, run), v1alpha1.ConditionRunLockRenewed) == v1alpha1.ReasonLockRenewed
		})
		writes := r.counter("syncopate_status_writes_total")
		until(ctx, "more renewals", func() bool { return r.counter("syncopate_run_lock_renewals_total", "outcome", "ok") >= 4 })
		r.mustPass(ctx, run)
		Expect(r.counter("syncopate_status_writes_total")).To(Equal(writes))
	}, NodeTimeout(2*patience))

	It("frees the lock of a run that is deleted", func(ctx SpecContext) {
		r.inFlight(ctx, run, 1)
		r.deleteRun(ctx, run)
		r.mustPass(ctx, run)
		Expect(w.locked(ctx, run)).To(BeFalse())
	}, NodeTimeout(2*patience))

	It("frees the lock of a run that was deleted in the middle of a pass", func(ctx SpecContext) {
		r.inFlight(ctx, run, 1)
		w.work(ctx)
		r.pumpAll(ctx, 1)
		w.clock.Step(time.Second)
		r.hook = once("status/before", func() error { return w.client.Delete(ctx, run.DeepCopy()) })
		r.mustPass(ctx, run)
		Expect(w.locked(ctx, run)).To(BeFalse())
		Expect(r.Leases.Cache.Runs()).To(BeEmpty())
	}, NodeTimeout(2*patience))

	It("frees the lock of an earlier run of the same name whose deletion was not seen yet", func(ctx SpecContext) {
		r.inFlight(ctx, run, 1)
		Expect(w.client.Delete(ctx, run.DeepCopy())).To(Succeed())
		again := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: run.Name, Namespace: run.Namespace}, Spec: run.Spec}
		Expect(w.client.Create(ctx, again)).To(Succeed())
		r.mustPass(ctx, again)
		Expect(w.locked(ctx, run)).To(BeFalse())
		Expect(w.locked(ctx, again)).To(BeTrue())
	}, NodeTimeout(2*patience))

	It("frees all locks when the operator stops, also those of passes that end later", func(ctx SpecContext) {
		late := w.create(ctx, twoSteps())
		r.inFlight(ctx, run, 1)
		stopping, stop := context.WithCancel(ctx)
		stopped := make(chan error, 1)
		r.hook = once("publish/before", func() error {
			go func() { stopped <- r.Leases.Cache.Start(stopping) }()
			stop()
			Expect(<-stopped).To(Succeed())
			return nil
		})
		r.mustPass(ctx, late)
		Expect(w.get(ctx, late).Status.Progress).To(Equal("0/2"), "the pass did what it had begun")
		Expect(w.locked(ctx, run)).To(BeFalse())
		Expect(w.locked(ctx, late)).To(BeFalse())
		Expect(r.manager.Close(ctx)).To(Succeed(), "nothing is in use")
	}, NodeTimeout(2*patience))

	It("uses a changed policy at the next pass", func(ctx SpecContext) {
		before := r.inFlight(ctx, run, 1)
		w.policies[0].Spec.RunLock.TTLSeconds = 500
		r.mustPass(ctx, run)
		Expect(acquired()).To(BeEquivalentTo(2))
		Expect(w.redis.Client().TTL(ctx, lockKey(run)).Val()).To(BeNumerically(">", 100*time.Second))
		w.policies[0].Spec.RunLock.Scope = v1alpha1.LockScopeActivation
		r.mustPass(ctx, run)
		Expect(w.locked(ctx, run)).To(BeFalse())
		end := r.finish(ctx, run)
		Expect(*end.Status.Fence).To(BeNumerically(">", *before.Status.Fence))
	}, NodeTimeout(2*patience))

	It("works on under a lease that is still valid while no other pass asks Redis", func(ctx SpecContext) {
		r.inFlight(ctx, run, 1)
		r.Leases.Breaker.Trip(errTest)
		w.work(ctx)
		r.pumpAll(ctx, 1)
		w.clock.Step(20 * time.Millisecond)
		r.mustPass(ctx, run)
		Expect(r.Leases.Breaker.Open()).To(HaveOccurred())
		Expect(w.get(ctx, run).Status.Progress).To(Equal("1/2"))
		Expect(w.jobsStored(ctx)).To(Equal(2))
	}, NodeTimeout(2*patience))

	It("tells at once that a lease was lost, and then that the next one took over, though there is nothing else to do", func(ctx SpecContext) {
		q := r.awake()
		before := r.inFlight(ctx, run, 1)
		for q.Len() > 0 {
			item, _ := q.Get()
			q.Done(item)
		}
		w.dropLock(ctx, run)
		until(ctx, "the run is woken", func() bool { return q.Len() > 0 })
		w.clock.Step(time.Second)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(refreshDelay))
		now := w.get(ctx, run)
		Expect(reason(now, v1alpha1.ConditionRunLockAbandoned)).To(Equal(v1alpha1.ReasonOwnershipLost))
		Expect(*now.Status.Fence).To(BeNumerically(">", *before.Status.Fence))
		w.clock.Step(time.Second)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(lookAgain))
		Expect(reason(w.get(ctx, run), v1alpha1.ConditionRunLockAbandoned)).To(Equal(v1alpha1.ReasonRecovered))
		Expect(r.recorder.count("Warning RunLockAbandoned")).To(Equal(1))
	}, NodeTimeout(2*patience))

	It("drops a lease when the status shows a writer after it, without a write that would be refused", func(ctx SpecContext) {
		now := r.inFlight(ctx, run, 1)
		now.Status.Fence, now.Status.Lock.LeaseID = new(int64(1000)), "of-somebody-else"
		Expect(w.client.Status().Update(ctx, now)).To(Succeed())
		w.work(ctx)
		r.pumpAll(ctx, 1)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Progress).To(Equal("1/2"))
		Expect(*w.get(ctx, run).Status.Fence).To(BeEquivalentTo(1001))
		Expect(r.counter("syncopate_fence_rejections_total")).To(BeZero())
	}, NodeTimeout(2*patience))

	It("hands the lock to a replica that waits in line, and wakes it", func(ctx SpecContext) {
		r.inFlight(ctx, run, 1)
		b := w.newReplica(ctx, "b")
		q := b.awake()
		b.mustPass(ctx, run)
		Expect(b.mustPass(ctx, run).RequeueAfter).To(BeNumerically(">=", 350*time.Millisecond), "busy")
		r.Leases.Cache.Stop(ctx)
		b.woken(ctx, q, "b has the lock", func() bool { return b.Leases.Cache.Of(run.UID) != nil })
		r.kill(ctx) // or results would come to it
		b.finish(ctx, run)
	}, NodeTimeout(2*patience))
})

// Mutations that make specs below fail:
//   - leases: session.go noteLoss that does nothing: RunLockAbandoned never shows.
//   - leases: lock.go Tentative that ignores the kept lease: no failing renewal shows.
//   - dispatch.go each without the look at the lease: not seen here, see rivals_test.go.
//   - refused.go refused without the look at who wrote: the writer that was refused keeps its
//     lease for ever.
//   - refused.go refused that always drops: an edit of the spec ends the lease.
//   - leases: lock.go MustClaim that looks at the lease's id alone: a job that another withdrew is
//     published without the lock.
var _ = Describe("scope Run, while Redis hangs", func() {
	It("stops a Fence run at its deadline, lets a Continue run go on, and both finish when Redis is back", func(ctx SpecContext) {
		redis := redistest.Start(GinkgoTB())
		w := newWorld(ctx, withRedis(redis))
		w.policy(ctx, forRun(v1alpha1.RenewalFailureFence))
		w.policyOf(ctx, w.ns+"-on", forRun(v1alpha1.RenewalFailureContinue))
		r := w.newReplica(ctx, "r")
		q := r.awake()
		strict := w.create(ctx, twoSteps())
		onward := w.create(ctx, twoSteps(), func(s *v1alpha1.WorkflowRunSpec) { s.WorkloadClass = w.ns + "-on" })
		for _, run := range []*v1alpha1.WorkflowRun{strict, onward} {
			r.inFlight(ctx, run, 1)
		}
		said := func(run *v1alpha1.WorkflowRun, kind string, want string) func() bool {
			return func() bool {
				w.clock.Step(20 * time.Millisecond) // the pause between writes
				return reason(w.get(ctx, run), kind) == want
			}
		}
		for _, run := range []*v1alpha1.WorkflowRun{strict, onward} {
			r.woken(ctx, q, "renewed", said(run, v1alpha1.ConditionRunLockRenewed, v1alpha1.ReasonLockRenewed))
		}
		redis.Pause()
		for _, run := range []*v1alpha1.WorkflowRun{strict, onward} {
			r.woken(ctx, q, "failing", said(run, v1alpha1.ConditionRunLockRenewed, v1alpha1.ReasonRenewalFailing))
		}
		r.woken(ctx, q, "abandoned", said(strict, v1alpha1.ConditionRunLockAbandoned, v1alpha1.ReasonLeaseDeadlineReached))
		r.woken(ctx, q, "unlocked", said(onward, v1alpha1.ConditionRunLockRenewed, v1alpha1.ReasonContinuingUnlocked))

		w.work(ctx)
		r.woken(ctx, q, "the Continue run goes on", func() bool {
			w.clock.Step(20 * time.Millisecond)
			return w.get(ctx, onward).Status.Progress == "1/2"
		})
		r.mustPass(ctx, strict)
		Expect(w.get(ctx, strict).Status.Progress).To(Equal("0/2"), "its result waits")
		Expect(w.jobsStored(ctx)).To(Equal(3), "only the Continue run dispatched its next step")
		Expect(w.lockStory(ctx, strict)).To(Equal([]string{
			"Held NotAbandoned", "Renewed NotAbandoned", "RenewalFailing NotAbandoned", "LockStoreUnavailable LeaseDeadlineReached",
		}), "each transition is one write")
		Expect(w.lockStory(ctx, onward)).To(Equal([]string{
			"Held NotAbandoned", "Renewed NotAbandoned", "RenewalFailing NotAbandoned", "ContinuingUnlocked NotAbandoned", "ContinuingUnlocked NotAbandoned",
		}), "and a result")
		Expect(w.get(ctx, onward).Status.Lock.ConsecutiveRenewalFailures).To(BeNumerically(">", 1))

		redis.Resume()
		r.woken(ctx, q, "locked again", said(onward, v1alpha1.ConditionRunLockRenewed, v1alpha1.ReasonLockRenewed))
		Expect(r.finish(ctx, onward).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(r.finish(ctx, strict).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(reason(w.get(ctx, strict), v1alpha1.ConditionRunLockAbandoned)).To(Equal(v1alpha1.ReasonRecovered))
		Expect(w.jobsStored(ctx)).To(Equal(4))
		Expect(r.counter("syncopate_run_lock_lease_seconds_total", "state", "invalid")).To(BeNumerically(">", 0), "of both")
		Expect(r.counter("syncopate_run_locks_unlocked")).To(BeZero())
		for kind, want := range map[string]int{
			"Warning RenewalFailing": 2, "Warning ContinuingUnlocked": 1, "Warning RunLockAbandoned": 1, "Warning LockStoreUnavailable": 1, "Normal Renewed": 1,
		} {
			Expect(r.recorder.count(kind)).To(Equal(want), kind)
		}
	}, NodeTimeout(2*patience))

	// mutation: TakeKept without OnFailure makes this fail.
	It("stops a Continue run that goes on without its lock when its class is switched to Fence meanwhile", func(ctx SpecContext) {
		redis := redistest.Start(GinkgoTB())
		w := newWorld(ctx, withRedis(redis))
		w.policy(ctx, forRun(v1alpha1.RenewalFailureContinue))
		r := w.newReplica(ctx, "r")
		q := r.awake()
		run := w.create(ctx, twoSteps())
		r.inFlight(ctx, run, 1)
		says := func(kind, want string) func() bool {
			return func() bool {
				w.clock.Step(20 * time.Millisecond)
				return reason(w.get(ctx, run), kind) == want
			}
		}
		redis.Pause()
		r.woken(ctx, q, "unlocked", says(v1alpha1.ConditionRunLockRenewed, v1alpha1.ReasonContinuingUnlocked))

		By("switching the class")
		was := w.policies[0].DeepCopy()
		w.policies[0].Spec.RunLock.Renewal.OnFailure = v1alpha1.RenewalFailureFence
		w.policies[0].Generation++
		r.policyWatch().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: &w.policies[0]}, q)
		r.woken(ctx, q, "abandoned", says(v1alpha1.ConditionRunLockAbandoned, v1alpha1.ReasonLeaseDeadlineReached))
		w.work(ctx)
		r.pumpAll(ctx, 1)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Progress).To(Equal("0/2"), "its result waits")
		redis.Resume()
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(reason(w.get(ctx, run), v1alpha1.ConditionRunLockAbandoned)).To(Equal(v1alpha1.ReasonRecovered))
	}, NodeTimeout(2*patience))

	// unlocked is a run whose holder goes on without the lock; its cache does not get on.
	unlocked := func(ctx context.Context) (*world, *replica, *v1alpha1.WorkflowRun, *int) {
		w := newWorld(ctx)
		lock := forRun(v1alpha1.RenewalFailureContinue)
		lock.Wait.Mode = v1alpha1.WaitModePoll // the lock manager's clock stands still, so nobody would be woken in line
		w.policy(ctx, lock)
		r := w.newReplica(ctx, "r")
		pausable := &resumed{FakeClock: clocktesting.NewFakeClock(time.Now())}
		r.manager = lockmgr.New(r.redis, lockmgr.Options{Holder: "r", Clock: pausable, Log: GinkgoLogr})
		manager := r.manager
		DeferCleanup(func(ctx SpecContext) {
			r.Leases.Cache.Stop(ctx)
			Expect(manager.Close(ctx)).To(Succeed())
		})
		takes := 0
		r.request = func(*lockmgr.Request) { takes++ }
		run := w.create(ctx, twoSteps())
		old := r.inFlight(ctx, run, 1)
		pausable.slept.Store(int64(time.Hour)) // nobody renewed
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(reason(w.get(ctx, run), v1alpha1.ConditionRunLockRenewed)).To(Equal(v1alpha1.ReasonContinuingUnlocked))
		r.cached = func(*v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun { return old }
		w.takeLock(ctx, run)
		w.work(ctx)
		r.pumpAll(ctx, 1)
		w.clock.Step(time.Second)
		return w, r, run, &takes
	}

	It("ends a lease whose write is refused because another wrote, and does not try again under it", func(ctx SpecContext) {
		w, r, run, takes := unlocked(ctx)
		now := w.get(ctx, run)
		now.Status.Fence, now.Status.Lock.LeaseID = new(*now.Status.Fence+1), "of-somebody-else"
		Expect(w.client.Status().Update(ctx, now)).To(Succeed())
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(refreshDelay))
		Expect(r.Leases.Cache.Of(run.UID)).To(BeNil())
		for range 5 {
			w.clock.Step(time.Second)
			r.mustPass(ctx, run)
		}
		Expect(r.counter("syncopate_fence_rejections_total")).To(BeEquivalentTo(1), "no loop")
		Expect(*takes).To(Equal(6), "then the lock is busy")
		Expect(w.jobsStored(ctx)).To(Equal(1), "nothing was dispatched")
		r.cached = nil
		w.dropLock(ctx, run)
		end := r.finish(ctx, run)
		Expect(*end.Status.Fence).To(BeNumerically(">", *now.Status.Fence))
	}, NodeTimeout(2*patience))

	It("claims by a write what it has to recover without the lock, so a job that another withdrew stays away", func(ctx SpecContext) {
		w, r, run, _ := unlocked(ctx)
		r.hook = func(_ context.Context, at string) error {
			if at == "publish/before" || at == "recover/before" {
				return errTest
			}
			return nil
		}
		r.mustPass(ctx, run)
		r.hook = nil
		now := w.get(ctx, run)
		Expect(now.Status.Progress).To(Equal("1/2"), "b is in status")
		now.Status.Fence, now.Status.Lock.LeaseID = new(*now.Status.Fence+1), "of-somebody-else"
		Expect(w.client.Status().Update(ctx, now)).To(Succeed())
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(1))
		Expect(r.Leases.Cache.Of(run.UID)).To(BeNil())
		r.cached = nil
		w.dropLock(ctx, run)
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	It("goes on under a lease whose lock was gone and is taken again, with the higher fence, which jobs carry", func(ctx SpecContext) {
		redis := redistest.Start(GinkgoTB())
		w := newWorld(ctx, withRedis(redis))
		w.policy(ctx, forRun(v1alpha1.RenewalFailureContinue))
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, twoSteps())
		before := r.inFlight(ctx, run, 1)
		redis.FlushAll()
		raised := func() int64 {
			return r.Leases.Cache.Of(run.UID).Fence()
		}
		until(ctx, "the fence rises", func() bool { return raised() > *before.Status.Fence })
		w.work(ctx)
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Progress == "1/2" })
		now := w.get(ctx, run)
		Expect(*now.Status.Fence).To(Equal(raised()))
		Expect(now.Status.Lock.LeaseID).To(Equal(before.Status.Lock.LeaseID))
		Expect(reason(now, v1alpha1.ConditionRunLockAbandoned)).To(Equal(v1alpha1.ReasonNotAbandoned))
		b := w.takeAll(ctx, 1)[0]
		Expect(b.msg.Headers().Get(protocol.HeaderFence)).To(Equal(strconv.FormatInt(raised(), 10)))
		b.succeed(ctx)
		r.finish(ctx, run)
		Expect(r.counter("syncopate_run_lock_acquisitions_total", "outcome", "acquired")).To(BeNumerically("<=", 2), "the second is that of the renewal")
	}, NodeTimeout(2*patience))

	It("goes on under a lease whose write is refused because the spec was edited", func(ctx SpecContext) {
		w, r, run, takes := unlocked(ctx)
		w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":600}}`)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(refreshDelay))
		Expect(r.Leases.Cache.Of(run.UID)).NotTo(BeNil())
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Progress).To(Equal("1/2"))
		Expect(w.jobsStored(ctx)).To(Equal(2), "b is dispatched without the lock")
		Expect(*takes).To(Equal(1))
	}, NodeTimeout(2*patience))
})

// Mutations that make specs below fail:
//   - reconciler.go retryAt without PatienceEnds: results wait longer than their budget.
//   - leases: waits.go RetryAt that counts the time until the requeue: another figure in the
//     metric.
//   - reconciler.go retryAt with resultPatience for a busy lock: nothing is handed back after 1 s.
//   - policy BusyRetry.Wait that ignores Fixed: other delays than 500 ms.
var _ = Describe("a busy lock", func() {
	for name, c := range map[string]struct {
		mode   v1alpha1.JitterMode
		lo, hi time.Duration
	}{
		"is tried again after exactly the base with Fixed": {v1alpha1.JitterModeFixed, 500 * time.Millisecond, 500 * time.Millisecond},
		"is tried again within the spread with Jittered":   {v1alpha1.JitterModeJittered, 350 * time.Millisecond, 650 * time.Millisecond},
	} {
		It(name, func(ctx SpecContext) {
			w := newWorld(ctx)
			lock := quick()
			lock.BusyRetry.Mode = c.mode
			w.policy(ctx, lock)
			r := w.newReplica(ctx, "r", withClock(clock.RealClock{})) // it moves during a pass
			run := w.create(ctx, twoSteps())
			w.takeLock(ctx, run)
			sum := time.Duration(0)
			for range 20 {
				wait := r.mustPass(ctx, run).RequeueAfter
				Expect(wait).To(And(BeNumerically(">=", c.lo), BeNumerically("<=", c.hi)))
				sum += wait
			}
			Expect(r.counter("syncopate_lock_busy_retries_total", "path", "reconcile")).To(BeEquivalentTo(20))
			Expect(r.counter("syncopate_lock_busy_retry_delay_seconds", "path", "reconcile")).To(BeNumerically("~", sum.Seconds(), 1e-6))
			w.dropLock(ctx, run)
			r.inFlight(ctx, run, 1)
			Expect(r.counter("syncopate_locks_taken_total", "path", "reconcile", "retries", "more")).To(BeEquivalentTo(1))
		}, NodeTimeout(2*patience))
	}

	It("keeps results for their budget and not longer; each goes back with a delay of its own", func(ctx SpecContext) {
		w := newWorld(ctx)
		lock := quick()
		lock.BusyRetry = v1alpha1.BusyRetry{Mode: v1alpha1.JitterModeFixed, DelayMillis: 700}
		lock.Wait.BudgetMillis = new(int64(1000))
		w.policy(ctx, lock)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.inFlight(ctx, run, 2)
		w.takeLock(ctx, run)
		w.work(ctx)
		r.pumpAll(ctx, 2)
		Expect(r.pending).To(BeEmpty())
		w.clock.Step(100 * time.Millisecond)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(700 * time.Millisecond))
		w.clock.Step(700 * time.Millisecond)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(200*time.Millisecond), "their budget is over then")
		Expect(w.settledWith(run)).To(BeEmpty())
		Expect(r.counter("syncopate_lock_busy_retry_delay_seconds", "path", "reconcile")).To(BeNumerically("~", 1.4, 1e-9), "the delays as drawn")
		w.clock.Step(200 * time.Millisecond)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(100*time.Millisecond), "the run says then whose lock it waits for")
		given := w.settledWith(run)
		Expect(given).To(HaveLen(2))
		for _, s := range given {
			Expect(results.RetryDelay(s.err, actRetryDelay)).To(Equal(700 * time.Millisecond))
		}
		Expect(r.counter("syncopate_lock_busy_retries_total", "path", "result", "class", "lock_busy")).To(BeEquivalentTo(2))
		w.clock.Step(30 * time.Second) // ahead of the server's, also where all of this took some seconds
		w.dropLock(ctx, run)
		Expect(lifecycle.Finished(r.finish(ctx, run))).To(BeTrue())
		Expect(r.counter("syncopate_job_result_latency_seconds", "policy", w.ns)).To(BeNumerically(">", 1), "by policy")
	}, NodeTimeout(2*patience))

	It("is told apart by what it is wanted for", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, quick())
		r := w.newReplica(ctx, "r")
		var asked []lockmgr.Request
		r.request = func(q *lockmgr.Request) { asked = append(asked, *q) }
		run := w.create(ctx, twoSteps())
		w.takeLock(ctx, run)
		r.mustPass(ctx, run)
		found := w.clock.Now()
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		w.dropLock(ctx, run)
		r.inFlight(ctx, run, 1)
		w.work(ctx)
		r.pumpAll(ctx, 1)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(len(asked)).To(BeNumerically(">=", 4))
		Expect(asked[0].Path).To(Equal("reconcile"))
		Expect(asked[0].Since).To(BeZero())
		Expect(asked[1].Since).To(Equal(found), "when it was first found busy")
		Expect([]int{asked[0].Retries, asked[1].Retries, asked[2].Retries}).To(Equal([]int{0, 1, 2}))
		last := asked[len(asked)-1]
		Expect(last.Path).To(Equal("result"))
		Expect(last.Since).To(BeZero(), "it was free")
		Expect(last.Retries).To(BeZero(), "and was not tried for before")
		Expect(last.Waiter).To(Equal(asked[0].Waiter), "one place in line for all that a run wants")
	}, NodeTimeout(2*patience))
})
