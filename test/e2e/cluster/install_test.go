// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// markLabel is on every namespace that the suite made.
const markLabel = "syncopate.dev/e2e"

// refuseForeign ends the suite where a namespace that it would use, and delete, is somebody else's.
func refuseForeign(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{operatorNS, helmNS, natsNS, redisNS, ledgerNS, workersNS} {
		ns := &corev1.Namespace{}
		err := k8s.Get(ctx, client.ObjectKey{Name: name}, ns)
		if err == nil && ns.Labels[markLabel] == "" {
			Fail(fmt.Sprintf("the cluster has a namespace %s which is not of this suite", name))
		}
		Expect(client.IgnoreNotFound(err)).To(Succeed())
	}
}

// overlay writes a kustomization over a directory of the repository, as a user would, and returns
// where it is.
func overlay(name, base string, images map[string]string, more string) string {
	GinkgoHelper()
	dir := filepath.Join(config.artifacts, "overlays", name)
	Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
	over, err := filepath.Abs(filepath.Join(root, base))
	Expect(err).NotTo(HaveOccurred())
	rel, err := filepath.Rel(dir, over)
	Expect(err).NotTo(HaveOccurred())
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- %s\nimages:\n", rel)
	for placeholder, image := range images {
		newName, tag := nameAndTag(image)
		fmt.Fprintf(&text, "- {name: %s, newName: %s, newTag: %q}\n", placeholder, newName, tag)
	}
	text.WriteString(more)
	Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text.String()), 0o600)).To(Succeed())
	return dir
}

const manifests = "test/e2e/cluster/manifests"

// dependencies are what the operator needs and what works for it, each an overlay.
func dependencies() []string {
	return []string{
		overlay("nats", manifests+"/nats", map[string]string{"nats": config.nats}, ""),
		overlay("redis", manifests+"/redis", map[string]string{"redis": config.redis}, ""),
		overlay("ledger", manifests+"/ledger", map[string]string{"redis": config.redis}, ""),
		overlay("workers", manifests+"/workers", map[string]string{"syncopate-worker": config.worker, "tally": config.tally}, ""),
	}
}

func installDependencies(ctx context.Context) {
	GinkgoHelper()
	for _, dir := range dependencies() {
		kubectl(ctx, "apply", "-k", dir)
	}
	for _, ns := range []string{natsNS, redisNS, ledgerNS} {
		kubectl(ctx, "-n", ns, "rollout", "status", "statefulset", waitFlag)
	}
	kubectl(ctx, "-n", workersNS, "rollout", "status", "deployment", waitFlag)
}

// operatorOverlay is config/default-webhook with an image; more is added to the kustomization.
func operatorOverlay(image, more string) string {
	GinkgoHelper()
	mark := fmt.Sprintf(`patches:
- target: {kind: Namespace, name: %s}
  patch: '[{"op": "add", "path": "/metadata/labels/%s", "value": "true"}]'
`, operatorNS, strings.ReplaceAll(markLabel, "/", "~1"))
	return overlay("operator", "config/default-webhook", map[string]string{"syncopate": image}, mark+more)
}

// installOperator applies the operator and waits until it is ready and its webhook
// has certificates.
func installOperator(ctx context.Context, image string) {
	GinkgoHelper()
	kubectl(ctx, "apply", "--server-side", "-k", operatorOverlay(image, ""))
	established(ctx)
	operatorReady(ctx, operatorNS)
}

// imageLine names the image of a container.
var imageLine = regexp.MustCompile(`(?m)^( +image: ).*$`)

// installLastRelease applies the manifests of the last release over those that are there, with the
// operator of today: their webhook is not asked any more then.
func installLastRelease(ctx context.Context) {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(root, "hack", "compat", "last", "install.yaml"))
	Expect(err).NotTo(HaveOccurred())
	manifests := imageLine.ReplaceAllString(string(text), "${1}"+config.operator)
	out, err := try(ctx, manifests, "kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-")
	Expect(err).NotTo(HaveOccurred(), out)
	operatorReady(ctx, operatorNS)
}

// established waits until the API server serves all kinds.
func established(ctx context.Context) {
	GinkgoHelper()
	kubectl(ctx, "wait", "--for=condition=Established", waitFlag, "crd/workflowruns.syncopate.dev", "crd/workflows.syncopate.dev",
		"crd/schedules.syncopate.dev", "crd/lockpolicies.syncopate.dev", "crd/semaphores.syncopate.dev", "crd/stepapprovals.syncopate.dev")
}

func operatorReady(ctx context.Context, namespace string) {
	GinkgoHelper()
	kubectl(ctx, "-n", namespace, "rollout", "status", "deployment/syncopate", waitFlag)
	Eventually(func(g Gomega) {
		hook := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		g.Expect(k8s.Get(ctx, client.ObjectKey{Name: "syncopate"}, hook)).To(Succeed())
		g.Expect(hook.Webhooks).To(HaveLen(1))
		g.Expect(hook.Webhooks[0].ClientConfig.Service.Namespace).To(Equal(namespace))
		g.Expect(hook.Webhooks[0].ClientConfig.CABundle).NotTo(BeEmpty())
	}).WithContext(ctx).WithPolling(listInterval).Should(Succeed())
}

// uninstallAll takes away what is left; CRDs and cluster-wide objects of a failed run as well.
func uninstallAll(ctx context.Context) {
	GinkgoHelper()
	_, _ = try(ctx, "", "go", "tool", "-modfile=hack/tools/helm/go.mod", "helm", "uninstall", "syncopate", "-n", helmNS, "--ignore-not-found")
	kubectl(ctx, "delete", "--ignore-not-found", "--wait=false", "-k", operatorOverlay(config.operator, ""))
	for _, dir := range dependencies() {
		kubectl(ctx, "delete", "--ignore-not-found", "--wait=false", "-k", dir)
	}
	var all corev1.NamespaceList
	Expect(k8s.List(ctx, &all, client.HasLabels{markLabel})).To(Succeed())
	for i := range all.Items {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, &all.Items[i]))).To(Succeed())
	}
	Eventually(func(g Gomega) {
		g.Expect(k8s.List(ctx, &all, client.HasLabels{markLabel})).To(Succeed())
		g.Expect(all.Items).To(BeEmpty())
	}).WithContext(ctx).WithTimeout(goneTimeout).WithPolling(listInterval).Should(Succeed())
}

// operatorPods are the pods of the operator that are not being deleted.
func operatorPods(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	return livePods(ctx, operatorNS, client.MatchingLabels{"app.kubernetes.io/component": "manager"})
}

func livePods(ctx context.Context, namespace string, labels client.MatchingLabels) []corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Expect(k8s.List(ctx, &list, client.InNamespace(namespace), labels)).To(Succeed())
	var live []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			live = append(live, pod)
		}
	}
	return live
}

// expectNoCrash says that no container of the operator was ever started a second time, but in a pod
// that a spec made crash.
func expectNoCrash(ctx context.Context, but ...string) {
	GinkgoHelper()
	for _, pod := range operatorPods(ctx) {
		for _, c := range pod.Status.ContainerStatuses {
			if !slices.Contains(but, pod.Name) {
				Expect(c.RestartCount).To(BeZero(), "%s: %v", pod.Name, c.LastTerminationState)
			}
		}
	}
}

func namespaceNamed(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{markLabel: "true"}}}
}
