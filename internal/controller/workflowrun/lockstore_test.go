// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

func reason(run *v1alpha1.WorkflowRun, kind string) string {
	if run.Unwritten() {
		return ""
	}
	if c := meta.FindStatusCondition(run.Status.Conditions, kind); c != nil {
		return c.Reason
	}
	return ""
}

// Mutations that make specs below fail:
//   - reconciler.go withoutLock that returns before decide: cancel, deadlines and the condition
//     never come.
//   - giveback.go HandBack that settles with nil: G1 violations.
//   - refused.go handBack that does nothing: results wait in memory for ever.
//   - leases: breaker.go Breaker that is never open: each pass waits for the time-out of
//     a hung Redis.
//   - act.go recoverJobs without the lock: a job is stored although Redis is down.
var _ = Describe("while Redis cannot be used", func() {
	for name, harm := range map[string]struct{ begin, end func(*redistest.Server) }{
		"because it is gone": {(*redistest.Server).Stop, (*redistest.Server).Restart},
		"because it hangs":   {(*redistest.Server).Pause, (*redistest.Server).Resume},
	} {
		Context(name, func() {
			var (
				w     *world
				r     *replica
				redis *redistest.Server
			)
			BeforeEach(func(ctx SpecContext) {
				redis = redistest.Start(GinkgoTB())
				w = newWorld(ctx, withRedis(redis))
				lock := quick()
				lock.Renewal.IntervalMillis = new(int64(900))
				w.policy(ctx, lock)
				r = w.newReplica(ctx, "r")
			}, NodeTimeout(patience))

			It("runs are cancelled, time out and are deleted; the first pass pays for all", func(ctx SpecContext) {
				cancelled := w.create(ctx, diamond())
				late := w.create(ctx, diamond(), func(s *v1alpha1.WorkflowRunSpec) { s.ActiveDeadlineSeconds = new(int32(60)) })
				deleted := w.create(ctx, diamond())
				for _, run := range []*v1alpha1.WorkflowRun{cancelled, late, deleted} {
					r.inFlight(ctx, run, 2)
				}
				queued := w.create(ctx, diamond(), func(s *v1alpha1.WorkflowRunSpec) { s.QueueTimeoutSeconds = new(int32(60)) })
				fence := *w.get(ctx, cancelled).Status.Fence
				harm.begin(redis)
				w.patch(ctx, cancelled, `{"spec":{"shutdown":"Cancel"}}`)
				w.clock.Step(5 * time.Minute) // it stands still while the test goes on, so the last run is ahead of it by seconds

				for _, run := range []*v1alpha1.WorkflowRun{cancelled, late, queued} {
					r.mustPass(ctx, run)
				}
				Expect(r.counter("syncopate_run_lock_acquisitions_total", "outcome", "error")).To(BeEquivalentTo(1), "the breaker is open")
				Expect(w.get(ctx, cancelled).Status.Phase).To(Equal(v1alpha1.RunCancelled))
				Expect(*w.get(ctx, cancelled).Status.Fence).To(Equal(fence + 1))
				Expect(reason(w.get(ctx, late), v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonDeadlineExceeded))
				Expect(reason(w.get(ctx, queued), v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonWaitingForLock), "nobody saw it before")

				r.deleteRun(ctx, deleted)
				r.mustPass(ctx, deleted)
				Expect(w.jobsQueued(ctx)).To(BeZero(), "jobs of ended and deleted runs are withdrawn")

				w.clock.Step(time.Minute)
				r.mustPass(ctx, queued)
				Expect(reason(w.get(ctx, queued), v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonQueueTimeout))
			}, NodeTimeout(2*patience))

			It("results are parked, then handed back and never acknowledged; the run goes on when Redis is back", func(ctx SpecContext) {
				run := w.create(ctx, diamond())
				r.inFlight(ctx, run, 2)
				until(ctx, "the lock is free", func() bool { return w.redis.Client().Exists(ctx, lockKey(run)).Val() == 0 })
				harm.begin(redis)
				w.work(ctx)
				r.pumpAll(ctx, 2)
				w.clock.Step(time.Second)
				r.mustPass(ctx, run)
				now := w.get(ctx, run)
				Expect(reason(now, v1alpha1.ConditionRunLockRenewed)).To(Equal(v1alpha1.ReasonLockStoreUnavailable))
				Expect(reason(now, v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonWaitingForLock))
				Expect(w.settledWith(run)).To(BeEmpty(), "they wait")
				for range 5 {
					w.clock.Step(900 * time.Millisecond)
					Expect(r.mustPass(ctx, run).RequeueAfter).To(And(BeNumerically(">=", 800*time.Millisecond), BeNumerically("<=", 1200*time.Millisecond)), "not the policy's wait: nobody contends")
				}
				Expect(w.get(ctx, run).ResourceVersion).To(Equal(now.ResourceVersion), "said once")
				given := w.settledWith(run)
				Expect(given).To(HaveLen(2), "after %s", resultPatience)
				for _, s := range given {
					var a *results.RetryError
					Expect(errors.As(s.err, &a)).To(BeTrue())
					Expect(a.Class).To(Equal("store_unavailable"))
					Expect(a.After).To(And(BeNumerically(">=", 800*time.Millisecond), BeNumerically("<=", 1200*time.Millisecond)))
				}
				harm.end(redis)
				end := r.finish(ctx, run)
				Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
				Expect(reason(end, v1alpha1.ConditionRunLockRenewed)).To(Equal(v1alpha1.ReasonLockReleased))
				Expect(w.jobsStored(ctx)).To(Equal(3))
				Expect(r.counter("syncopate_lock_store_failures_total")).To(BeNumerically(">=", 6))
			}, NodeTimeout(2*patience))

			It("a new process dispatches nothing and looks nothing up", func(ctx SpecContext) {
				run := w.create(ctx, diamond())
				r.hook = once("publish/before", func() error { return errTest })
				r.mustPass(ctx, run)
				r.kill(ctx)
				stored := w.jobsStored(ctx)
				harm.begin(redis)
				next := w.newReplica(ctx, "next")
				next.mustPass(ctx, run)
				Expect(w.jobsStored(ctx)).To(Equal(stored))
				harm.end(redis)
				w.dropLock(ctx, run)
				Expect(next.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
			}, NodeTimeout(2*patience))
		})
	}
})

var _ = Describe("while somebody else has the lock", func() {
	It("nothing is written before that is too long, retries are spread, results are handed back, and a forced end fences the holder out", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, quick())
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		before := r.inFlight(ctx, run, 2)
		w.takeLock(ctx, run)
		w.work(ctx)
		r.pumpAll(ctx, 2)
		seen := map[time.Duration]bool{}
		for range 20 {
			w.clock.Step(100 * time.Millisecond) // results do not have a busy lock tried sooner
			wait := r.mustPass(ctx, run).RequeueAfter
			Expect(wait).To(And(BeNumerically(">=", 350*time.Millisecond), BeNumerically("<=", 650*time.Millisecond)))
			seen[wait] = true
		}
		Expect(len(seen)).To(BeNumerically(">", 10), "each wait is drawn anew")
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(before.ResourceVersion))
		Expect(w.settledWith(run)).To(BeEmpty())
		Expect(r.counter("syncopate_lock_busy_retries_total", "class", "lock_busy")).To(BeEquivalentTo(20))

		w.clock.Step(resultPatience)
		r.mustPass(ctx, run)
		given := w.settledWith(run)
		Expect(given).To(HaveLen(2))
		var first, second *results.RetryError
		Expect(errors.As(given[0].err, &first)).To(BeTrue())
		Expect(errors.As(given[1].err, &second)).To(BeTrue())
		Expect(first.Class).To(Equal("lock_busy"))
		Expect(first.After).NotTo(Equal(second.After), "each with a delay of its own")

		Expect(saysBusy(w.get(ctx, run))).To(BeTrue(), "then it is told")
		w.clock.Step(pacing.MinPause)
		w.patch(ctx, run, `{"spec":{"shutdown":"Terminate"}}`)
		r.mustPass(ctx, run)
		end := w.get(ctx, run)
		Expect(reason(end, v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonTerminated))
		Expect(*end.Status.Fence).To(Equal(*before.Status.Fence + 1))

		late := end.DeepCopy() // the holder comes late, with the right resourceVersion and its old fence
		late.Status = before.Status.DeepCopy()
		Expect(isStaleWriter(w.client.Status().Update(ctx, late))).To(BeTrue())
		Expect(w.jobsQueued(ctx)).To(BeZero())
	}, NodeTimeout(2*patience))

	It("patience begins anew once there was nothing to do", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, quick())
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.inFlight(ctx, run, 2)
		w.takeLock(ctx, run)
		tasks := w.takeAll(ctx, 2)
		tasks[0].succeed(ctx)
		r.pumpAll(ctx, 1)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		w.clock.Step(resultPatience)
		r.mustPass(ctx, run)
		Expect(w.settledWith(run)).To(HaveLen(1), "handed back; another replica applies it")
		r.mustPass(ctx, run)
		w.clock.Step(time.Hour)
		tasks[1].succeed(ctx)
		r.pumpAll(ctx, 1)
		r.mustPass(ctx, run)
		Expect(r.Batches.Inbox.Waiting(run.UID)).NotTo(BeEmpty(), "an old grudge is no reason to hand it back at once")
		w.dropLock(ctx, run)
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))
})

