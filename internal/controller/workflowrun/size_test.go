// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/holds"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// fill makes the metadata of a run as large as the API server takes it, but for about 100 bytes: a
// cancel needs some. Labels have no bound of their own either, but many of them take the API server
// minutes; one owner's name is as large.
func (w *world) fill(ctx context.Context, run *v1alpha1.WorkflowRun) {
	GinkgoHelper()
	fits := func(n int) bool {
		text := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","uid":"x","name":%q}]}}`, strings.Repeat("x", n))
		err := w.client.Patch(ctx, run.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
		if err != nil {
			Expect(err).To(MatchError(ContainSubstring("etcdserver: request is too large")))
		}
		return err == nil
	}
	// Each try is a request of the whole object, so the search begins where the limit is.
	least, most := 1504<<10, 1536<<10
	Expect(fits(least)).To(BeTrue())
	for most-least > 16 {
		if n := (least + most) / 2; fits(n) {
			least = n
		} else {
			most = n
		}
	}
	Expect(fits(least - 100)).To(BeTrue())
}

// narrow makes a run of two steps, one after the other, whose object is full once the first one
// is in flight.
func (w *world) narrow(ctx context.Context, r *replica, adjust ...func(*v1alpha1.WorkflowRunSpec)) (*v1alpha1.WorkflowRun, *task) {
	GinkgoHelper()
	run := w.create(ctx, []v1alpha1.Step{step("a"), step("b", "a")}, adjust...)
	r.inFlight(ctx, run, 1)
	t := w.takeAll(ctx, 1)[0]
	w.fill(ctx, run)
	return run, t
}

// brokenDrops are locks that cannot be given back so many times.
type brokenDrops struct {
	holds.Locks
	left int
}

func (b *brokenDrops) Drop(ctx context.Context, all ...store.Dropping) error {
	if b.left > 0 {
		b.left--
		return errTest
	}
	return b.Locks.Drop(ctx, all...)
}

// The limit is etcd's own, 1.5 MiB an object.
//
// Mutations that make specs below fail:
//   - apierrors.go outage without tooLarge: results come again for ever, and no end is written.
//   - refused.go shrink that stays at the short form: an end does not fit.
//   - reconciler.go underLockUntilItFits that does not look at shrunk: the end takes a pass
//     for each form.
//   - form.go bare that keeps the steps: an end does not fit.
//   - reconciler.go passUnder that does not look at standsStill: writes follow each other.
var _ = Describe("a run whose object is full", func() {
	var (
		w *world
		r *replica
	)
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{Delivery: v1alpha1.DeliveryPolicy{MaxDeliveries: 2, MaxDelaySeconds: 1}})
		r = w.newReplica(ctx, "r")
	}, NodeTimeout(patience))
	told := func(end *v1alpha1.WorkflowRun) {
		GinkgoHelper()
		c := meta.FindStatusCondition(end.Status.Conditions, v1alpha1.ConditionSucceeded)
		Expect(c.Message).To(ContainSubstring("no room"))
		Expect(r.recorder.count("Warning ObjectTooLarge")).To(BeNumerically(">=", 1))
		Expect(r.counter("syncopate_status_too_large_total")).To(BeNumerically(">=", 1))
	}

	It("ends; its result is a dead letter, and not tried for ever", func(ctx SpecContext) {
		run, t := w.narrow(ctx, r)
		t.succeed(ctx)
		end := r.drive(ctx, run, finished)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunFailed))
		Expect(reason(end, v1alpha1.ConditionSucceeded)).To(Equal("ObjectTooLarge"))
		Expect(reason(end, v1alpha1.ConditionDeadLettered)).To(Equal(v1alpha1.ReasonDeliveriesExhausted))
		told(end)
		r.drained(ctx, run)
		Expect(w.messages(ctx, w.names.DeadLettersStream())).To(Equal(1))
	}, NodeTimeout(5*patience))

	// mutations: unwritten that leaves a result the tries of its policy; Refuse without a budget;
	// Count that is not told of it.
	It("ends after a few writes by the default policy, too", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{Delivery: v1alpha1.DeliveryPolicy{MaxDelaySeconds: 1}})
		w.tries("4f2a-2")
		r := w.newReplica(ctx, "default", func(r *replica) { r.Ballots = ballot.NewBox(nil, nil) })
		run, t := w.narrow(ctx, r)
		t.succeed(ctx)
		refused := func() float64 { return r.counter("syncopate_status_writes_total", "outcome", "refused") }
		end := r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return finished(now) || refused() > 8 })
		votes := r.Ballots.Of(ballot.Entry{Policy: w.ns, Candidate: "4f2a-2"})
		Expect(votes.Canary.Runs + votes.Control.Runs).To(BeEquivalentTo(1))
		Expect(votes.Canary.DeadLettered+votes.Control.DeadLettered).To(BeZero(), "the tenant fills the object, and not the policy")
		Expect(refused()).To(BeNumerically("<=", 6), "three for the result, and for each form of the end")
		Expect(reason(end, v1alpha1.ConditionSucceeded)).To(Equal("ObjectTooLarge"))
		Expect(reason(end, v1alpha1.ConditionDeadLettered)).To(Equal(v1alpha1.ReasonDeliveriesExhausted))
	}, NodeTimeout(5*patience))

	It("is cancelled", func(ctx SpecContext) {
		run, _ := w.narrow(ctx, r)
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		end := r.drive(ctx, run, finished)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunCancelled))
		Expect(reason(end, v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonCancelled))
		told(end)
		Expect(w.messages(ctx, w.names.JobsStream())).To(BeZero(), "its job is withdrawn")
	}, NodeTimeout(5*patience))

	It("ends in the pass that finds no room: a next owner would know nothing of it", func(ctx SpecContext) {
		run, _ := w.narrow(ctx, r)
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunCancelled))
		Expect(r.counter("syncopate_status_writes_total", "outcome", "refused")).To(BeEquivalentTo(2), "in full, and short")
	}, NodeTimeout(5*patience))

	It("is cancelled without the lock, and at once though it has finally steps", func(ctx SpecContext) {
		run, _ := w.narrow(ctx, r, func(s *v1alpha1.WorkflowRunSpec) { s.Finally = []v1alpha1.Step{step("f")} })
		w.takeLock(ctx, run)
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		end := r.drive(ctx, run, finished)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunCancelled))
		told(end)
	}, NodeTimeout(5*patience))

	It("times out at its deadline", func(ctx SpecContext) {
		run, _ := w.narrow(ctx, r, func(s *v1alpha1.WorkflowRunSpec) { s.ActiveDeadlineSeconds = new(int32(600)) })
		w.clock.Step(601 * time.Second)
		end := r.drive(ctx, run, finished)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunTimedOut))
		told(end)
	}, NodeTimeout(5*patience))

	It("before its first write is tried again now and then, says why, keeps no slot, and goes on when there is room", func(ctx SpecContext) {
		run := w.create(ctx, diamond())
		w.fill(ctx, run)
		for range 10 {
			r.turn(ctx, run)
		}
		writes := func() float64 { return r.counter("syncopate_status_writes_total", "outcome", "refused") }
		before, began := writes(), w.clock.Now()
		for w.clock.Since(began) < 30*time.Minute {
			wait := r.mustPass(ctx, run).RequeueAfter
			Expect(wait).To(BeNumerically(">", time.Second))
			w.clock.Step(wait)
		}
		Expect(writes() - before).To(BeNumerically("<=", 12))
		Expect(r.recorder.count("Warning ObjectTooLarge")).To(BeNumerically(">=", 1))
		Expect(r.memories.peek(client.ObjectKeyFromObject(run)).slot.Holding).To(BeNil(), "it keeps no slot")
		Expect(w.get(ctx, run).Unwritten()).To(BeTrue())

		w.patch(ctx, run, `{"metadata":{"ownerReferences":null}}`)
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(5*patience))

	// mutations: standsStill that tries at once what another process may have tried, that looks
	// after the pass has read; roomAgain that forgets what was refused for any edit, or for none.
	It("before its first write costs its next owner nothing at once, and no more after an edit that makes no room", func(ctx SpecContext) {
		run := w.create(ctx, diamond())
		w.fill(ctx, run)
		r.kill(ctx)
		w.clock.Step(2 * time.Minute)
		r = w.newReplica(ctx, "next")
		r.Rand = func() float64 { return 0.5 }
		refused := func() float64 { return r.counter("syncopate_status_writes_total", "outcome", "refused") }
		first := r.mustPass(ctx, run).RequeueAfter
		Expect(first).To(BeNumerically("~", 30*time.Second, time.Second))
		r.mustPass(ctx, run)
		Expect(refused()).To(BeZero())
		Expect(w.locked(ctx, run)).To(BeFalse())
		w.clock.Step(first)
		wait := r.mustPass(ctx, run).RequeueAfter
		Expect(refused()).To(BeEquivalentTo(3), "each form")
		for range 3 {
			w.clock.Step(wait)
			wait = r.mustPass(ctx, run).RequeueAfter
		}
		Expect(refused()).To(BeEquivalentTo(6))
		Expect(wait).To(BeNumerically(">", 20*time.Second))

		w.patch(ctx, run, `{"metadata":{"annotations":{"a":""}}}`)
		w.clock.Step(time.Second)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(wait - time.Second))
		Expect(refused()).To(BeEquivalentTo(6), "it has no more room")
		w.clock.Step(wait - time.Second)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(BeNumerically(">", wait), "it goes on where it was")
		before := refused()
		w.patch(ctx, run, `{"metadata":{"annotations":null}}`)
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(refused()).To(BeNumerically(">", before), "a cancel is tried at once")

		w.patch(ctx, run, `{"metadata":{"ownerReferences":null}}`)
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunCancelled))
	}, NodeTimeout(5*patience))

	// mutations: shrink that gives back the slot only; standsStill that gives nothing back.
	It("before its first write keeps no locks either", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "locks")
		woken, _ := r.locked(ctx)
		full := w.create(ctx, diamond(), withLocks(mutex("m")))
		w.fill(ctx, full)
		r.hook = once("status/before", func() error { return errTest })
		r.turn(ctx, full)
		r.hook = nil
		next := w.create(ctx, diamond(), withLocks(mutex("m")))
		r.drive(ctx, next, withReason(v1alpha1.ReasonWaitingForLock))
		drops := &brokenDrops{Locks: r.Holds.Locks, left: 1}
		r.Holds = &holds.Holds{Locks: drops}
		until(ctx, "they are to be given back", func() bool {
			r.turn(ctx, full)
			return drops.left == 0
		})
		Expect(woken.take(next)).To(BeFalse())
		r.mustPass(ctx, full)
		Expect(woken.take(next)).To(BeTrue(), "what failed is tried again in a second, and not with the next write")
		Expect(r.finish(ctx, next).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(w.client.Delete(ctx, full)).To(Succeed())
	}, NodeTimeout(5*patience))
})
