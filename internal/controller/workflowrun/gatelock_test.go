// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// lockedLimit makes the policy of a class one with a limit that is kept under a lock of the tenant.
func (w *world) lockedLimit(ctx context.Context, class string, n int32) {
	w.policySpec(ctx, class, v1alpha1.LockPolicySpec{RunLock: quick(), Admission: v1alpha1.AdmissionPolicy{
		MaxConcurrentRuns: &n, Strategy: v1alpha1.AdmissionStrategyLock,
	}})
}

func (w *world) gateLock(class string) string { return fmt.Sprintf("{adm:%s:%s}:lock", class, w.ns) }

var _ = Describe("the lock of a tenant at its gate (strategy Lock)", func() {
	It("keeps no worker while the dead hold it, nor runs of other classes", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.lockedLimit(ctx, w.ns, 100)
		other := w.ns + "-other"
		w.lockedLimit(ctx, other, 1)
		r := w.newReplica(ctx, "r")
		woken := r.gated(ctx)
		Expect(w.redis.Client().Set(ctx, w.gateLock(w.ns), "the dead", 0).Err()).To(Succeed())

		By("making a pass over each of 40 runs of the tenant")
		var runs []*v1alpha1.WorkflowRun
		for range 40 {
			runs = append(runs, w.create(ctx, []v1alpha1.Step{step("a")}))
		}
		passed := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(passed)
			for _, run := range runs {
				r.mustPass(ctx, run)
			}
		}()
		Eventually(passed).WithContext(ctx).WithTimeout(patience).Should(BeClosed(), "no pass waits for the lock") // 40 that wait take 80 s

		By("letting a run of another class in meanwhile")
		free := w.create(ctx, []v1alpha1.Step{step("a")}, func(s *v1alpha1.WorkflowRunSpec) { s.WorkloadClass = other })
		until(ctx, "it is admitted", func() bool {
			r.mustPass(ctx, free)
			return lifecycle.Admitted(w.get(ctx, free))
		})
		for _, run := range runs {
			Expect(lifecycle.Admitted(w.get(ctx, run))).To(BeFalse())
		}

		By("freeing the lock: each is woken when it has its answer, and let in")
		Expect(w.redis.Client().Del(ctx, w.gateLock(w.ns)).Err()).To(Succeed())
		for _, run := range runs {
			until(ctx, "it is admitted", func() bool {
				w.clock.Step(polling)
				if woken.take(run) {
					r.mustPass(ctx, run)
				}
				return lifecycle.Admitted(w.get(ctx, run))
			})
		}
	}, NodeTimeout(3*patience))

	// mutation: admission.go passGate that leaves the place of who has no slot makes this fail.
	It("keeps no permits from runs of others while the dead hold it", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		w.lockedLimit(ctx, w.ns, 100)
		other := w.ns + "-other"
		w.policySpec(ctx, other, v1alpha1.LockPolicySpec{RunLock: quick()})
		r := w.newReplica(ctx, "r")
		r.gated(ctx)
		woken, _ := r.locked(ctx)
		wants := withLocks([]v1alpha1.LockRequest{{Semaphore: w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1})}})
		elsewhere := func(s *v1alpha1.WorkflowRunSpec) { s.WorkloadClass = other }
		goesOn := func(run *v1alpha1.WorkflowRun, reason string) {
			until(ctx, reason, func() bool {
				w.clock.Step(polling)
				r.mustPass(ctx, run)
				return withReason(reason)(w.get(ctx, run))
			})
		}
		holder := w.create(ctx, []v1alpha1.Step{step("a")}, wants, elsewhere)
		r.inFlight(ctx, holder, 1)
		first, second := w.create(ctx, []v1alpha1.Step{step("a")}, wants), w.create(ctx, []v1alpha1.Step{step("a")}, wants, elsewhere)
		goesOn(first, v1alpha1.ReasonWaitingForLock)
		goesOn(second, v1alpha1.ReasonWaitingForLock)
		Expect(w.redis.Client().Set(ctx, w.gateLock(w.ns), "the dead", 0).Err()).To(Succeed())
		r.finish(ctx, holder)
		Expect(woken.take(first)).To(BeTrue())
		goesOn(first, v1alpha1.ReasonAdmissionBusy)
		Expect(woken.take(second)).To(BeTrue(), "it is next")
		r.finish(ctx, second)

		By("freeing the lock: the first is let in")
		Expect(w.redis.Client().Del(ctx, w.gateLock(w.ns)).Err()).To(Succeed())
		until(ctx, "it is admitted", func() bool {
			w.clock.Step(polling)
			r.mustPass(ctx, first)
			return lifecycle.Admitted(w.get(ctx, first))
		})
		r.finish(ctx, first)
	}, NodeTimeout(2*patience))
})