var _ = Describe("a lease that is lost in the middle of a pass", func() {
	It("ends the publishing; the next holder recovers, with a higher fence, and the loss is told", func(ctx SpecContext) {
		redis := redistest.Start(GinkgoTB())
		w := newWorld(ctx, withRedis(redis), withWindow(tinyWindow))
		w.policy(ctx, quick())
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.hook = times(1, "publish/before", func(held context.Context) error {
			redis.FlushAll()
			w.takeLock(ctx, run)
			<-held.Done() // the next renewal finds out
			return nil
		})
		r.mustPass(ctx, run)
		Expect(w.jobsStored(ctx)).To(BeNumerically("<=", 1), "at most the one that was on its way before")
		first := w.get(ctx, run)
		Expect(*first.Status.Fence).To(BeEquivalentTo(1))
		Expect(r.mustPass(ctx, run).RequeueAfter).To(BeNumerically(">=", 350*time.Millisecond), "busy")

		w.dropLock(ctx, run)
		end := r.finish(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(*end.Status.Fence).To(BeNumerically(">", *first.Status.Fence))
		Expect(w.jobsStored(ctx)).To(Equal(3))
		Expect(r.recorder.list()).To(ContainElement(ContainSubstring("RunLockAbandoned")))
		Expect(r.counter("syncopate_run_lock_abandoned_total", "reason", "OwnershipLost")).To(BeEquivalentTo(1))
	}, NodeTimeout(2*patience))
})

// deleteRun deletes a run and tells the replica's informer.
func (r *replica) deleteRun(ctx context.Context, run *v1alpha1.WorkflowRun) {
	now := r.w.get(ctx, run)
	Expect(r.w.client.Delete(ctx, now)).To(Succeed())
	r.informer().Delete(ctx, event.DeleteEvent{Object: now}, newQueue())
}

func finished(now *v1alpha1.WorkflowRun) bool { return lifecycle.Finished(now) }
