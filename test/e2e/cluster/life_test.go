// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func lifeStories() {
	It("a namespace is deleted in the middle of runs, and its places at the tenant's gate come back", func(ctx context.Context) {
		const limit = 2
		w := newWorld(ctx, limit)
		doomed := namespaceNamed(w.namespace + "-doomed")
		doomed.Labels["syncopate.dev/tenant"] = w.namespace // the two namespaces share the limit
		Expect(k8s.Create(ctx, doomed)).To(Succeed())
		for i := range 4 {
			run := w.run(fmt.Sprintf("doomed-%d", i), w.job("long", 120_000))
			run.Namespace = doomed.Name
			Expect(k8s.Create(ctx, run)).To(Succeed())
		}
		Eventually(w.history.mostInside).WithContext(ctx).WithPolling(pollInterval).Should(Equal(limit))
		w.create(ctx, 3, w.job("work", jobMillis))
		Eventually(w.reason(ctx, "run-002")).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonQueued))

		begin := time.Now()
		Expect(k8s.Delete(ctx, doomed)).To(Succeed())
		gone(ctx, doomed)
		AddReportEntry("the namespace was gone after", since(begin))
		for i := range w.created {
			kubectl(ctx, "-n", w.namespace, "wait", "--for=condition=Succeeded", waitFlag, fmt.Sprintf("wfr/run-%03d", i))
		}
		AddReportEntry("the other namespace's runs were done after", since(begin))
		_, done := readLedger(ctx, w.namespace)
		Expect(done).To(HaveLen(3), "the jobs of the other namespace, and none of the deleted one")
		w.history.expectKept()
		expectNoCrash(ctx)
	}, SpecTimeout(specTimeout))

	It("the manifests of the last release are upgraded while runs wait for whatever runs wait for", func(ctx context.Context) {
		installLastRelease(ctx)
		w := newWorld(ctx, 4)
		review := v1alpha1.Step{Name: "review", Approval: &v1alpha1.Approval{}}
		w.create(ctx, 1, review, w.job("after", 0, "review"))                                                                       // for a decision
		w.create(ctx, 1, v1alpha1.Step{Name: "pause", Delay: &v1alpha1.Delay{Seconds: new(int32(40))}}, w.job("after", 0, "pause")) // for a time
		w.create(ctx, 1, w.job("long", 30_000), w.job("after", 0, "long"))
		w.create(ctx, 1, w.child("child", 30_000), w.job("after", 0, "child")) // for a worker
		Eventually(w.reason(ctx, "run-000")).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonWaitingForApproval))
		Eventually(w.reason(ctx, "run-001")).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonDelayed))
		Eventually(w.stepRuns(ctx, "run-002", 0)).WithContext(ctx).WithPolling(pollInterval).Should(BeTrue())
		w.begun(ctx, 2)                            // now all places are taken, and nothing that is quick got in between
		w.create(ctx, 6, w.job("work", jobMillis)) // for a place
		Eventually(w.reason(ctx, "run-009")).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonQueued))
		before := driver(ctx)

		kubectl(ctx, "apply", "--server-side", "-k", operatorOverlay(config.next, `
- target: {kind: Deployment, name: syncopate}
  patch: '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--max-concurrent-runs=8"}]'
`))
		operatorReady(ctx, operatorNS)
		runsMove(ctx, before)
		for _, pod := range operatorPods(ctx) {
			Expect(pod.Spec.Containers[0].Image).To(Equal(config.next))
		}
		Expect(w.reason(ctx, "run-000")()).To(Equal(v1alpha1.ReasonWaitingForApproval))
		create(ctx, w.approval(ctx, "run-000", "review", whoami(ctx)))
		w.nothingLostNothingTwice(ctx, 1+1+2*2+6)
		Expect(w.history.writers()).To(BeNumerically(">=", 2))
	}, SpecTimeout(specTimeout))
}

// begun waits until workers took so many jobs of the world.
func (w *world) begun(ctx context.Context, jobs int) {
	GinkgoHelper()
	Eventually(func() int {
		begun, _ := readLedger(ctx, w.namespace)
		return len(begun)
	}).WithContext(ctx).WithPolling(listInterval).Should(BeNumerically(">=", jobs))
}

// gone waits until an object is there no more.
func gone(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Eventually(func() bool {
		return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(object), object))
	}).WithContext(ctx).WithTimeout(goneTimeout).WithPolling(listInterval).Should(BeTrue())
}

// waitingRuns fills a world with runs in all the states in which runs stay.
func (w *world) waitingRuns(ctx context.Context) {
	GinkgoHelper()
	w.create(ctx, 1, w.job("work", 0))
	kubectl(ctx, "-n", w.namespace, "wait", "--for=condition=Succeeded", waitFlag, "wfr/run-000")
	w.create(ctx, 1, v1alpha1.Step{Name: "review", Approval: &v1alpha1.Approval{}})
	w.create(ctx, 1, w.child("long", 60_000))
	Eventually(w.reason(ctx, "run-001")).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonWaitingForApproval))
	w.begun(ctx, 2)
	w.create(ctx, 1, w.job("work", 0))
	Eventually(w.reason(ctx, "run-003")).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonQueued))
}

func uninstallStories() {
	It("runs can be deleted while no operator is there", func(ctx context.Context) {
		w := newWorld(ctx, 2)
		w.waitingRuns(ctx)
		kubectl(ctx, "-n", operatorNS, "scale", "deployment/syncopate", "--replicas=0")
		Eventually(func() int { return len(operatorPods(ctx)) }).WithContext(ctx).WithPolling(listInterval).Should(BeZero())
		kubectl(ctx, "-n", w.namespace, "delete", "wfr", "--all", waitFlag)
		Expect(k8s.Delete(ctx, namespaceNamed(w.namespace))).To(Succeed())
		gone(ctx, namespaceNamed(w.namespace))
		kubectl(ctx, "-n", operatorNS, "scale", "deployment/syncopate", "--replicas=2")
		operatorReady(ctx, operatorNS)
	}, SpecTimeout(specTimeout))

	It("uninstalling leaves nothing, and nothing that hangs", func(ctx context.Context) {
		w := newWorld(ctx, 2)
		w.waitingRuns(ctx)
		w.history.stop() // what it watches goes away
		begin := time.Now()
		kubectl(ctx, "delete", "-k", operatorOverlay(config.next, ""), waitFlag)
		AddReportEntry("uninstalled in", since(begin))
		for _, kinds := range []string{
			"crd", "clusterroles,clusterrolebindings", "validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings",
			"flowschemas,prioritylevelconfigurations", "namespaces",
		} {
			for line := range strings.Lines(kubectl(ctx, "get", kinds, "-o", "name")) {
				Expect(line).NotTo(ContainSubstring("syncopate"))
			}
		}
		Expect(k8s.Delete(ctx, namespaceNamed(w.namespace))).To(Succeed())
		gone(ctx, namespaceNamed(w.namespace))
	}, SpecTimeout(specTimeout))
}
