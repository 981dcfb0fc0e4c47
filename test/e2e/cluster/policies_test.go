// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func policyStories() {
	It("an edit of a LockPolicy is seen on runs, also on those that are under way", func(ctx context.Context) {
		w := newWorld(ctx, 0)
		review := v1alpha1.Step{Name: "review", Approval: &v1alpha1.Approval{}}
		w.create(ctx, 1, review, w.job("work", 0, "review"))
		Eventually(w.reason(ctx, "run-000")).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonQueued))
		Consistently(w.history.mostInside).WithContext(ctx).WithTimeout(quietPeriod).WithPolling(pollInterval).Should(BeZero())
		w.setLimit(ctx, 1) // the second generation
		Eventually(w.reason(ctx, "run-000")).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonWaitingForApproval))
		Expect(w.get(ctx, "run-000").Status.Policy).To(Equal(&v1alpha1.PolicyReference{Name: w.namespace, Generation: 2}))

		kubectl(ctx, "patch", "lockpolicy", w.namespace, "--type=merge", "-p", `{"spec":{"runLock":{"ttlSeconds":45}}}`)
		kubectl(ctx, "wait", "--for=jsonpath={.status.observedGeneration}=3", waitFlag, "lockpolicy/"+w.namespace)
		create(ctx, w.approval(ctx, "run-000", "review", whoami(ctx)))
		kubectl(ctx, "-n", w.namespace, "wait", "--for=condition=Succeeded", waitFlag, "wfr/run-000")
		Expect(w.get(ctx, "run-000").Status.Policy.Generation).To(BeEquivalentTo(3))
		w.nothingLostNothingTwice(ctx, 1)
	}, SpecTimeout(specTimeout))

	It("of 20 runs of a tenant no more than 2 are ever under way, and all of them end", func(ctx context.Context) {
		const runs, limit = 20, 2
		w := newWorld(ctx, limit)
		w.create(ctx, runs, w.job("work", 400))
		w.nothingLostNothingTwice(ctx, runs)
		Expect(w.history.mostInside()).To(Equal(limit), "the limit was never used")
	}, SpecTimeout(specTimeout))

	It("a run beyond the limit is refused with 429 where the policy asks for that", func(ctx context.Context) {
		w := newWorld(ctx, 1, func(s *v1alpha1.LockPolicySpec) { s.Admission.OnLimit = v1alpha1.OnLimitReject })
		w.create(ctx, 1, v1alpha1.Step{Name: "review", Approval: &v1alpha1.Approval{}})
		Eventually(w.reason(ctx, "run-000")).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonWaitingForApproval))

		raw := withoutRetries()
		second := w.run("second", w.job("work", 0))
		post := func() error { return post(ctx, raw, second) }
		var err error
		Eventually(func() bool { err = post(); return apierrors.IsTooManyRequests(err) }).WithContext(ctx).WithPolling(pollInterval).Should(BeTrue(), "%v", err)
		Expect(apierrors.HasStatusCause(err, v1alpha1.ReasonTenantAtCapacity)).To(BeTrue(), "%v", err)
		seconds, told := apierrors.SuggestsClientDelay(err)
		Expect(told).To(BeTrue())
		Expect(seconds).To(BeNumerically(">=", 1))
		Expect(err).To(MatchError(ContainSubstring("is at its limit of 1 under way at a time (LockPolicy %s)", w.namespace)))

		kubectl(ctx, "-n", w.namespace, "delete", "wfr", "run-000")
		Eventually(post).WithContext(ctx).WithPolling(listInterval).Should(Succeed())
		kubectl(ctx, "-n", w.namespace, "wait", "--for=condition=Succeeded", waitFlag, "wfr/second")
		w.history.expectKept()
		expectNoCrash(ctx)
	}, SpecTimeout(specTimeout))
}

// withoutRetries is a client that tells of 429 and 503 instead of waiting.
func withoutRetries() rest.Interface {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	metav1.AddToGroupVersion(scheme, v1alpha1.GroupVersion)
	c := rest.CopyConfig(restCfg)
	c.APIPath, c.GroupVersion = "/apis", &v1alpha1.GroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	raw, err := rest.RESTClientFor(c)
	Expect(err).NotTo(HaveOccurred())
	return raw
}

func post(ctx context.Context, raw rest.Interface, run *v1alpha1.WorkflowRun) error {
	return raw.Post().Namespace(run.Namespace).Resource("workflowruns").Body(run).MaxRetries(0).Do(ctx).Error()
}

// mutation: a role with more verbs or resources than config/rbac has makes this fail.
func permissionStories() {
	It("the operator may do what its roles say and no more", func(ctx context.Context) {
		account := "--as=system:serviceaccount:" + operatorNS + ":syncopate"
		var table string
		for _, ns := range []string{"default", operatorNS} {
			table += fmt.Sprintf("namespace %s:\n\n%s\n", ns, kubectl(ctx, "auth", "can-i", "--list", account, "-n", ns))
		}
		file := filepath.Join(config.artifacts, "rbac.txt")
		Expect(os.WriteFile(file, []byte(table), 0o600)).To(Succeed())
		AddReportEntry("kubectl auth can-i --list", file)
		for _, c := range []struct {
			may                bool
			verb, what, within string
		}{
			{true, "list", "workflowruns.syncopate.dev", "default"},
			{true, "update", "workflowruns.syncopate.dev --subresource=status", "default"},
			{true, "create", "events.events.k8s.io", "default"},
			{true, "get", "secrets/syncopate-result-keys", operatorNS},
			{true, "create", "workflowruns.syncopate.dev", "default"}, // children
			{false, "deletecollection", "workflowruns.syncopate.dev", "default"},
			{false, "update", "workflowruns.syncopate.dev", "default"},
			{false, "create", "stepapprovals.syncopate.dev", "default"},
			{false, "update", "lockpolicies.syncopate.dev", "default"},
			{false, "get", "secrets", "default"},
			{false, "list", "secrets", operatorNS},
			{false, "get", "secrets/other", operatorNS},
			{false, "delete", "secrets/syncopate-result-keys", operatorNS},
			{false, "create", "pods", operatorNS},
			{false, "create", "pods", "default"},
			{false, "update", "namespaces", "default"},
			{false, "escalate", "clusterroles.rbac.authorization.k8s.io", "default"},
			{false, "*", "*", "default"},
		} {
			out, _ := try(ctx, "", "kubectl", append([]string{"auth", "can-i", account, "-n", c.within, c.verb}, strings.Fields(c.what)...)...)
			Expect(out).To(MatchRegexp(map[bool]string{true: `(?m)^yes\b`, false: `(?m)^no\b`}[c.may]), "%s %s in %s", c.verb, c.what, c.within)
		}
	}, SpecTimeout(specTimeout))

	It("the operator's pods run as the restricted standard asks, and a pod that does not is refused beside them", func(ctx context.Context) {
		pods := operatorPods(ctx)
		Expect(pods).To(HaveLen(2))
		for _, pod := range pods {
			Expect(pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
			Expect(pod.Spec.SecurityContext.RunAsNonRoot).To(HaveValue(BeTrue()))
		}
		out := refused(ctx, "", "-n", operatorNS, "run", "root", "--image=none")
		Expect(out).To(ContainSubstring(`violates PodSecurity "restricted`))
	}, SpecTimeout(specTimeout))
}
