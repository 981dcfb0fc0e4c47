// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

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

var _ = Describe("one step with 1,000 items", func() {
	It("costs at most 60 status writes and 60 lock takes, with a status below 32 KiB, and dispatches no attempt twice", func(ctx context.Context) {
		w := newWorld(ctx)
		m := w.startManager(ctx, "only")
		w.startWorker(ctx, 64, echo, "items.work")
		begin := time.Now()
		largest := w.fanOut(ctx, "items.work", 1000, 1000)
		took := sinceStart(begin)
		w.expectEachOnce(1000)
		families := scrape(ctx, m)
		writes := counter(families, "syncopate_status_writes_total", "accepted")
		takes := counter(families, "syncopate_run_lock_acquisitions_total", "acquired")
		AddReportEntry("1,000 items", fmt.Sprintf("%s, %.0f status writes, %.0f lock takes, status at most %d bytes", took, writes, takes, largest))
		Expect(writes).To(BeNumerically("<=", 60))
		Expect(takes).To(BeNumerically("<=", 60))
		Expect(largest).To(BeNumerically("<", 32<<10))
	}, NodeTimeout(specTimeout))

	It("loses none though the operator is killed and restarted in the middle", func(ctx context.Context) {
		w := newWorld(ctx)
		first := w.startManager(ctx, "first")
		w.startWorker(ctx, 8, echo, "items.work")
		done := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(done)
			w.fanOut(ctx, "items.work", 600, 100)
		}()
		w.atLeastDone(ctx, 200)
		Expect(first.Kill()).To(Succeed())
		w.startManager(ctx, "second", "--leader-elect=false")
		Eventually(done).WithContext(ctx).WithPolling(pollInterval).Should(BeClosed())
		w.expectEachOnce(600)
	}, NodeTimeout(specTimeout))
})

// fanOut runs one step for some items to its end, and returns the largest size of its status
// that was seen.
func (w *world) fanOut(ctx context.Context, topic string, items int, parallel int32) (largest int) {
	GinkgoHelper()
	list, err := json.Marshal(map[string]any{"list": make([]int, items)})
	Expect(err).NotTo(HaveOccurred())
	w.create(ctx, 1, v1alpha1.WorkflowRunSpec{
		Inputs: &runtime.RawExtension{Raw: list},
		Steps: []v1alpha1.Step{{
			Name: "all", ForEach: &v1alpha1.ForEach{Items: "${inputs.list}", MaxParallel: parallel},
			Job: &v1alpha1.Job{Topic: topic, Input: &runtime.RawExtension{Raw: []byte(`{"n":"${item}"}`)}},
		}},
	})
	Eventually(func() v1alpha1.RunPhase {
		run := &w.runs(ctx)[0]
		if run.Unwritten() {
			return ""
		}
		text, err := json.Marshal(run.Status)
		Expect(err).NotTo(HaveOccurred())
		largest = max(largest, len(text))
		return run.Status.Phase
	}).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.RunSucceeded))
	Expect(w.runs(ctx)[0].Status.Steps[0].ForEach.Succeeded).To(BeEquivalentTo(items))
	return largest
}
