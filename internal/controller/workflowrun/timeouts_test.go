// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

// thirty is a step whose job may take 30 s.
func thirty(name string, deps ...string) v1alpha1.Step {
	s := step(name, deps...)
	s.TimeoutSeconds, s.StartTimeoutSeconds = 30, 30
	s.Retry.MaxFailures = 1
	return s
}

// failing has all that is done at a place fail.
func failing(place string) func(context.Context, string) error {
	return func(_ context.Context, at string) error {
		if at == place {
			return errTest
		}
		return nil
	}
}

// countPlace counts how often the replica gets to a place from now on.
func (r *replica) countPlace(place string) func() int64 {
	var n atomic.Int64
	r.hook = func(_ context.Context, at string) error {
		if at == place {
			n.Add(1)
		}
		return nil
	}
	return n.Load
}

// Mutations that make specs below fail:
//   - lifecycle timedOut that is true for whatever is due: all that say that an answer counts.
//   - questions.go Ask without addFound: the same.
//   - questions.go Heard that keeps no from: the second half of many items is never read.
//   - lifecycle timedOut that asks nothing once answers were given up: an answer is lost though the
//     stream has it, and answers again.
var _ = Describe("an answer that was stored in time", func() {
	var w *world

	// underWay is a run whose n jobs are with workers that have started, as its operator has heard.
	underWay := func(ctx context.Context, r *replica, run *v1alpha1.WorkflowRun, n int) []*task {
		GinkgoHelper()
		r.inFlight(ctx, run, n)
		tasks := w.takeAll(ctx, n)
		for _, t := range tasks {
			t.say(ctx, `{"status":"Started"}`)
		}
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			running := 0
			for _, s := range now.Status.Steps {
				if s.Phase == v1alpha1.StepRunning {
					running++
				}
			}
			return running == n
		})
		return tasks
	}
	// takeOver is the next operator, to which NATS has not delivered anything yet.
	takeOver := func(ctx context.Context, old *replica, run *v1alpha1.WorkflowRun) *replica {
		GinkgoHelper()
		w.dropLock(ctx, run)
		return w.newReplica(ctx, "next")
	}
	ends := func(ctx context.Context, r *replica, run *v1alpha1.WorkflowRun, phase v1alpha1.RunPhase) *v1alpha1.WorkflowRun {
		GinkgoHelper()
		end := r.finish(ctx, run)
		Expect(end.Status.Phase).To(Equal(phase), "%+v", end.Status.Steps)
		r.drained(ctx, run)
		return end
	}

	It("counts for the next operator, which takes over after the time-out", func(ctx SpecContext) {
		w = newWorld(ctx)
		first := w.newReplica(ctx, "first")
		run := w.create(ctx, []v1alpha1.Step{thirty("a"), step("b", "a")})
		tasks := underWay(ctx, first, run, 1)
		first.kill(ctx)
		tasks[0].succeed(ctx)
		w.clock.Step(40 * time.Second)

		next := takeOver(ctx, first, run)
		next.mustPass(ctx, run)
		Expect(stepOf(w.get(ctx, run), "a").Phase).To(Equal(v1alpha1.StepSucceeded))
		ends(ctx, next, run, v1alpha1.RunSucceeded)
	}, NodeTimeout(2*patience))

	It("counts though it was given back while Redis was away", func(ctx SpecContext) {
		redis := redistest.Start(GinkgoTB())
		w = newWorld(ctx, withRedis(redis))
		w.policy(ctx, brief())
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{thirty("a"), step("b", "a")})
		tasks := underWay(ctx, r, run, 1)
		redis.Stop()
		tasks[0].succeed(ctx)
		r.pumpAll(ctx, 1)
		r.mustPass(ctx, run)
		w.clock.Step(resultPatience)
		r.mustPass(ctx, run)
		Expect(r.Batches.Inbox.Waiting(run.UID)).To(BeEmpty(), "it is with NATS again, for a while")
		w.clock.Step(40 * time.Second)
		redis.Restart()
		r.mustPass(ctx, run)
		Expect(stepOf(w.get(ctx, run), "a").Phase).To(Equal(v1alpha1.StepSucceeded))
		ends(ctx, r, run, v1alpha1.RunSucceeded)
	}, NodeTimeout(2*patience))

	It("counts for the start, too: the news that a worker began moves the time-out", func(ctx SpecContext) {
		w = newWorld(ctx)
		first := w.newReplica(ctx, "first")
		slow := thirty("a")
		slow.TimeoutSeconds = 3600
		run := w.create(ctx, []v1alpha1.Step{slow})
		first.inFlight(ctx, run, 1)
		task := w.takeAll(ctx, 1)[0]
		first.kill(ctx)
		task.say(ctx, `{"status":"Started"}`)
		w.clock.Step(40 * time.Second)

		next := takeOver(ctx, first, run)
		next.mustPass(ctx, run)
		Expect(stepOf(w.get(ctx, run), "a").Phase).To(Equal(v1alpha1.StepRunning))
		task.succeed(ctx)
		ends(ctx, next, run, v1alpha1.RunSucceeded)
	}, NodeTimeout(2*patience))

	It("counts for each of many items", func(ctx SpecContext) {
		w = newWorld(ctx)
		first := w.newReplica(ctx, "first")
		steps, inputs := fanOut(20, 20, v1alpha1.FailStep)
		steps[0].TimeoutSeconds, steps[0].StartTimeoutSeconds = 30, 30
		steps[0].Retry.MaxFailures = 1
		run := w.create(ctx, steps, inputs)
		first.inFlight(ctx, run, 20)
		tasks := w.takeAll(ctx, 20)
		first.kill(ctx)
		for _, t := range tasks {
			t.succeed(ctx)
		}
		w.clock.Step(40 * time.Second)

		next := takeOver(ctx, first, run)
		next.mustPass(ctx, run)
		Expect(stepOf(w.get(ctx, run), "all").Phase).To(Equal(v1alpha1.StepSucceeded))
		ends(ctx, next, run, v1alpha1.RunSucceeded)
	}, NodeTimeout(2*patience))

	It("counts before the run's deadline does", func(ctx SpecContext) {
		w = newWorld(ctx)
		first := w.newReplica(ctx, "first")
		run := w.create(ctx, []v1alpha1.Step{step("a")}, func(s *v1alpha1.WorkflowRunSpec) { s.ActiveDeadlineSeconds = new(int32(30)) })
		tasks := underWay(ctx, first, run, 1)
		first.kill(ctx)
		tasks[0].succeed(ctx)
		w.clock.Step(40 * time.Second)

		ends(ctx, takeOver(ctx, first, run), run, v1alpha1.RunSucceeded)
	}, NodeTimeout(2*patience))

	It("counts before finallyTimeoutSeconds does", func(ctx SpecContext) {
		w = newWorld(ctx)
		first := w.newReplica(ctx, "first")
		run := w.create(ctx, []v1alpha1.Step{step("a")}, func(s *v1alpha1.WorkflowRunSpec) {
			s.Finally, s.FinallyTimeoutSeconds = []v1alpha1.Step{step("f")}, 30
		})
		underWay(ctx, first, run, 1)[0].succeed(ctx)
		first.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Ending != nil })
		tasks := underWay(ctx, first, run, 1)
		first.kill(ctx)
		tasks[0].succeed(ctx)
		w.clock.Step(40 * time.Second)

		ends(ctx, takeOver(ctx, first, run), run, v1alpha1.RunSucceeded)
	}, NodeTimeout(2*patience))

	It("counts though the run ends without its lock", func(ctx SpecContext) {
		redis := redistest.Start(GinkgoTB())
		w = newWorld(ctx, withRedis(redis))
		w.policy(ctx, brief())
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a")}, func(s *v1alpha1.WorkflowRunSpec) { s.ActiveDeadlineSeconds = new(int32(30)) })
		tasks := underWay(ctx, r, run, 1)
		redis.Stop()
		tasks[0].succeed(ctx)
		w.clock.Step(40 * time.Second)
		ends(ctx, r, run, v1alpha1.RunSucceeded)
	}, NodeTimeout(2*patience))

	It("counts though a deadline ends the run that another operator has the lock of", func(ctx SpecContext) {
		w = newWorld(ctx)
		first := w.newReplica(ctx, "first")
		run := w.create(ctx, []v1alpha1.Step{step("a")}, func(s *v1alpha1.WorkflowRunSpec) { s.ActiveDeadlineSeconds = new(int32(30)) })
		tasks := underWay(ctx, first, run, 1)
		first.kill(ctx)
		tasks[0].succeed(ctx)
		w.takeLock(ctx, run)
		w.clock.Step(40 * time.Second)
		next := w.newReplica(ctx, "next")
		next.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		next.drained(ctx, run)
	}, NodeTimeout(2*patience))

	It("is asked for once, however many items time out, and not before", func(ctx SpecContext) {
		w = newWorld(ctx)
		r := w.newReplica(ctx, "r")
		steps, inputs := fanOut(50, 50, v1alpha1.Collect)
		steps[0].TimeoutSeconds, steps[0].StartTimeoutSeconds = 30, 30
		steps[0].Retry.MaxFailures = 1
		run := w.create(ctx, steps, inputs)
		r.inFlight(ctx, run, 50)
		asked := r.countPlace("answers/before")
		for range 5 {
			w.clock.Step(5 * time.Second)
			r.mustPass(ctx, run)
		}
		Expect(asked()).To(BeZero(), "nothing is due")
		w.clock.Step(10 * time.Second)
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return stepOf(now, "all").Phase == v1alpha1.StepSucceeded })
		Expect(stepOf(w.get(ctx, run), "all").ForEach.Failed).To(BeEquivalentTo(50))
		Expect(asked()).To(BeEquivalentTo(1))
		Expect(r.counter("syncopate_timeout_questions_total", "outcome", "none")).To(BeEquivalentTo(1))
	}, NodeTimeout(2*patience))

	It("is read in several looks where there are many of them", func(ctx SpecContext) {
		w = newWorld(ctx)
		first := w.newReplica(ctx, "first")
		steps, inputs := fanOut(200, 200, v1alpha1.FailStep)
		steps[0].TimeoutSeconds, steps[0].StartTimeoutSeconds = 30, 30
		steps[0].Retry.MaxFailures = 1
		run := w.create(ctx, steps, inputs)
		first.inFlight(ctx, run, 200)
		tasks := w.takeAll(ctx, 200)
		first.kill(ctx)
		for _, t := range tasks {
			t.say(ctx, `{"status":"Succeeded","output":1}`)
			Expect(t.msg.DoubleAck(ctx)).To(Succeed())
		}
		w.clock.Step(40 * time.Second)
		next := takeOver(ctx, first, run)
		until(ctx, "all results were read", func() bool {
			next.mustPass(ctx, run)
			w.clock.Step(pacing.MaxPause)
			return stepOf(w.get(ctx, run), "all").Phase == v1alpha1.StepSucceeded
		})
		Expect(next.counter("syncopate_timeout_questions_total", "outcome", "partly")).To(BeEquivalentTo(1))
		ends(ctx, next, run, v1alpha1.RunSucceeded)
	}, NodeTimeout(2*patience))

	It("is waited for while the stream cannot be asked", func(ctx SpecContext) {
		w = newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{thirty("a")})
		tasks := underWay(ctx, r, run, 1)
		r.hook = failing("answers/before")
		tasks[0].succeed(ctx)
		w.clock.Step(40 * time.Second)
		r.mustPass(ctx, run)
		now := w.get(ctx, run)
		Expect(stepOf(now, "a").Phase).To(Equal(v1alpha1.StepRunning))
		Expect(meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionSucceeded).Message).To(And(ContainSubstring("time-outs wait"), ContainSubstring(errTest.Error())))
		Expect(r.recorder.count("Warning TimeoutWaits")).To(Equal(1))
		w.clock.Step(30 * time.Second)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(BeNumerically(">=", time.Second/2), "it does not ask all the time")
		Expect(stepOf(w.get(ctx, run), "a").Phase).To(Equal(v1alpha1.StepRunning))
		r.hook = nil
		w.clock.Step(5 * time.Second)
		r.mustPass(ctx, run)
		Expect(stepOf(w.get(ctx, run), "a").Phase).To(Equal(v1alpha1.StepSucceeded))
		ends(ctx, r, run, v1alpha1.RunSucceeded)
	}, NodeTimeout(2*patience))

	It("counts though the stream could not be asked once, and no pass got to act in the minute after it", func(ctx SpecContext) {
		w = newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{thirty("a")})
		tasks := underWay(ctx, r, run, 1)
		r.hook = failing("answers/before")
		tasks[0].succeed(ctx)
		w.clock.Step(40 * time.Second)
		r.mustPass(ctx, run)
		Expect(stepOf(w.get(ctx, run), "a").Phase).To(Equal(v1alpha1.StepRunning))

		By("asking it with success while the API server is away")
		r.hook = nil
		r.refuse = func(*v1alpha1.WorkflowRun) error { return apierrors.NewServiceUnavailable("away") }
		r.pumpAll(ctx, 1)
		w.clock.Step(resultPatience)
		_, err := r.pass(ctx, run)
		Expect(err).To(HaveOccurred())
		Expect(r.Batches.Inbox.Waiting(run.UID)).To(BeEmpty(), "it is with NATS again, for a while")

		w.clock.Step(61 * time.Second)
		r.refuse = nil
		r.mustPass(ctx, run)
		Expect(stepOf(w.get(ctx, run), "a").Phase).To(Equal(v1alpha1.StepSucceeded))
		ends(ctx, r, run, v1alpha1.RunSucceeded)
	}, NodeTimeout(2*patience))

	It("is waited for a minute, not longer, and a cancel does not wait", func(ctx SpecContext) {
		w = newWorld(ctx)
		r := w.newReplica(ctx, "r")
		runs := []*v1alpha1.WorkflowRun{w.create(ctx, []v1alpha1.Step{thirty("a")}), w.create(ctx, []v1alpha1.Step{thirty("a")})}
		for _, run := range runs {
			r.inFlight(ctx, run, 1)
		}
		r.hook = failing("answers/before")
		w.clock.Step(40 * time.Second)
		for _, run := range runs {
			r.mustPass(ctx, run)
			Expect(stepOf(w.get(ctx, run), "a").Phase).To(Equal(v1alpha1.StepDispatched))
		}
		w.patch(ctx, runs[1], `{"spec":{"shutdown":"Cancel"}}`)
		w.clock.Step(time.Second)
		r.mustPass(ctx, runs[1])
		Expect(w.get(ctx, runs[1]).Status.Phase).To(Equal(v1alpha1.RunCancelled))
		w.clock.Step(time.Minute)
		r.mustPass(ctx, runs[0])
		end := w.get(ctx, runs[0])
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunFailed))
		Expect(stepOf(end, "a").Error.Message).To(ContainSubstring(errTest.Error()))
	}, NodeTimeout(2*patience))

	It("that the API server refuses is not tried all the time", func(ctx SpecContext) {
		w = newWorld(ctx)
		w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{Delivery: v1alpha1.DeliveryPolicy{MaxDeliveries: 2, MaxDelaySeconds: 1}})
		first := w.newReplica(ctx, "first")
		run := w.create(ctx, []v1alpha1.Step{thirty("a")})
		tasks := underWay(ctx, first, run, 1)
		first.kill(ctx)
		tasks[0].succeed(ctx)
		w.clock.Step(40 * time.Second)
		next := takeOver(ctx, first, run)
		next.refuse = refusing("a", 1)
		next.mustPass(ctx, run)
		asked := next.countPlace("answers/before")
		next.mustPass(ctx, run)
		Expect(asked()).To(BeZero(), "it waits before it asks again")
		for range 2 { // deliveries, which count
			next.pumpAll(ctx, 1)
			w.clock.Step(2 * time.Second)
			next.mustPass(ctx, run)
		}
		w.clock.Step(2 * time.Second)
		next.mustPass(ctx, run)
		Expect(w.deadLetters(ctx)).To(HaveLen(1))
		Expect(stepOf(w.get(ctx, run), "a").Error.Code).To(Equal(facts.CodeTimeout))
	}, NodeTimeout(2*patience))
})
