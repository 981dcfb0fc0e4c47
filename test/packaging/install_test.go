// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ofOthers are kinds whose CRDs are not here: those of the Prometheus Operator and of cert-manager.
func ofOthers(apiVersion string) bool {
	return strings.HasPrefix(apiVersion, "monitoring.coreos.com/") || strings.HasPrefix(apiVersion, "cert-manager.io/")
}

// Everything that is opt-in, and the chart with values beyond those of the comparison, is what the
// API server takes as it stands.
// mutation: an unknown field in any of them, or a value that the API server refuses, makes
// its row fail.
func TestWhatIsOptInIsTakenByTheAPIServer(t *testing.T) {
	for name, render := range map[string]func(*testing.T) []byte{
		"network policy": func(t *testing.T) []byte { return kustomize(t, "config/network-policy") },
		"monitoring":     func(t *testing.T) []byte { return kustomize(t, "config/monitoring") },
		"everything":     func(t *testing.T) []byte { return kustomize(t, "hack/compare-manifests/testdata/everything") },
		"a chart with TLS, credentials, own certificates and places": func(t *testing.T) []byte {
			return mustHelm(t, "--values", "test/packaging/testdata/elaborate.yaml")
		},
	} {
		t.Run(name, func(t *testing.T) {
			var manifests []string
			for _, o := range objects(t, render(t)) {
				if ofOthers(o.GetAPIVersion()) {
					continue
				}
				text, err := o.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				manifests = append(manifests, string(text))
			}
			if len(manifests) == 0 {
				t.Fatal("nothing to apply")
			}
			if err := apply([]byte(strings.Join(manifests, "\n---\n")), "--dry-run=server", "--force-conflicts"); err != nil {
				t.Error(err)
			}
		})
	}
}

// The namespace enforces the restricted Pod Security Standard, and the Deployment's pods satisfy
// it. No controller makes them here, so the test does.
// mutation: allowPrivilegeEscalation, capabilities, runAsNonRoot or seccompProfile taken out of the
// Deployment makes the first fail; the namespace without its label the second.
func TestThePodsSatisfyTheRestrictedStandardThatTheirNamespaceEnforces(t *testing.T) {
	d := &appsv1.Deployment{}
	if err := server.client.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "syncopate"}, d); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	pod.Namespace, pod.GenerateName = operatorNamespace, "syncopate-"
	if err := server.client.Create(t.Context(), pod.DeepCopy(), client.DryRunAll); err != nil {
		t.Errorf("a pod of the Deployment: %v", err)
	}
	pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
	if err := server.client.Create(t.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("a pod that may escalate its privileges: %v", err)
	}
}

// What a cluster does to its pods, and what the Deployment says to it.
// mutation: each of these values changed in config/manager makes this fail.
func TestTheDeploymentSurvivesWhatClustersDo(t *testing.T) {
	d := &appsv1.Deployment{}
	if err := server.client.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "syncopate"}, d); err != nil {
		t.Fatal(err)
	}
	pod, container := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
	for what, fine := range map[string]bool{
		"two replicas that share the runs":                           *d.Spec.Replicas == 2 && strings.Contains(strings.Join(container.Args, " "), "--ownership=shards"),
		"an update takes no replica before the new one is ready":     d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() == 0,
		"longer than the operator takes to stop (10 s and 10 s)":     *pod.TerminationGracePeriodSeconds >= 25,
		"rather on different nodes, but on one if there is no other": len(pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 1 && pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil,
		"probes":                                container.LivenessProbe.HTTPGet.Path == "/livez" && container.ReadinessProbe.HTTPGet.Path == "/readyz",
		"a read-only root":                      *container.SecurityContext.ReadOnlyRootFilesystem,
		"a user with a number, as in the image": *pod.SecurityContext.RunAsUser == 65532,
		"requests, and a limit for memory only": container.Resources.Limits.Cpu().IsZero() && !container.Resources.Limits.Memory().IsZero() && !container.Resources.Requests.Cpu().IsZero(),
		"a webhook whose port has the name of its Service's target": container.Ports[2].Name == "webhook",
	} {
		if !fine {
			t.Errorf("not so: %s", what)
		}
	}
}

// helm uninstall must not take the CRDs: with them it would take all runs.
// mutation: the annotation taken out of the chart, or CRDs in a hook, makes this fail.
func TestTheChartKeepsItsCRDs(t *testing.T) {
	kept := 0
	for _, o := range objects(t, mustHelm(t)) {
		keep := o.GetAnnotations()["helm.sh/resource-policy"] == "keep"
		if isCRD := o.GetKind() == "CustomResourceDefinition"; isCRD != keep {
			t.Errorf("%s %s: kept is %t", o.GetKind(), o.GetName(), keep)
		} else if isCRD {
			kept++
		}
	}
	if kept != 6 {
		t.Errorf("%d CRDs", kept)
	}
	for _, o := range objects(t, mustHelm(t, "--set", "crds.install=false")) {
		if o.GetKind() == "CustomResourceDefinition" {
			t.Errorf("%s, though crds.install is false", o.GetName())
		}
	}
}

// kubectl delete -k must end: what is installed waits for nobody.
// mutation: a finalizer on any object makes this fail.
func TestNothingThatIsInstalledHoldsUpItsDeletion(t *testing.T) {
	for _, o := range objects(t, kustomize(t, "config/default-webhook")) {
		if len(o.GetFinalizers()) > 0 || len(o.GetOwnerReferences()) > 0 {
			t.Errorf("%s %s: %v %v", o.GetKind(), o.GetName(), o.GetFinalizers(), o.GetOwnerReferences())
		}
	}
}

func mustHelm(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := helm(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
