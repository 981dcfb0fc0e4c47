// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
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
			return mustHelm(t, "--values", "test/packaging/testdata/elaborate.yaml", "--set", "image.tag=")
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
		"longer than the operator takes to stop (10 s and 10 s)":     *pod.TerminationGracePeriodSeconds >= 25+sleep(container),
		"rather on different nodes, but on one if there is no other": len(pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 1 && pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil,
		"probes":                                container.LivenessProbe.HTTPGet.Path == "/livez" && container.ReadinessProbe.HTTPGet.Path == "/readyz?serving",
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

// sleep is how long a container goes on before it is told to stop, in seconds.
func sleep(c corev1.Container) int64 {
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Sleep == nil {
		return 0
	}
	return c.Lifecycle.PreStop.Sleep.Seconds
}

// API servers call replicas whose webhook listens: none that starts, fails or ends, and all others
// while Redis or NATS is away.
// mutation: publishNotReadyAddresses back in the Service makes this fail; so does a probe of plain
// readyz, or a replica that stops listening as soon as it is told to end.
func TestTheWebhookIsCalledWhereItListens(t *testing.T) {
	for name, manifests := range map[string][]byte{
		"kustomize": kustomize(t, "config/default-webhook"), "the chart": mustHelm(t, "--set", "webhook.enabled=true"),
	} {
		t.Run(name, func(t *testing.T) {
			all := objects(t, manifests)
			var service corev1.Service
			findObject(t, all, "Service", operatorNamespace, "syncopate-webhook", &service)
			var d appsv1.Deployment
			findObject(t, all, "Deployment", operatorNamespace, "syncopate", &d)
			container := d.Spec.Template.Spec.Containers[0]
			if path := container.ReadinessProbe.HTTPGet.Path; service.Spec.PublishNotReadyAddresses || path != "/readyz?serving" {
				t.Errorf("replicas that are not ready are called: %t; ready is what %s says", service.Spec.PublishNotReadyAddresses, path)
			}
			if seconds := sleep(container); seconds < 2 {
				t.Errorf("it goes on for %d s", seconds)
			}
		})
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

// uninstalling are the two blocks of commands of docs/install.md: what ends the work, and what
// takes the operator away.
func uninstalling(t *testing.T) (ends, takes string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(moduleRoot, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Uninstall\n")
	blocks := strings.Split(section, "\n```\n")
	if len(blocks) < 4 {
		t.Fatalf("%d blocks of commands under Uninstall", len(blocks)/2)
	}
	return blocks[1], blocks[3]
}

// stays is the table of docs/install.md of what the commands leave.
func stays(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(moduleRoot, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| what stays |")
	table, _, _ = strings.Cut(table, "\n\n")
	return table
}

// What is of the cluster does not go with the namespace: a ClusterRoleBinding that stays gives its
// rights to who makes its account anew. CRDs stay, with the runs.
// mutation: a command taken out of the page makes this fail.
func TestUninstallingTakesAllThatIsOfTheCluster(t *testing.T) {
	_, takes := uninstalling(t)
	gone := map[string]bool{}
	for word := range strings.FieldsSeq(takes) {
		gone[strings.ToLower(word)] = true
	}
	for _, m := range regexp.MustCompile(`kubectl delete -k ([a-z/-]+)`).FindAllStringSubmatch(takes, -1) {
		for _, o := range objects(t, kustomize(t, m[1])) {
			gone[strings.ToLower(o.GetKind()+"/"+o.GetName())] = true
		}
	}
	for _, m := range regexp.MustCompile("`kubectl (?:-n [a-z-]+ )?delete ([^`]+)`").FindAllStringSubmatch(stays(t), -1) {
		for word := range strings.FieldsSeq(m[1]) {
			gone[strings.ToLower(word)] = true
		}
	}
	for _, dir := range []string{"config/default-webhook", "config/console", "config/monitoring", "config/network-policy", "examples/production"} {
		for _, o := range objects(t, kustomize(t, dir)) {
			id := strings.ToLower(o.GetKind() + "/" + o.GetName())
			elsewhere := o.GetNamespace() == "" || o.GetNamespace() == "cert-manager" // which is not ours
			if elsewhere && o.GetKind() != "CustomResourceDefinition" && !gone[id] {
				t.Errorf("%s of %s stays", id, dir)
			}
		}
	}
}

// mutation: runs that are cancelled before schedules are suspended make this fail: a slot that is
// due meanwhile makes another one.
func TestUninstallingSuspendsSchedulesBeforeItCancelsRuns(t *testing.T) {
	ends, _ := uninstalling(t)
	out, err := run(nil, "bash", "-c", "set -eu\nkubectl() { case \"$1\" in get) echo team-a nightly;; *) echo \"$*\";; esac; }\n"+ends)
	if err != nil {
		t.Fatal(err)
	}
	want := `-n team-a patch sched nightly --type=merge -p {"spec":{"suspend":true}}
-n team-a patch wfr nightly --type=merge -p {"spec":{"shutdown":"Cancel"}}
wait --for=condition=Finished wfr --all -A --timeout=5m
`
	if string(out) != want {
		t.Errorf("the commands are\n%s\nwant\n%s", out, want)
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

// What is in config has the image and the addresses of the samples, so a page that has people apply
// a directory of it with the operator replaces theirs. They name it in an overlay.
// mutation: a page, or the head of a kustomization, that says kubectl apply -k config/default makes
// this fail.
func TestNoPageHasPeopleApplyTheImageOfTheSamples(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(moduleRoot, "docs", "*.md"))
	for _, more := range []string{"README.md", "docs/runbooks/*.md", "config/*/kustomization.yaml"} {
		found, globErr := filepath.Glob(filepath.Join(moduleRoot, more))
		pages, err = append(pages, found...), errors.Join(err, globErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	ofSamples := map[string]bool{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`kubectl apply (?:--server-side )?-k (config/[a-z/-]+)`).FindAllStringSubmatch(string(text), -1) {
			if _, known := ofSamples[m[1]]; !known {
				ofSamples[m[1]] = strings.Contains(string(kustomize(t, m[1])), "image: syncopate:dev")
			}
			if ofSamples[m[1]] {
				t.Errorf("%s: %s", page, m[0])
			}
		}
	}
	if len(ofSamples) == 0 {
		t.Error("no page applies anything: how is it written now?")
	}
}
