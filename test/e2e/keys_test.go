// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// startGuardedManager starts an operator whose webhook the API server asks about each creation of a
// run in this world.
func (w *world) startGuardedManager(ctx context.Context) {
	GinkgoHelper()
	data, err := os.ReadFile(filepath.Join(root, "config", "webhook", "base", "configuration.yaml"))
	Expect(err).NotTo(HaveOccurred())
	config := &admissionv1.ValidatingWebhookConfiguration{}
	Expect(yaml.UnmarshalStrict(data, config)).To(Succeed())
	config.Name = w.namespace
	config.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}}
	config.Webhooks[0].FailurePolicy = new(admissionv1.Fail)
	hooks := &envtest.WebhookInstallOptions{ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{config}}
	Expect(hooks.Install(env.Config)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(k8s.Delete(ctx, config)).To(Succeed())
		Expect(hooks.Cleanup()).To(Succeed())
	})
	w.startManager(ctx, "guarded", "--webhook-bind-address", net.JoinHostPort(hooks.LocalServingHost, strconv.Itoa(hooks.LocalServingPort)),
		"--webhook-cert-dir", hooks.LocalServingCertDir)
}

// keyedRun has the key, and a name of its own.
func (w *world) keyedRun(name, key string) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: singleStep("keys.work")}
	run.Spec.WorkloadClass, run.Spec.IdempotencyKey = w.namespace, key
	return run
}

var _ = Describe("an idempotency key, with the webhook", func() {
	// mutation: an operator whose webhook does not ask for keys lets ten in, of which nine
	// end as Failed.
	It("lets in one of ten equal creations; nine get 409 with its name, and leave no object", func(ctx context.Context) {
		w := newWorld(ctx)
		rejects := v1alpha1.AdmissionPolicy{MaxConcurrentRuns: new(int32(20)), OnLimit: v1alpha1.OnLimitReject}
		p := &v1alpha1.LockPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Spec: v1alpha1.LockPolicySpec{WorkloadClasses: []string{w.namespace}, Admission: rejects},
		}
		Expect(k8s.Create(ctx, p)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(k8s.Delete(ctx, p)).To(Succeed()) })
		w.startGuardedManager(ctx)
		w.startWorker(ctx, 4, func(context.Context, worker.Job) (any, error) { return "done", nil }, "keys.work")
		// Guarded, once a repetition of another key is refused.
		Expect(k8s.Create(ctx, w.keyedRun("sentry", "other"))).To(Succeed())
		Eventually(func() error { return k8s.Create(ctx, w.keyedRun("sentry-2", "other"), client.DryRunAll) }).
			WithContext(ctx).WithPolling(pollInterval).Should(Satisfy(apierrors.IsConflict))

		const equal = 10
		errs := make([]error, equal)
		var all sync.WaitGroup
		for i := range equal {
			all.Go(func() { errs[i] = k8s.Create(ctx, w.keyedRun(fmt.Sprintf("invoice-%d", i), "invoice-7")) })
		}
		all.Wait()
		winner := ""
		for i, err := range errs {
			if err == nil {
				Expect(winner).To(BeEmpty(), "two were let in")
				winner = fmt.Sprintf("invoice-%d", i)
			}
		}
		Expect(winner).NotTo(BeEmpty(), "none was let in: %v", errs)
		told := fmt.Sprintf("%s: run %s/%s of tenant %s has the same idempotency key and the same spec", v1alpha1.ReasonDuplicateRun, w.namespace, winner, w.namespace)
		for _, err := range errs {
			if err != nil {
				Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
				Expect(err).To(MatchError(ContainSubstring(told)))
			}
		}
		// The two that were let in are all there is, and they end well: nothing is left
		// behind as Failed.
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 2)
		Expect(k8s.Create(ctx, w.keyedRun("late", "invoice-7"))).To(MatchError(ContainSubstring(told)), "the key is the run's as long as that exists")
		w.expectEachOnce(2)
	}, NodeTimeout(specTimeout))
})