// between is a run that lost its turn at a lock, as its tenant had no slot for it, and keeps the
// slot that it has now.
type between struct {
	w      *world
	r      *replica
	woken  *woken // for slots
	locked *woken
	tick   time.Duration
	wants  func(*v1alpha1.WorkflowRunSpec)

	run   *v1alpha1.WorkflowRun // is first at the lock, and has the only slot
	rival *v1alpha1.WorkflowRun // of another class, has the lock
	waits *v1alpha1.WorkflowRun // for the slot
}

// betweenSlotAndLock has the run get there. Each pass is a tick later than the one before.
func betweenSlotAndLock(ctx context.Context, w *world, tick time.Duration) *between {
	GinkgoHelper()
	b := &between{w: w, r: w.newReplica(ctx, "r"), tick: tick}
	w.policySpec(ctx, w.ns+"-other", v1alpha1.LockPolicySpec{RunLock: brief()})
	b.woken = b.r.gated(ctx)
	b.locked, _ = b.r.locked(ctx)
	b.wants = withLocks([]v1alpha1.LockRequest{{Semaphore: w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1})}})
	holder := b.elsewhere(ctx)
	b.r.inFlight(ctx, holder, 1)
	before := func(s *v1alpha1.WorkflowRunSpec) { s.Priority = 1 } // runs of one second have no order by age
	b.run = w.create(ctx, []v1alpha1.Step{step("a")}, b.wants, before)
	b.goesOn(ctx, b.run, v1alpha1.ReasonWaitingForLock)
	Expect(w.get(ctx, b.run).Status.Admission.SlotExpiresAt).To(BeNil(), "it lost no turn")
	busy := w.create(ctx, []v1alpha1.Step{step("a")})
	b.begins(ctx, busy) // in the slot that the first one gave back
	b.rival = b.elsewhere(ctx)
	b.goesOn(ctx, b.rival, v1alpha1.ReasonWaitingForLock)

	By("freeing the lock, while the tenant's slot is taken")
	b.r.finish(ctx, holder)
	Expect(b.locked.take(b.run)).To(BeTrue())
	b.goesOn(ctx, b.run, v1alpha1.ReasonTenantAtCapacity)
	Expect(b.locked.take(b.rival)).To(BeTrue())
	b.r.inFlight(ctx, b.rival, 1)

	By("freeing the slot, while the lock is taken")
	b.waits = w.create(ctx, []v1alpha1.Step{step("a")})
	b.goesOn(ctx, b.waits, v1alpha1.ReasonTenantAtCapacity)
	b.r.finish(ctx, busy)
	b.goesOn(ctx, b.run, v1alpha1.ReasonWaitingForLock)
	return b
}

// elsewhere is a run of a class without a limit that wants the lock.
func (b *between) elsewhere(ctx context.Context) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	return b.w.create(ctx, []v1alpha1.Step{step("a")}, b.wants, func(s *v1alpha1.WorkflowRunSpec) { s.WorkloadClass = b.w.ns + "-other" })
}

func (b *between) goesOn(ctx context.Context, run *v1alpha1.WorkflowRun, reason string) {
	GinkgoHelper()
	until(ctx, reason, func() bool {
		b.w.clock.Step(b.tick)
		b.r.mustPass(ctx, run)
		return withReason(reason)(b.w.get(ctx, run))
	})
}

// begins has a run admitted, and its job in flight.
func (b *between) begins(ctx context.Context, run *v1alpha1.WorkflowRun) {
	GinkgoHelper()
	b.goesOn(ctx, run, v1alpha1.ReasonAdmitted)
	b.r.inFlight(ctx, run, 1)
}

