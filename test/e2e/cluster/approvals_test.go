// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// approval is the manifest of a decision about this very run, as the plugin makes it,
// in somebody's name.
func (w *world) approval(ctx context.Context, run, step, approver string) string {
	GinkgoHelper()
	return fmt.Sprintf(`
apiVersion: syncopate.dev/v1alpha1
kind: StepApproval
metadata: {namespace: %s, generateName: %s-%s-}
spec: {run: %s, runUID: %s, step: %s, decision: Approve, approver: %q, comment: "well done"}
`, w.namespace, run, step, run, w.get(ctx, run).UID, step, approver)
}

// mutation: an overlay without config/approval lets alice sign as carol; a syncopate-edit with
// stepapprovals lets bob approve.
func approvalStories() {
	It("an approval is given by who may approve, in nobody else's name", func(ctx context.Context) {
		w := newWorld(ctx, 5)
		bind := func(user, role string) {
			GinkgoHelper()
			kubectl(ctx, "-n", w.namespace, "create", "rolebinding", user+"-"+role, "--clusterrole="+role, "--user="+user)
		}
		bind("alice", "syncopate-approve")
		bind("bob", "edit") // the cluster's own role, into which syncopate-edit is aggregated
		bind("dora", "view")

		manifest := fmt.Sprintf(`
apiVersion: syncopate.dev/v1alpha1
kind: WorkflowRun
metadata: {namespace: %s, name: release}
spec:
  workloadClass: %s
  steps:
  - {name: review, approval: {message: "release it?"}}
  - {name: publish, dependsOn: [review], job: {topic: demo.echo, input: {by: "${steps.review.approval.approver}"}}}
`, w.namespace, w.namespace)
		Eventually(func() (string, error) { return try(ctx, manifest, "kubectl", "create", "-f", "-", "--as=bob") }).
			WithContext(ctx).WithPolling(listInterval).Should(ContainSubstring("created")) // aggregation takes a moment
		Eventually(w.reason(ctx, "release")).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonWaitingForApproval))

		By("being refused to who may run workflows, and to who may look at them")
		Expect(refused(ctx, w.approval(ctx, "release", "review", "bob"), "create", "-f", "-", "--as=bob")).To(ContainSubstring("stepapprovals.syncopate.dev is forbidden"))
		Expect(refused(ctx, w.approval(ctx, "release", "review", "dora"), "create", "-f", "-", "--as=dora")).To(ContainSubstring("forbidden"))
		By("being refused in another's name")
		Expect(refused(ctx, w.approval(ctx, "release", "review", "carol"), "create", "-f", "-", "--as=alice")).To(
			ContainSubstring("spec.approver must be the user who creates the decision: it is 'carol', and the user is 'alice'"))
		Consistently(w.reason(ctx, "release")).WithContext(ctx).WithTimeout(quietPeriod).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonWaitingForApproval))
		Expect(kubectl(ctx, "-n", w.namespace, "get", "stepapprovals", "-o", "name")).To(BeEmpty())

		By("being given by who may")
		create(ctx, w.approval(ctx, "release", "review", "alice"), "--as=alice")
		kubectl(ctx, "-n", w.namespace, "wait", "--for=condition=Succeeded", waitFlag, "wfr/release")
		Expect(kubectl(ctx, "-n", w.namespace, "get", "wfr", "release", "-o", "jsonpath={.status.steps[1].output.by}", "--as=dora")).To(Equal("alice"))
		Expect(w.get(ctx, "release").Status.Steps[0].Approval).To(HaveField("Comment", "well done"))

		By("being there for good")
		name := kubectl(ctx, "-n", w.namespace, "get", "stepapprovals", "-o", "name")
		Expect(refused(ctx, "", "-n", w.namespace, "delete", name[:len(name)-1], "--as=alice")).To(ContainSubstring("forbidden"))
	}, SpecTimeout(specTimeout))
}
