// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// dispatched is the step event that says that an attempt goes to its topic.
const dispatched = "Normal StepDispatched"

var errNoNATS = errors.New("NATS does not answer")

// Mutations that make this fail: an input without the outage; an event for a dispatch before its
// PubAck; one that is not made up for.
var _ = Describe("NATS that does not answer", func() {
	It("is told by the run, and no event says that an attempt goes out which did not", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, twoSteps())
		r.hook = func(_ context.Context, place string) error {
			if place == "publish/before" || place == "recover/before" {
				r.outage = w.clock.Now() // as the bus notices while a publish hangs
				return errNoNATS
			}
			return nil
		}
		told := r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return !now.Unwritten() && reasonOf(now, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonWaitingForNATS
		})
		Expect(stepOf(told, "a").Phase).To(Equal(v1alpha1.StepDispatched))
		Expect(r.recorder.count(dispatched)).To(BeZero())
		for range 3 {
			r.turn(ctx, run)
		}
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(told.ResourceVersion), "it is told once")

		r.hook, r.outage = nil, time.Time{}
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return reasonOf(now, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonRunning && r.recorder.count(dispatched) == 1
		})
		r.finish(ctx, run)
		Expect(r.recorder.count(dispatched)).To(Equal(2), "one for each step")
	}, NodeTimeout(2*patience))
})
