// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
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

	// mutation: effectsAgain that logs each time makes this fail.
	It("is in the log once for each cause, and not in each pass of a run that has jobs to take back", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.inFlight(ctx, run, 2)
		cause := errNoNATS
		r.hook = func(_ context.Context, place string) error {
			if place == "withdraw/before" {
				return &results.RetryError{After: time.Second, Cause: cause}
			}
			return nil
		}
		var lines []string
		logger := funcr.New(func(_, args string) {
			if strings.Contains(args, "Effects are tried again") {
				lines = append(lines, args)
			}
		}, funcr.Options{})
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		r.drive(ctx, run, lifecycle.Finished)
		passes := func() {
			GinkgoHelper()
			for range 3 {
				result, err := r.Reconcile(log.IntoContext(ctx, logger), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(run)})
				Expect(err).NotTo(HaveOccurred())
				Expect(result.RequeueAfter).To(Equal(time.Second))
			}
		}
		passes()
		Expect(lines).To(BeEmpty(), "it was told when the run ended")
		cause = errTest
		passes()
		Expect(lines).To(ConsistOf(ContainSubstring(errTest.Error())))
		r.hook = nil
		until(ctx, "the jobs are taken back", func() bool {
			r.turn(ctx, run)
			return w.jobsQueued(ctx) == 0
		})
	}, NodeTimeout(2*patience))
})
