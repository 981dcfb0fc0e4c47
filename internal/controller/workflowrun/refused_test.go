// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
)

var _ = Describe("a policy that forbids each status of a run", func() {
	// mutations: unwritten that blames a result without trying the status as it is; standsOff that
	// lets each result be tried; a pass without heldUp, which tries the results before the status
	// as it is.
	for what, suspended := range map[string]bool{"first a status without results": true, "no status but with results": false} {
		It("blames no result for it, though they come again and again: "+what, func(ctx SpecContext) {
			const budget = 3
			w := newWorld(ctx)
			w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{Delivery: v1alpha1.DeliveryPolicy{MaxDeliveries: budget, MaxDelaySeconds: 1}})
			r := w.newReplica(ctx, "r")
			run := w.create(ctx, diamond())
			r.inFlight(ctx, run, 2)
			if suspended {
				w.patch(ctx, run, `{"spec":{"suspend":true}}`)
			}
			r.refuse = func(*v1alpha1.WorkflowRun) error { return refused() }
			writes := func() float64 { return r.counter("syncopate_status_writes_total", "outcome", "refused") }
			for _, t := range w.takeAll(ctx, 2) {
				t.succeed(ctx)
			}
			began := w.clock.Now()
			until(ctx, "an hour is over, and both results came more often than they may fail", func() bool {
				r.pump(ctx)
				wait := r.mustPass(ctx, run).RequeueAfter
				if w.clock.Since(began) < time.Hour || len(r.Batches.Inbox.Waiting(run.UID)) > 0 {
					w.clock.Step(max(time.Second, wait))
				}
				given := w.settledWith(run)
				return w.clock.Since(began) >= time.Hour && len(of("a", given)) > budget && len(of("b", given)) > budget
			})
			Expect(writes()).To(And(BeNumerically(">=", 2), BeNumerically("<=", 22)))
			for _, s := range w.settledWith(run) {
				Expect(s.failures).To(BeZero())
			}
			Expect(r.recorder.count("Warning StatusRefused")).To(Equal(1))

			r.refuse = nil
			if suspended {
				w.patch(ctx, run, `{"spec":{"suspend":false}}`)
			}
			w.clock.Step(lookAgain)
			Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
			Expect(w.deadLetters(ctx)).To(BeEmpty())
		}, NodeTimeout(2*patience))
	}

	// mutations: putUnchanged that says isTaken where that is unknown; afterConflict that waits for
	// no conflict with others.
	DescribeTable("by the code of a conflict, and is edited meanwhile, is tried now and then, and blames no result",
		func(ctx SpecContext, alone, edited, most int) {
			w, r, run, other := resultWaits(ctx)
			r.memories.peek(client.ObjectKeyFromObject(run)).conflicts.alone = alone
			tries := 0
			r.refuse = func(now *v1alpha1.WorkflowRun) error {
				if tries++; tries >= edited {
					w.patch(ctx, run, fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, tries))
				}
				return asConflict(now)
			}
			for began := w.clock.Now(); w.clock.Since(began) < resultPatience; {
				wait := r.mustPass(ctx, run).RequeueAfter
				Expect(w.settledWith(run)).To(BeEmpty(), "it is patient, and blames none")
				w.clock.Step(max(time.Millisecond, wait))
			}
			Expect(tries).To(And(BeNumerically(">=", edited), BeNumerically("<=", most)))
			r.mustPass(ctx, run)
			Expect(r.Batches.Inbox.Waiting(run.UID)).To(BeEmpty(), "its patience is over")
			for _, s := range w.settledWith(run) {
				Expect(s.failures).To(BeZero())
			}
			r.refuse = nil
			other.succeed(ctx)
			w.clock.Step(lookAgain)
			Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
			Expect(w.deadLetters(ctx)).To(BeEmpty())
		},
		Entry("while the status as it is is written", NodeTimeout(patience), mostConflicts-1, 2, 10),
		Entry("with each write", NodeTimeout(patience), 0, 1, 12),
	)

	// mutation: notBefore that does not know of conflicts.
	It("by the code of a conflict is not tried sooner for what wakes it", func(ctx SpecContext) {
		w, r, run, other := resultWaits(ctx)
		tries := 0
		r.refuse = func(now *v1alpha1.WorkflowRun) error {
			tries++
			return asConflict(now)
		}
		w.clock.Step(time.Second)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(2 * refreshDelay))
		w.clock.Step(2*refreshDelay - time.Millisecond)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(time.Millisecond))
		Expect(tries).To(Equal(1))
		r.refuse = nil
		other.succeed(ctx)
		w.clock.Step(time.Second)
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	// mutations: refused that takes each conflict for that of an old cache; putUnchanged that does,
	// too; wrote that keeps the conflicts of before.
	It("by the code of a conflict is tried ever later, and blames no result", func(ctx SpecContext) {
		w, r, run, other := resultWaits(ctx)
		m := r.memories.peek(client.ObjectKeyFromObject(run))
		counted := func(name string, labels ...string) int { return int(r.counter(name, labels...)) }
		before := counted("syncopate_fence_rejections_total", "by", "resource_version")
		tries := 0
		r.refuse = func(run *v1alpha1.WorkflowRun) error {
			tries++
			return asConflict(run)
		}
		for began, n := w.clock.Now(), 0; w.clock.Since(began) < 10*time.Minute; n++ {
			Expect(n).To(BeNumerically("<", 60), "passes")
			w.clock.Step(max(time.Millisecond, r.mustPass(ctx, run).RequeueAfter))
		}
		Expect(tries).To(And(BeNumerically(">", mostConflicts), BeNumerically("<=", 20)))
		Expect(counted("syncopate_fence_rejections_total", "by", "resource_version") - before).To(Equal(tries))
		Expect(r.recorder.count("Warning StatusRefused")).To(Equal(1))
		Expect(r.Batches.Inbox.Waiting(run.UID)).To(BeEmpty(), "its patience is over")
		Expect(w.settledWith(run)).NotTo(BeEmpty())
		for _, s := range w.settledWith(run) {
			Expect(s.failures).To(BeZero())
		}

		r.refuse = nil
		other.succeed(ctx)
		w.clock.Step(lookAgain)
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(m.conflicts).To(Equal(conflicts{}))
		Expect(w.deadLetters(ctx)).To(BeEmpty())
	}, NodeTimeout(2*patience))

	// mutations: heldUp that tries the status as it is each time; after an edit, too.
	It("does not keep it from an end that the policy takes", func(ctx SpecContext) {
		for _, edited := range []bool{true, false} {
			w := newWorld(ctx)
			r := w.newReplica(ctx, "r")
			run := w.create(ctx, diamond(), func(spec *v1alpha1.WorkflowRunSpec) { spec.ActiveDeadlineSeconds = new(int32(60)) })
			r.inFlight(ctx, run, 2)
			r.refuse = func(now *v1alpha1.WorkflowRun) error {
				if now.Status == nil || now.Status.Phase == v1alpha1.RunRunning {
					return refused()
				}
				return nil
			}
			w.takeAll(ctx, 2)[0].succeed(ctx)
			until(ctx, "even the status as it is was refused", func() bool {
				r.turn(ctx, run)
				return r.memories.peek(client.ObjectKeyFromObject(run)).standoff.all
			})
			want := v1alpha1.RunTimedOut
			if edited {
				want = v1alpha1.RunCancelled
				w.patch(ctx, run, `{"spec":{"shutdown":"Terminate"}}`)
			}
			for n := 0; w.get(ctx, run).Status.Phase != want; n++ {
				Expect(n).To(BeNumerically("<", 20))
				w.clock.Step(max(time.Second, r.mustPass(ctx, run).RequeueAfter))
			}
		}
	}, NodeTimeout(2*patience))

	// mutation: a pass that stands off and keeps its locks, or asks for them all the same; a resync
	// that marks it each time.
	It("lets others have the locks that it was granted", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "r")
		woken, locks := r.locked(ctx)
		a := w.create(ctx, diamond(), withLocks(mutex("m")))
		r.refuse = func(now *v1alpha1.WorkflowRun) error {
			if now.UID == a.UID {
				return refused()
			}
			return nil
		}
		for range 4 {
			w.clock.Step(r.mustPass(ctx, a).RequeueAfter)
		}
		r.mustPass(ctx, a) // it stands off for more than a minute now
		b := w.create(ctx, diamond(), withLocks(mutex("m")))
		r.drive(ctx, b, func(now *v1alpha1.WorkflowRun) bool { return len(now.Status.Locks) == 1 })
		unmarked := w.get(ctx, a).ResourceVersion
		for range 3 {
			w.clock.Step(10 * time.Second)
			Expect(locks.Resync(ctx)).To(Succeed())
			if woken.take(a) {
				r.mustPass(ctx, a)
			}
		}
		Expect(w.get(ctx, a).ResourceVersion).To(Equal(unmarked), "it has nothing to be marked for")
		r.refuse = nil
		r.finish(ctx, b)
		w.clock.Step(lookAgain)
		r.finish(ctx, a)
	}, NodeTimeout(2*patience))

	// mutation: a pass that stands off and takes nothing back.
	It("has the withdrawals of before made all the same", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{{Name: "s", Job: &v1alpha1.Job{Topic: topic}, StartTimeoutSeconds: 60}})
		r.inFlight(ctx, run, 1)
		r.hook = func(_ context.Context, at string) error {
			if at == "withdraw/before" {
				return &results.RetryError{After: time.Second, Cause: errNoNATS}
			}
			return nil
		}
		w.clock.Step(61 * time.Second)
		r.mustPass(ctx, run) // its time is over, and the job stays
		r.refuse = func(*v1alpha1.WorkflowRun) error { return refused() }
		m := r.memories.peek(client.ObjectKeyFromObject(run))
		until(ctx, "it stands off", func() bool {
			r.turn(ctx, run)
			return m.standoff.tries > 1
		})
		Expect(w.jobsQueued(ctx)).To(Equal(1))
		r.hook = nil
		r.mustPass(ctx, run)
		Expect(w.jobsQueued(ctx)).To(BeZero())
		r.refuse = nil
		w.clock.Step(lookAgain)
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))

	// mutation: persist that doubts a write which was refused.
	It("leaves no doubt about what was written", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.inFlight(ctx, run, 2)
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		r.refuse = func(*v1alpha1.WorkflowRun) error { return refused() }
		for range 3 {
			w.clock.Step(time.Minute)
			r.mustPass(ctx, run)
		}
		Expect(r.memories.peek(client.ObjectKeyFromObject(run)).doubt).To(BeNil())
		r.refuse = nil
		w.clock.Step(time.Minute)
		Expect(r.drive(ctx, run, finished).Status.Phase).To(Equal(v1alpha1.RunCancelled))
	}, NodeTimeout(2*patience))

	// mutation: meet that goes by the clock, and not by how long the run's owner has driven it.
	It("is not looked for in a large run that is new, by a clock that is ahead", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		w.clock.Step(2 * time.Minute)
		run := w.create(ctx, diamond())
		w.patch(ctx, run, fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","uid":"x","name":%q}]}}`, strings.Repeat("x", nearlyFull)))
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Unwritten()).To(BeFalse())
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))
})

