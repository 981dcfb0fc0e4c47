// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"errors"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

// Mutations that make the spec below fail:
//   - reconciler.go Reconcile without needsNewer: the lock is asked for, and the run
//     ends as Cancelled.
//   - newer.go leaveToNewer that leaves results in the inbox: none is given back.
//   - newer.go leaveToNewer without toldNewer: people are told with each pass.
//   - gc.go obsolete without its look at NeedsNewer: the job of step b is taken back.
var _ = Describe("a run that a newer operator wrote", func() {
	It("is left alone: no lock, no write, its jobs and results stay with NATS, and people are told once", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "old")
		r.registry.MustRegister(results.NewPhaseCounts(r.Index, r.Driven.Drives))
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b")})
		r.inFlight(ctx, run, 2)
		tasks := w.takeAll(ctx, 2)
		t := tasks[slices.IndexFunc(tasks, func(t *task) bool { return t.id.Step == "a" })]
		Expect(w.get(ctx, run).Status.MinWriterVersion).To(Equal(v1alpha1.OldestVersion))
		newer := w.get(ctx, run)
		newer.Status.MinWriterVersion = v1alpha1.WriterVersion + 1
		*newer.Status.Fence++
		b := &newer.Status.Steps[1] // as far as the old one can tell nobody waits for it
		b.Phase, b.CompletedAt, newer.Status.Progress = v1alpha1.StepSkipped, b.DispatchedAt, "1/2"
		body, err := encoded(newer)
		Expect(err).NotTo(HaveOccurred())
		Expect(suite.statuses.Put(ctx, newer, body, len(body))).To(Succeed())

		r.request = func(*lockmgr.Request) { w.violation("the lock was asked for") }
		t.succeed(ctx)
		until(ctx, "its result is given back", func() bool {
			r.turn(ctx, run)
			return len(w.settledWith(run)) > 0
		})
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		for range 3 {
			r.turn(ctx, run)
		}
		back := w.settledWith(run)[0].err
		var classed interface{ RetryClass() string }
		Expect(errors.As(back, &classed)).To(BeTrue(), fmt.Sprint(back))
		Expect(busresults.CountsAsFailure(classed.RetryClass())).To(BeFalse())
		Expect(results.AsksFor(back)).To(And(BeNumerically(">=", 24*time.Second), BeNumerically("<=", 36*time.Second)))
		now := w.get(ctx, run)
		Expect(now.Status).To(Equal(newer.Status))
		Expect(r.recorder.count("Warning NeedsNewerOperator")).To(Equal(1))
		Expect(r.counter("syncopate_runs_need_newer")).To(BeEquivalentTo(1))
		Expect(r.GC.Round(ctx)).To(Succeed())
		Expect(w.jobsQueued(ctx)).To(Equal(1), "the one that the worker has not done")
	}, NodeTimeout(2*patience))
})
