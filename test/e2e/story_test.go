// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// kubectl runs the kubectl that came with the API server and returns what it prints.
func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join(root, "bin", "k8s")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(assets, "kubectl"), append([]string{"--kubeconfig", env.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	AddReportEntry("kubectl "+strings.Join(args, " "), "\n"+string(out))
	return string(out)
}

var _ = Describe("a user with kubectl", func() {
	It("applies the samples, waits for them, and reads what happened", func(ctx context.Context) {
		m, err := env.StartManager(ctx, binary, "story")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(m.Kill)
		dir := GinkgoT().TempDir()
		build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "worker"), "./examples/worker-go")
		build.Dir = root
		out, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		worker, err := env.StartProcess(filepath.Join(dir, "worker"), "story-worker", "NATS_URL="+env.NATS.URL())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(worker.Kill)
		DeferCleanup(func(ctx context.Context) {
			Expect(k8s.DeleteAllOf(ctx, &v1alpha1.WorkflowRun{}, client.InNamespace("default"))).To(Succeed())
			Expect(k8s.DeleteAllOf(ctx, &v1alpha1.LockPolicy{})).To(Succeed())
			Expect(k8s.DeleteAllOf(ctx, &v1alpha1.Semaphore{})).To(Succeed())
		})

		kubectl(ctx, "apply", "-f", filepath.Join(root, "config", "samples"))
		kubectl(ctx, "wait", "--for=condition=Finished", "--timeout=60s", "wfr/linear", "wfr/diamond", "wfr/flaky", "wfr/clean-up")
		kubectl(ctx, "wait", `--for=jsonpath={.status.conditions[?(@.type=="Succeeded")].reason}=WaitingForApproval`, "--timeout=60s", "wfr/sign-off")
		kubectl(ctx, "wait", "--for=condition=Succeeded", "--timeout=60s", "wfr/linear")
		kubectl(ctx, "wait", "--for=jsonpath={.status.steps[0].phase}=Running", "--timeout=60s", "wfr/cancelled")
		kubectl(ctx, "patch", "wfr/cancelled", "--type=merge", "-p", `{"spec":{"shutdown":"Cancel"}}`)
		kubectl(ctx, "wait", "--for=jsonpath={.status.phase}=Cancelled", "--timeout=60s", "wfr/cancelled")

		wide := kubectl(ctx, "get", "wfr", "-o", "wide")
		for _, word := range []string{"PHASE", "STEPS", "TENANT", "CLASS", "REASON", "FENCE", "POLICY", "HOLDER", "MESSAGE", "Cancelled", "Succeeded", "story"} {
			Expect(wide).To(ContainSubstring(word))
		}
		succeeded := kubectl(ctx, "get", "wfr", "--field-selector", "status.phase=Succeeded")
		Expect(succeeded).To(And(ContainSubstring("linear"), ContainSubstring("diamond"), ContainSubstring("flaky"), Not(ContainSubstring("cancelled"))))
		Expect(kubectl(ctx, "get", "wfr", "--field-selector", "status.tenant=default,spec.workloadClass=default")).To(ContainSubstring("linear"))
		story := kubectl(ctx, "describe", "wfr", "flaky")
		for _, word := range []string{"StepBackingOff", "2 of 2 steps succeeded", "Attempt:", "Admitted"} {
			Expect(story).To(ContainSubstring(word))
		}
		Expect(kubectl(ctx, "get", "lockpol")).To(ContainSubstring("True"))
		kubectl(ctx, "wait", "--for=condition=Succeeded", "--timeout=60s", "wfr/limits-one", "wfr/limits-two")
		Expect(kubectl(ctx, "get", "sem", "-o", "wide")).To(And(ContainSubstring("test-licences"), ContainSubstring("HELD"), ContainSubstring("BUSIEST")))
	}, NodeTimeout(specTimeout))
})