var _ = Describe("a webhook on the status of runs that is down", func() {
	down := apierrors.NewInternalError(errors.New(`failed calling webhook "policy.example.com": connection refused`))

	// mutations: tellErrors that tells at once, each time, never, or of a server that is away;
	// wrote that does not forget the errors of before.
	It("is told to the run's user after several tries, once until a write is taken", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		tries := func(n int, cause error) {
			GinkgoHelper()
			r.refuse = func(*v1alpha1.WorkflowRun) error { return cause }
			for range n {
				w.clock.Step(lookAgain)
				_, err := r.pass(ctx, run)
				Expect(err).To(HaveOccurred())
			}
			r.refuse = nil
		}
		told := func() int { return r.recorder.count("Warning StatusRefused") }
		tries(errorsTold-1, down)
		Expect(told()).To(BeZero(), "it may be over in a moment")
		tries(2*errorsTold, apierrors.NewServiceUnavailable("the API server ends"))
		Expect(told()).To(BeZero(), "who is away refuses nothing")
		tries(1, down)
		Expect(told()).To(Equal(1))
		Expect(r.recorder.list()[0]).To(ContainSubstring("policy.example.com"))
		tries(2*errorsTold, down)
		Expect(told()).To(Equal(1))
		w.clock.Step(lookAgain)
		r.inFlight(ctx, run, 2)
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		tries(errorsTold-1, down)
		Expect(told()).To(Equal(1))
		tries(1, down)
		Expect(told()).To(Equal(2))
		w.clock.Step(lookAgain)
		Expect(r.drive(ctx, run, finished).Status.Phase).To(Equal(v1alpha1.RunCancelled))
	}, NodeTimeout(2*patience))
})

// resultWaits is a run of which a result came that no pass has seen yet, and whose other job is
// with its worker.
func resultWaits(ctx SpecContext) (w *world, r *replica, run *v1alpha1.WorkflowRun, other *task) {
	w = newWorld(ctx)
	r = w.newReplica(ctx, "r")
	run = w.create(ctx, diamond())
	r.inFlight(ctx, run, 2)
	all := w.takeAll(ctx, 2)
	all[0].succeed(ctx)
	r.pumpOf(ctx, all[0])
	return w, r, run, all[1]
}
