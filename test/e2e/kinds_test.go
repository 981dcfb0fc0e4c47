// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func (w *world) succeededReason(ctx context.Context, name string) func() string {
	return func() string {
		run := w.get(ctx, name)
		if run.Unwritten() {
			return ""
		}
		if c := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
			return c.Reason
		}
		return ""
	}
}

// unlocked waits until nobody has the lock of a run: one that dies with it keeps the run waiting
// until the lock runs out.
func (w *world) unlocked(ctx context.Context, name string) {
	GinkgoHelper()
	uid := string(w.get(ctx, name).UID)
	Eventually(func() int64 { return lockStore().Exists(ctx, "{run:"+uid+"}:lock").Val() }).WithContext(ctx).WithPolling(pollInterval).Should(BeZero())
}

var _ = Describe("steps that are no jobs", func() {
	It("wait for a decision that a user makes with the plugin, and for a time, also when the operator dies meanwhile", func(ctx context.Context) {
		w := newWorld(ctx)
		p := w.buildPlugin(ctx)
		w.startWorker(ctx, 4, echo, "kinds.work")
		m := w.startManager(ctx, "first")
		spec := v1alpha1.WorkflowRunSpec{
			Steps: []v1alpha1.Step{
				{Name: "draft", Job: &v1alpha1.Job{Topic: "kinds.work"}},
				{Name: "review", DependsOn: []string{"draft"}, Approval: &v1alpha1.Approval{Message: "publish?"}},
				{Name: "cool-down", DependsOn: []string{"review"}, Delay: &v1alpha1.Delay{Seconds: new(int32(5))}},
				{Name: "publish", DependsOn: []string{"cool-down"}, Job: &v1alpha1.Job{Topic: "kinds.work", Input: &runtime.RawExtension{
					Raw: []byte(`{"by": "${steps.review.approval.approver}"}`),
				}}},
			},
			Finally: []v1alpha1.Step{{Name: "notify", Job: &v1alpha1.Job{Topic: "kinds.work"}}},
			Outputs: &runtime.RawExtension{Raw: []byte(`{"by": "${steps.publish.output.by}", "to": "${steps.review.output.to}"}`)},
		}
		w.create(ctx, 1, spec)
		name := w.runs(ctx)[0].Name
		Eventually(w.succeededReason(ctx, name)).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonWaitingForApproval))
		w.unlocked(ctx, name)
		Expect(m.Kill()).To(Succeed())
		p.call(ctx, "approve", name, "review", "-n", w.namespace, "--comment", "well done", "--output", `{"to":"all"}`, "--wait", "0s")
		m = w.startManager(ctx, "second", "--leader-elect=false")
		Eventually(w.succeededReason(ctx, name)).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonDelayed))
		w.unlocked(ctx, name)
		Expect(m.Kill()).To(Succeed())
		w.startManager(ctx, "third", "--leader-elect=false")
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 1)
		run := w.get(ctx, name)
		Expect(string(run.Status.Outputs.Raw)).To(MatchJSON(fmt.Sprintf(`{"by":%q,"to":"all"}`, run.Status.Steps[1].Approval.Approver)))
		delay := run.Status.Steps[2]
		late := delay.CompletedAt.Sub(delay.DelayedUntil.Time)
		AddReportEntry("a delay of 5 s over a restart ended late by", late)
		Expect(late).To(And(BeNumerically(">=", 0), BeNumerically("<", 10*time.Second)))
		w.expectEachOnce(3)
	}, NodeTimeout(specTimeout))

	It("end on time", func(ctx context.Context) {
		w := newWorld(ctx)
		w.startManager(ctx, "only")
		w.create(ctx, 20, v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{{Name: "d", Delay: &v1alpha1.Delay{Seconds: new(int32(2))}}}})
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 20)
		worst := time.Duration(0)
		for _, run := range w.runs(ctx) {
			worst = max(worst, run.Status.Steps[0].CompletedAt.Sub(run.Status.Steps[0].DelayedUntil.Time))
			Expect(run.Status.Steps[0].CompletedAt.Time).NotTo(BeTemporally("<", run.Status.Steps[0].DelayedUntil.Time))
		}
		AddReportEntry("20 delays of 2 s ended late by at most", worst)
		Expect(worst).To(BeNumerically("<", 10*time.Second))
	}, NodeTimeout(specTimeout))
})

var _ = Describe("a topic", func() {
	It("without workers is told, and told no more when they come", func(ctx context.Context) {
		w := newWorld(ctx)
		w.startManager(ctx, "only")
		begin := time.Now()
		w.create(ctx, 3, singleStep("kinds.nobody"))
		for _, run := range w.runs(ctx) {
			Eventually(w.succeededReason(ctx, run.Name)).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonWaitingForWorkers))
		}
		AddReportEntry("that nobody pulls was told after", time.Since(begin))
		Expect(time.Since(begin)).To(BeNumerically("<", 100*time.Second))
		w.startWorker(ctx, 4, echo, "kinds.nobody")
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 3)
	}, NodeTimeout(specTimeout))
})
