// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

var _ = Describe("locks over child runs", func() {
	// mutation: a question for locks by a run whose parent is not pinned yet.
	It("are not taken from the run at the top by a child that asks before its first write", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "r")
		r.locked(ctx)
		sem := w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1, OnBusy: v1alpha1.OnBusyCancelOldest})
		sub := w.childStep("sub", `{"workloadClass":"CLASS","steps":[{"name":"in","locks":[{"semaphore":"`+sem+`"}],"job":{"topic":"work"}}]}`)
		run := w.create(ctx, []v1alpha1.Step{sub}, withLocks([]v1alpha1.LockRequest{{Semaphore: sem}}))
		leaf := r.childOf(ctx, run, "sub")
		r.drive(ctx, leaf, func(now *v1alpha1.WorkflowRun) bool { return now.Status != nil && stepOf(now, "in").LockWait != nil })
		Expect(w.get(ctx, run).Spec.Shutdown).To(BeEmpty())
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		r.finishAll(ctx, run)
	}, NodeTimeout(2*patience))

	waits := `{"workloadClass":"CLASS","steps":[{"name":"ask","approval":{}}],"finally":[{"name":"tidy","job":{"topic":"work"}}]}`
	nested := `{"workloadClass":"CLASS","steps":[{"name":"in","run":{"spec":` + waits + `}}]}`
	// mutations: Release, or audit, that does not look at what is below, a finished run that is
	// forgotten while it keeps locks, and one that does not look again, each make a row fail.
	for name, c := range map[string]struct {
		ofRun, ofStep []v1alpha1.LockRequest
		spec          string
		tidy          []v1alpha1.Step
	}{
		"a run that ended":               {ofRun: mutex("db"), spec: waits},
		"a run two levels up that ended": {ofRun: mutex("db"), spec: nested},
		"a step that ended with its run": {ofStep: mutex("db"), spec: waits},
		"a step of a run that cleans up": {ofStep: mutex("db"), spec: waits, tidy: []v1alpha1.Step{delayStep("hold", 60)}},
	} {
		It("are kept by "+name+" until the clean-up of the child is over", func(ctx SpecContext) {
			w := newWorld(ctx, withOwnRedis())
			r := w.newReplica(ctx, "r")
			woken, keeper := r.locked(ctx)
			sub := w.childStep("sub", c.spec)
			sub.Locks = c.ofStep
			run := w.create(ctx, []v1alpha1.Step{sub}, withLocks(c.ofRun), func(s *v1alpha1.WorkflowRunSpec) { s.Finally = c.tidy })
			leaf := r.childOf(ctx, run, "sub")
			if c.spec == nested {
				leaf = r.childOf(ctx, leaf, "in")
			}
			r.driveAll(ctx, "the leaf waits", func() bool { return inPhase("ask", v1alpha1.StepWaiting)(w.get(ctx, leaf)) })
			second := w.create(ctx, diamond(), withLocks(mutex("db")))
			r.drive(ctx, second, withReason(v1alpha1.ReasonWaitingForLock))
			w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
			r.driveAll(ctx, "the leaf cleans up", func() bool { return inPhase("tidy", v1alpha1.StepDispatched)(w.get(ctx, leaf)) })
			for range 2 {
				looked := r.mustPass(ctx, run)
				Expect(keeper.Resync(ctx)).To(Succeed())
				r.mustPass(ctx, second)
				Expect(w.get(ctx, second).Status.Phase).To(Equal(v1alpha1.RunQueued))
				Expect(looked.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", belowPause)))
				w.clock.Step(2 * forgetDelay)
			}
			Expect(stepOf(w.get(ctx, run), "sub").Phase).To(Equal(v1alpha1.StepCancelled))
			Expect(woken.take(second)).To(BeFalse())
			r.drive(ctx, leaf, func(now *v1alpha1.WorkflowRun) bool {
				w.work(ctx)
				return lifecycle.Finished(now)
			})
			r.mustPass(ctx, run)
			Expect(woken.take(second)).To(BeTrue(), "the next is woken, and not by a resync")
			second = r.inFlight(ctx, second, 2)
			Expect(second.Status.Locks).To(HaveLen(1))
			w.clock.Step(time.Minute)
			r.finishAll(ctx, run) // other specs count what is held
		}, NodeTimeout(2*patience))
	}
})
