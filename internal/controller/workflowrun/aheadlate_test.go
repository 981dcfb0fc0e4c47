// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Mutations that make specs below fail: lifecycle applyResults without catchUp, and anyAnswerable
// that is anyInFlight.
var _ = Describe("an answer to a step that began ahead of status", func() {
	const deadline = 30 // seconds

	// answeredAhead is a chain of three whose status has the first step dispatched, or the second
	// one, as it happens. All are answered, and the operator is gone.
	answeredAhead := func(ctx context.Context, w *world) *v1alpha1.WorkflowRun {
		GinkgoHelper()
		w.coalesced(ctx)
		first := w.newReplica(ctx, "first")
		run := w.create(ctx, chainOf(3), func(s *v1alpha1.WorkflowRunSpec) { s.ActiveDeadlineSeconds = new(int32(deadline)) })
		first.inFlight(ctx, run, 1)
		first.rush(ctx, run, 3)
		Expect(first.lags(run)).To(BeTrue())
		w.work(ctx)
		first.kill(ctx)
		Expect(stepOf(w.get(ctx, run), "s2").Phase).To(BeElementOf(v1alpha1.StepDispatched, v1alpha1.StepPending))
		Expect(stepOf(w.get(ctx, run), "s3").Phase).To(Equal(v1alpha1.StepPending))
		w.clock.Step((deadline + 10) * time.Second)
		return run
	}
	succeeds := func(ctx context.Context, w *world, next *replica, run *v1alpha1.WorkflowRun) {
		GinkgoHelper()
		end := next.finish(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded), "%+v", end.Status.Steps)
		next.drained(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(3))
	}

	It("counts before the run's deadline does, for whoever takes over after it", func(ctx SpecContext) {
		w := newWorld(ctx)
		run := answeredAhead(ctx, w)
		w.dropLock(ctx, run)
		succeeds(ctx, w, w.newReplica(ctx, "next"), run)
	}, NodeTimeout(2*patience))

	It("counts before the run's deadline does, though its lock is not to be had", func(ctx SpecContext) {
		w := newWorld(ctx)
		run := answeredAhead(ctx, w)
		w.dropLock(ctx, run)
		w.takeLock(ctx, run)
		succeeds(ctx, w, w.newReplica(ctx, "next"), run)
	}, NodeTimeout(2*patience))
})
