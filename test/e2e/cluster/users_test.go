// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func userStories() {
	It("a user applies the samples, waits for them, and reads what happened, as the README says", func(ctx context.Context) {
		w := newWorld(ctx, 1)
		in := func(args ...string) string {
			GinkgoHelper()
			return kubectl(ctx, append([]string{"-n", w.namespace}, args...)...)
		}
		in("apply", "-f", "config/samples/")
		DeferCleanup(func(ctx context.Context) {
			kubectl(ctx, "-n", w.namespace, "delete", "--ignore-not-found", "-f", "config/samples/")
		}, NodeTimeout(specTimeout))
		in("wait", "--for=condition=Finished", waitFlag, "wfr/linear", "wfr/diamond", "wfr/flaky", "wfr/clean-up", "wfr/fan-out", "wfr/child-run")
		in("wait", "--for=condition=Succeeded", waitFlag, "wfr/linear")
		in("wait", "--for=jsonpath={.status.steps[0].phase}=Running", waitFlag, "wfr/cancelled")
		in("patch", "wfr/cancelled", "--type=merge", "-p", `{"spec":{"shutdown":"Cancel"}}`)
		in("wait", "--for=jsonpath={.status.phase}=Cancelled", waitFlag, "wfr/cancelled")

		Expect(in("get", "wfr", "-o", "wide")).To(And(
			ContainSubstring("PHASE"), ContainSubstring("REASON"), ContainSubstring("HOLDER"), ContainSubstring("Cancelled"), ContainSubstring("Succeeded")))
		Expect(in("get", "wfr", "--field-selector", "status.phase=Succeeded")).To(And(
			ContainSubstring("linear"), ContainSubstring("diamond"), ContainSubstring("flaky"), ContainSubstring("clean-up"), Not(ContainSubstring("cancelled"))))
		// Events are written beside the status, so they may come later than it.
		Eventually(func() string { return in("describe", "wfr", "flaky") }).WithContext(ctx).WithPolling(listInterval).Should(And(
			ContainSubstring("Attempt:"), ContainSubstring("Events:"), ContainSubstring("StepBackingOff"), ContainSubstring("2 of 2 steps succeeded"), Not(ContainSubstring("StepSucceeded"))))
		Expect(in("get", "wfr", "linear", "-o", "jsonpath={.status.steps[-1].output}")).To(MatchJSON(`{"text":"About storage engines (3 pages)"}`))
		Expect(in("get", "lockpol", "-o", "wide")).To(And(ContainSubstring("payments"), ContainSubstring("True")))
		expectNoCrash(ctx)
	}, SpecTimeout(specTimeout))

	It("a user whose spec makes no sense is told so at apply", func(ctx context.Context) {
		w := newWorld(ctx, 1)
		out := refused(ctx, `
apiVersion: syncopate.dev/v1alpha1
kind: WorkflowRun
metadata: {name: circle}
spec:
  steps:
  - {name: a, job: {topic: demo.echo}, delay: {seconds: 1}}
`, "-n", w.namespace, "create", "-f", "-")
		Expect(out).To(And(ContainSubstring("invalid"), ContainSubstring("spec.steps")))
	}, SpecTimeout(specTimeout))

	It("a run that is deleted takes with it what it owns", func(ctx context.Context) {
		w := newWorld(ctx, 1)
		w.create(ctx, 1, v1alpha1.Step{Name: "review", Approval: &v1alpha1.Approval{}}, w.child("publish", 60_000, "review"))
		Eventually(w.reason(ctx, "run-000")).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonWaitingForApproval))
		create(ctx, w.approval(ctx, "run-000", "review", whoami(ctx)))
		w.begun(ctx, 1)
		owned := func() string { return kubectl(ctx, "-n", w.namespace, "get", "wfr,stepapprovals", "-o", "name") }
		Expect(strings.Fields(owned())).To(HaveLen(3), "the run, its child and the decision")

		kubectl(ctx, "-n", w.namespace, "delete", "wfr", "run-000", waitFlag)
		err := k8s.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "run-000"}, &v1alpha1.WorkflowRun{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		Eventually(owned).WithContext(ctx).WithPolling(listInterval).Should(BeEmpty())
		// Its place is free, though it was under way: the next one is let in.
		w.create(ctx, 1, w.job("work", 0))
		kubectl(ctx, "-n", w.namespace, "wait", "--for=condition=Succeeded", waitFlag, "wfr/run-001")
		_, done := readLedger(ctx, w.namespace)
		Expect(done).To(HaveLen(1))
		w.history.expectKept()
	}, SpecTimeout(specTimeout))
}

// whoami is the user of the suite, as the API server knows it.
func whoami(ctx context.Context) string {
	GinkgoHelper()
	return strings.TrimSpace(kubectl(ctx, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"))
}
