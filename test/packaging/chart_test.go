// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const testHook = "test"

// hooks are what helm test makes.
func hooks(t *testing.T, args ...string) (all []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects(t, mustHelm(t, args...)) {
		if o.GetAnnotations()["helm.sh/hook"] == testHook {
			all = append(all, o)
		}
	}
	return all
}

func object[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	to := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, to); err != nil {
		t.Fatal(err)
	}
	return to
}

// The pod of helm test is let into the namespace, belongs to neither the Deployment nor its
// Service, and asks a Service and a port that are there.
// mutation: its securityContext, component or address changed in templates/tests makes this fail.
func TestHelmTestAsksTheOperator(t *testing.T) {
	found := hooks(t)
	if len(found) != 1 {
		t.Fatalf("%d hooks; want one pod", len(found))
	}
	pod := object[corev1.Pod](t, found[0])
	if err := server.client.Create(t.Context(), pod.DeepCopy(), client.DryRunAll); err != nil {
		t.Errorf("the pod: %v", err)
	}
	service := &corev1.Service{}
	if err := server.client.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "syncopate-metrics"}, service); err != nil {
		t.Fatal(err)
	}
	if labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		t.Error("the Service takes the pod for a replica")
	}
	want := "--ask=https://" + service.Name + "." + service.Namespace + ".svc:8443/metrics"
	if args := strings.Join(pod.Spec.Containers[0].Args, " "); args != want || service.Spec.Ports[0].Port != 8443 {
		t.Errorf("the pod is started with %q, and the Service has %v; want %q", args, service.Spec.Ports, want)
	}
}

// What the chart says of itself to those who look for one.
// mutation: another kind in artifacthub.io/crds, or an icon that is not there, makes this fail.
func TestTheChartNamesItsKindsAndItsIcon(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot, "charts", "syncopate", "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var chart struct {
		Icon        string            `json:"icon"`
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal(text, &chart); err != nil {
		t.Fatal(err)
	}
	var named []struct{ Kind, Version, Name string }
	if err := yaml.Unmarshal([]byte(chart.Annotations["artifacthub.io/crds"]), &named); err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.AddToScheme(server.client.Scheme()); err != nil {
		t.Fatal(err)
	}
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := server.client.List(t.Context(), crds); err != nil {
		t.Fatal(err)
	}
	for _, c := range crds.Items {
		if !slices.Contains(named, struct{ Kind, Version, Name string }{c.Spec.Names.Kind, c.Spec.Versions[0].Name, c.Name}) {
			t.Errorf("artifacthub.io/crds lacks %s", c.Name)
		}
	}
	if len(named) != len(crds.Items) {
		t.Errorf("%d kinds named; there are %d", len(named), len(crds.Items))
	}
	_, icon, _ := strings.Cut(chart.Icon, "/syncopate/main/")
	if _, err := os.Stat(filepath.Join(moduleRoot, icon)); err != nil || icon == "" {
		t.Errorf("icon %s: %v", chart.Icon, err)
	}
}

// mutation: the policy with another label than the pod has makes this fail.
func TestHelmTestMayAskBehindANetworkPolicy(t *testing.T) {
	found := hooks(t, "--set", "networkPolicy.enabled=true")
	if len(found) != 2 {
		t.Fatalf("%d hooks; want a policy and a pod", len(found))
	}
	policy, pod := object[networkingv1.NetworkPolicy](t, found[0]), object[corev1.Pod](t, found[1])
	if err := server.client.Create(t.Context(), policy.DeepCopy(), client.DryRunAll); err != nil {
		t.Errorf("the policy: %v", err)
	}
	from := policy.Spec.Ingress[0].From[0].PodSelector
	if !labels.SelectorFromSet(from.MatchLabels).Matches(labels.Set(pod.Labels)) {
		t.Errorf("the policy lets %v in; the pod has %v", from.MatchLabels, pod.Labels)
	}
}

// A policy looks at the port of the pod, and pods of DNS may listen on another one
// than their Service.
//
// mutation: a port of DNS in either policy that is not of the values makes this fail.
func TestDNSIsReachedAtThePortsOfItsPods(t *testing.T) {
	for set, want := range map[string][]int{"networkPolicy.dnsPorts={53,5353}": {53, 5353}, "networkPolicy.enabled=true": {53}} {
		all := objects(t, mustHelm(t, "--set", "networkPolicy.enabled=true", "--set", "console.enabled=true", "--set", "console.hosts={console.example.org}", "--set", set))
		for _, name := range []string{"syncopate", "syncopate-console"} {
			var policy networkingv1.NetworkPolicy
			findObject(t, all, "NetworkPolicy", operatorNamespace, name, &policy)
			var udp, tcp []int
			for _, p := range policy.Spec.Egress[0].Ports {
				if *p.Protocol == corev1.ProtocolUDP {
					udp = append(udp, p.Port.IntValue())
				} else {
					tcp = append(tcp, p.Port.IntValue())
				}
			}
			if !slices.Equal(udp, want) || !slices.Equal(tcp, want) {
				t.Errorf("%s, %s: UDP %v, TCP %v", set, name, udp, tcp)
			}
		}
	}
}
