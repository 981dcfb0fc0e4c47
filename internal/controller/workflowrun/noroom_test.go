// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
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
})
