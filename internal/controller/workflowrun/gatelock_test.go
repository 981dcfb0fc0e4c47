// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

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

var _ = Describe("a run that needs a slot and a lock", func() {
	// mutations: Slots.Wrote that does not note who loses its turn, AwaitLocks that keeps nothing,
	// FirstForOwn that is never true, and release that does not look again.
	It("does not lose the one each time that it gets the other", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		w.limit(ctx, 1)
		other := w.ns + "-other"
		w.policySpec(ctx, other, v1alpha1.LockPolicySpec{RunLock: brief()})
		r := w.newReplica(ctx, "r")
		r.gated(ctx)
		woken, _ := r.locked(ctx)
		wants := withLocks([]v1alpha1.LockRequest{{Semaphore: w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1})}})
		goesOn := func(run *v1alpha1.WorkflowRun, reason string) {
			GinkgoHelper()
			until(ctx, reason, func() bool {
				w.clock.Step(time.Second)
				r.mustPass(ctx, run)
				return withReason(reason)(w.get(ctx, run))
			})
		}
		elsewhere := func() *v1alpha1.WorkflowRun {
			return w.create(ctx, []v1alpha1.Step{step("a")}, wants, func(s *v1alpha1.WorkflowRunSpec) { s.WorkloadClass = other })
		}
		holder := elsewhere()
		r.inFlight(ctx, holder, 1)
		before := func(s *v1alpha1.WorkflowRunSpec) { s.Priority = 1 } // runs of one second have no order by age
		run := w.create(ctx, []v1alpha1.Step{step("a")}, wants, before)
		goesOn(run, v1alpha1.ReasonWaitingForLock)
		busy := w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, busy, 1) // in the slot that the first one gave back
		rival := elsewhere()
		goesOn(rival, v1alpha1.ReasonWaitingForLock)

		By("freeing the lock, while the tenant's slot is taken")
		r.finish(ctx, holder)
		Expect(woken.take(run)).To(BeTrue())
		goesOn(run, v1alpha1.ReasonTenantAtCapacity)
		Expect(woken.take(rival)).To(BeTrue())
		r.inFlight(ctx, rival, 1)
		next := elsewhere()
		goesOn(next, v1alpha1.ReasonWaitingForLock)

		By("freeing the slot, while the lock is taken")
		waits := w.create(ctx, []v1alpha1.Step{step("a")})
		goesOn(waits, v1alpha1.ReasonTenantAtCapacity)
		r.finish(ctx, busy)
		goesOn(run, v1alpha1.ReasonWaitingForLock)
		var again time.Duration
		until(ctx, "nothing is to be written or read", func() bool {
			w.clock.Step(time.Second)
			again = r.mustPass(ctx, run).RequeueAfter
			return again > time.Second
		})
		Expect(again).To(BeNumerically("<=", idlePause), "another one may come before it in line")
		r.mustPass(ctx, waits)
		Expect(lifecycle.Admitted(w.get(ctx, waits))).To(BeFalse(), "the slot is kept")

		By("freeing the lock again")
		r.finish(ctx, rival)
		Expect(woken.take(run)).To(BeTrue())
		r.inFlight(ctx, run, 1)
		for _, one := range []*v1alpha1.WorkflowRun{run, next, waits} {
			r.finish(ctx, one)
		}
	}, NodeTimeout(2*patience))
})
