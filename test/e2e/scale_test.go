package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// manyRuns is the number of runs submitted at once.
const manyRuns = 1000

func echo(_ context.Context, job worker.Job) (any, error) { return job.Input, nil }

// atLeastDone waits until n jobs were run.
func (w *world) atLeastDone(ctx context.Context, n int) {
	GinkgoHelper()
	Eventually(func() int { return len(w.executions()) }).WithContext(ctx).WithPolling(pollInterval).Should(BeNumerically(">=", n))
}

var _ = Describe("1,000 runs submitted at once", func() {
	It("finish, each job run once, though the operator is killed and restarted in the middle", func(ctx context.Context) {
		w := newWorld(ctx)
		first := w.startManager(ctx, "first")
		w.startWorker(ctx, 32, echo, "scale.work")
		begin := time.Now()
		w.create(ctx, manyRuns, singleStep("scale.work"))
		w.atLeastDone(ctx, manyRuns/3)
		Expect(first.Kill()).To(Succeed())
		fmt.Fprintf(GinkgoWriter, "killed after %d of %d jobs\n", len(w.executions()), manyRuns)
		w.startManager(ctx, "second")
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, manyRuns)
		AddReportEntry("1,000 runs with SIGKILL of the operator", sinceStart(begin).String())
		w.expectEachOnce(manyRuns)
	}, NodeTimeout(specTimeout))

	It("finish, each job run once, though the nats-server is restarted in the middle", func(ctx context.Context) {
		w := newWorld(ctx)
		w.startManager(ctx, "only")
		w.startWorker(ctx, 32, echo, "scale.work")
		begin := time.Now()
		w.create(ctx, manyRuns, singleStep("scale.work"))
		w.atLeastDone(ctx, manyRuns/3)
		Expect(env.NATS.Restart()).To(Succeed())
		fmt.Fprintf(GinkgoWriter, "restarted after %d of %d jobs\n", len(w.executions()), manyRuns)
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, manyRuns)
		AddReportEntry("1,000 runs with restart of the nats-server", sinceStart(begin).String())
		w.expectEachOnce(manyRuns)
	}, NodeTimeout(specTimeout))
})

var _ = Describe("one run with 100 parallel steps", func() {
	It("costs at most 20 status writes and 20 lock takes, and dispatches no attempt twice", func(ctx context.Context) {
		const width = 100
		w := newWorld(ctx)
		m := w.startManager(ctx, "only")
		w.startWorker(ctx, width, echo, "wide.work")
		spec := v1alpha1.WorkflowRunSpec{MaxParallelSteps: width}
		for i := range width {
			spec.Steps = append(spec.Steps, v1alpha1.Step{Name: fmt.Sprintf("s-%03d", i), Job: &v1alpha1.Job{Topic: "wide.work"}})
		}
		begin := time.Now()
		w.create(ctx, 1, spec)
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 1)
		took := sinceStart(begin)
		w.expectEachOnce(width)

		families := scrape(ctx, m)
		writes := counter(families, "syncopate_status_writes_total", "accepted")
		takes := counter(families, "syncopate_run_lock_acquisitions_total", "acquired")
		hold := families["syncopate_run_lock_hold_seconds"].GetMetric()
		Expect(hold).NotTo(BeEmpty())
		h := hold[0].GetHistogram()
		AddReportEntry("100 parallel steps", fmt.Sprintf("%s, %.0f status writes, %.0f lock takes, lock in use %d times for %.1f ms on average",
			took, writes, takes, h.GetSampleCount(), 1000*h.GetSampleSum()/float64(h.GetSampleCount())))
		Expect(writes).To(BeNumerically("<=", 20))
		Expect(takes).To(BeNumerically("<=", 20))
	}, NodeTimeout(specTimeout))
})