var _ = Describe("a run that needs a slot and a lock", func() {
	// mutations: Slots.Wrote that does not note who loses its turn, AwaitLocks that keeps nothing,
	// keepSlot that never does, and release that does not look again.
	It("does not lose the one each time that it gets the other", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		w.limit(ctx, 1)
		b := betweenSlotAndLock(ctx, w, time.Second)
		next := b.elsewhere(ctx)
		b.goesOn(ctx, next, v1alpha1.ReasonWaitingForLock)
		var again time.Duration
		until(ctx, "nothing is to be written or read", func() bool {
			w.clock.Step(time.Second)
			again = b.r.mustPass(ctx, b.run).RequeueAfter
			return again > time.Second
		})
		Expect(again).To(BeNumerically("<=", idlePause), "another one may come before it in line")
		b.r.mustPass(ctx, b.waits)
		Expect(lifecycle.Admitted(w.get(ctx, b.waits))).To(BeFalse(), "the slot is kept")

		By("freeing the lock again")
		b.r.finish(ctx, b.rival)
		Expect(b.locked.take(b.run)).To(BeTrue())
		b.r.inFlight(ctx, b.run, 1)
		Expect(w.get(ctx, b.run).Status.Admission.SlotExpiresAt).To(BeNil(), "it has it as all have it")
		for _, one := range []*v1alpha1.WorkflowRun{b.run, next, b.waits} {
			b.r.finish(ctx, one)
		}
	}, NodeTimeout(2*patience))

	// mutations: Idle that takes no rest, and act that keeps the slot whatever status says.
	It("keeps its slot for a minute, and says so", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		w.limit(ctx, 1)
		b := betweenSlotAndLock(ctx, w, time.Second)
		end := w.get(ctx, b.run).Status.Admission.SlotExpiresAt
		Expect(end).NotTo(BeNil())
		Expect(end.Time).To(BeTemporally("~", w.clock.Now().Add(time.Minute), 5*time.Second))
		Expect(meta.FindStatusCondition(w.get(ctx, b.run).Status.Conditions, v1alpha1.ConditionAdmitted).Message).To(ContainSubstring(", and keeps its slot of the tenant until "))

		By("letting the minute pass: another one has the slot")
		w.clock.Step(time.Minute)
		until(ctx, "it gives its slot back", func() bool {
			b.r.mustPass(ctx, b.run)
			return w.get(ctx, b.run).Status.Admission.SlotExpiresAt == nil
		})
		Expect(b.woken.take(b.waits)).To(BeTrue(), "the slot is free")
		b.begins(ctx, b.waits)
		Expect(w.get(ctx, b.run).Status.Admission.LockWait).NotTo(BeNil(), "it is in the queue of its lock as before")

		By("giving it a slot again: it rests first, and keeps it for longer then")
		b.r.finish(ctx, b.waits)
		b.r.mustPass(ctx, b.run)
		Expect(w.get(ctx, b.run).Status.Admission.LockWait).NotTo(BeNil())
		Expect(w.get(ctx, b.run).Status.Admission.SlotExpiresAt).To(BeNil())
		w.clock.Step(4 * time.Minute)
		until(ctx, "it keeps a slot", func() bool {
			b.r.mustPass(ctx, b.run)
			return w.get(ctx, b.run).Status.Admission.SlotExpiresAt != nil
		})
		Expect(w.get(ctx, b.run).Status.Admission.SlotExpiresAt.Time).To(BeTemporally("~", w.clock.Now().Add(2*time.Minute), time.Second))
		b.r.finish(ctx, b.rival)
		b.r.finish(ctx, b.run)
	}, NodeTimeout(3*patience))

	// mutation: passGate that leaves the queue of the lock though the run keeps its slot.
	It("keeps its place at the lock with its slot, though its gate gives no answer", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		w.lockedLimit(ctx, w.ns, 1)
		b := betweenSlotAndLock(ctx, w, polling)
		kept := w.get(ctx, b.run)
		Expect(kept.Status.Admission.SlotExpiresAt).NotTo(BeNil())
		Expect(w.redis.Client().Set(ctx, w.gateLock(w.ns), "the dead", 0).Err()).To(Succeed())
		for range 4 {
			w.clock.Step(time.Second)
			b.r.mustPass(ctx, b.run)
		}
		Expect(w.get(ctx, b.run).Status).To(Equal(kept.Status), "nothing is written")

		By("freeing both locks")
		Expect(w.redis.Client().Del(ctx, w.gateLock(w.ns)).Err()).To(Succeed())
		b.r.finish(ctx, b.rival)
		Expect(b.locked.take(b.run)).To(BeTrue(), "it is in the queue")
		b.begins(ctx, b.run)
		b.r.finish(ctx, b.run)
	}, NodeTimeout(3*patience))
})
