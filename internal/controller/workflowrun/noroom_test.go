// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/liveness"
)

// Mutations that make this fail: an input without NoRoom; noteRoom that forgets it while attempts
// lack, or that does not forget it when they are out.
var _ = Describe("NATS that is full", func() {
	It("is told by the run whose job it refuses, once, and holds up no result of another", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		other := w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, other, 1)

		full := &bus.RetryError{Class: bus.ClassPublishFailed, Delay: 5 * time.Second, Err: fmt.Errorf("publish job: %w", bus.ErrNoRoom)}
		r.hook = func(_ context.Context, place string) error {
			if place == "publish/before" || place == "recover/before" {
				return full
			}
			return nil
		}
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		told := r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return !now.Unwritten() && reasonOf(now, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonWaitingForRoom
		})
		Expect(messageOf(told, v1alpha1.ConditionSucceeded)).To(HavePrefix("NATS has no room since "))
		Expect(r.recorder.count(dispatched)).To(Equal(1), "that of the other run")
		for range 3 {
			r.turn(ctx, run)
		}
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(told.ResourceVersion), "it is told once")
		r.finish(ctx, other)

		r.hook = nil
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return reasonOf(now, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonRunning && r.recorder.count(dispatched) == 2
		})
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))

	// mutation: noteRoom that does not ask what outputs lack makes this fail.
	It("is told by the run whose output it has no room for", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, run, 1)
		r.hook = func(_ context.Context, place string) error {
			if place == "store/before" {
				return fmt.Errorf("store output: %w", bus.ErrNoRoom)
			}
			return nil
		}
		for _, t := range w.takeAll(ctx, 1) {
			t.say(ctx, `{"status":"Succeeded","output":`+large(40<<10)+`}`)
			Expect(t.msg.DoubleAck(ctx)).To(Succeed())
		}
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return reasonOf(now, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonWaitingForRoom
		})
		r.hook = nil
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))

	// mutation: noteRoom that takes it for room that nothing lacks makes this fail.
	It("is told once, also where a refused output was given back meanwhile", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b"), step("c")})
		r.inFlight(ctx, run, 3)
		r.hook = func(_ context.Context, place string) error {
			if place == "store/before" {
				return fmt.Errorf("store output: %w", bus.ErrNoRoom)
			}
			return nil
		}
		tasks := map[string]*task{}
		for _, t := range w.takeAll(ctx, 3) {
			tasks[t.id.Step] = t
		}
		answer := func(step, body string) {
			tasks[step].say(ctx, body)
			Expect(tasks[step].msg.DoubleAck(ctx)).To(Succeed())
		}
		answer("a", `{"status":"Succeeded","output":`+large(40<<10)+`}`)
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return reasonOf(now, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonWaitingForRoom
		})
		until(ctx, "the output is given back", func() bool {
			w.clock.Step(resultPatience)
			r.mustPass(ctx, run)
			return r.Batches.Inbox.Backlog().Results == 0
		})
		var reasons []string
		r.refuse = func(now *v1alpha1.WorkflowRun) error {
			reasons = append(reasons, reasonOf(now, v1alpha1.ConditionSucceeded))
			return nil
		}
		answer("b", `{"status":"Succeeded"}`)
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return stepOf(now, "b").Phase == v1alpha1.StepSucceeded })
		for range 3 {
			r.turn(ctx, run)
		}
		Expect(reasons).To(HaveEach(v1alpha1.ReasonWaitingForRoom))
		r.hook, r.refuse = nil, nil
		answer("c", `{"status":"Succeeded"}`)
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))

	// mutation: noteRoom that waits until nothing lacks makes this fail.
	It("is over once it refuses nothing, though a job waits for something else", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b")})
		var room, taken atomic.Bool
		r.hook = func(_ context.Context, place string) error {
			switch {
			case place != "publish/before" && place != "recover/before":
				return nil
			case !room.Load():
				return fmt.Errorf("publish job: %w", bus.ErrNoRoom)
			case taken.Swap(true):
				return jobs.ErrRecentlyGone
			default:
				return nil
			}
		}
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return !now.Unwritten() && reasonOf(now, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonWaitingForRoom
		})
		room.Store(true)
		for range 10 {
			r.turn(ctx, run)
		}
		Expect(reasonOf(w.get(ctx, run), v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonRunning))
		r.hook = nil
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))

	// mutation: a pass without seedRoom makes this fail.
	It("is told in the same words by the next owner of a run", func(ctx SpecContext) {
		w := newWorld(ctx)
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		full := func(_ context.Context, place string) error {
			if place == "publish/before" || place == "recover/before" {
				return fmt.Errorf("publish job: %w", bus.ErrNoRoom)
			}
			return nil
		}
		a.hook, b.hook = full, full
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		told := a.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return !now.Unwritten() && reasonOf(now, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonWaitingForRoom
		})
		a.kill(ctx)
		w.redis.FlushAll() // its lock is over
		w.clock.Step(time.Minute)
		var said []string
		b.refuse = func(now *v1alpha1.WorkflowRun) error {
			said = append(said, messageOf(now, v1alpha1.ConditionSucceeded))
			return nil
		}
		b.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Lock.Holder == "b" })
		for range 3 {
			b.turn(ctx, run)
		}
		words, _, _ := strings.Cut(messageOf(told, v1alpha1.ConditionSucceeded), ";")
		Expect(said).NotTo(BeEmpty())
		Expect(said).To(HaveEach(HavePrefix(words + ";")))
		b.hook, b.refuse = nil, nil
		b.finish(ctx, run)
	}, NodeTimeout(2*patience))

	// mutation: unfenced without noteRoom makes this fail.
	It("is told with the first write of a new owner who could not fence", func(ctx SpecContext) {
		w := newWorld(ctx)
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		a.inFlight(ctx, run, 1)
		a.kill(ctx)
		w.redis.FlushAll() // its lock is over
		w.clock.Step(time.Minute)
		fenced := false
		b.hook = func(_ context.Context, place string) error {
			switch place {
			case "fence/before":
				fenced = true
				return fmt.Errorf("fence job: %w", bus.ErrNoRoom)
			case "publish/before", "recover/before", "find/before":
				return fmt.Errorf("publish job: %w", bus.ErrNoRoom)
			default:
				return nil
			}
		}
		told := b.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Lock.Holder == "b" })
		Expect(fenced).To(BeTrue())
		Expect(reasonOf(told, v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonWaitingForRoom))
		b.hook = nil
		b.finish(ctx, run)
	}, NodeTimeout(2*patience))

	// mutations: a gate that takes it for another failure; workersOf that blames workers.
	It("with topics tells that a topic has no consumer, and blames no workers", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		r.Liveness = &knownWorkers{state: map[string]liveness.State{topic: {Kind: liveness.NoConsumer, Since: w.clock.Now()}}}
		r.hook = func(_ context.Context, place string) error {
			if place == "publish/before" || place == "recover/before" {
				return fmt.Errorf("publish job: %w", jobs.ErrTooManyTopics)
			}
			return nil
		}
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		told := r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return !now.Unwritten() && reasonOf(now, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonWaitingForRoom
		})
		Expect(messageOf(told, v1alpha1.ConditionSucceeded)).To(And(
			HavePrefix("NATS has no consumer for another topic since "), ContainSubstring("(--nats-max-topics, or a limit of NATS)"),
			ContainSubstring("topic "+topic+" has no consumer in NATS"), Not(ContainSubstring("nobody pulls")),
		))
		r.hook, r.Liveness = nil, &knownWorkers{}
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))
})
