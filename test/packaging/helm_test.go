// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// release is Helm against an API server of its own: objects that kustomize installed are not
// Helm's to take.
type release struct {
	t          *testing.T
	kubeconfig string
	client     client.Client
}

func newRelease(t *testing.T) *release {
	t.Helper()
	env := testenv.APIServer(t)
	r := &release{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	scheme := runtime.NewScheme()
	err := errors.Join(os.WriteFile(r.kubeconfig, env.KubeConfig, 0o600), appsv1.AddToScheme(scheme))
	if err != nil {
		t.Fatal(err)
	}
	if r.client, err = client.New(env.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *release) helm(args ...string) error {
	_, err := run(nil, server.helm, append([]string{"--kubeconfig", r.kubeconfig, "--namespace", operatorNamespace}, args...)...)
	return err
}

// apply makes an object, which must not be there.
func (r *release) apply(manifest string) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		return err
	}
	return r.client.Create(r.t.Context(), o)
}

func (r *release) exists(apiVersion, kind, namespace, name string) bool {
	r.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	err := r.client.Get(r.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	if err != nil && !apierrors.IsNotFound(err) {
		r.t.Fatal(err)
	}
	return err == nil
}

func (r *release) args() []string {
	r.t.Helper()
	d := &appsv1.Deployment{}
	if err := r.client.Get(r.t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "syncopate"}, d); err != nil {
		r.t.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0].Args
}

// A release is installed, changed, taken away, and installed again over what it left, with a run
// that is there all the time.
// mutation: CRDs without their annotation, or in hooks, make "the run is still there" fail; CRDs in
// crds/ make the upgrade's CRD fail.
func TestAReleaseComesAndGoesAndTheRunsStay(t *testing.T) {
	r := newRelease(t)
	const chart = "charts/syncopate"
	if err := r.helm("install", "syncopate", chart, "--create-namespace", "--set", "image.tag=dev"); err != nil {
		t.Fatal(err)
	}
	if err := r.apply("apiVersion: syncopate.dev/v1alpha1\nkind: WorkflowRun\nmetadata: {name: kept, namespace: default}\n" +
		"spec: {steps: [{name: a, job: {topic: demo.echo}}]}\n"); err != nil {
		t.Fatal(err)
	}
	if err := r.helm("install", "second", chart, "--namespace", "elsewhere", "--create-namespace", "--set", "image.tag=dev"); err == nil ||
		!strings.Contains(err.Error(), "exists and cannot be imported") {
		t.Errorf("a second operator in the cluster: %v", err)
	}

	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("lockpolicies.syncopate.dev")
	if err := r.client.Delete(t.Context(), crd); err != nil { // as if this version had it and the one before had not
		t.Fatal(err)
	}
	if err := r.helm("upgrade", "syncopate", chart, "--reuse-values", "--set", "webhook.enabled=true"); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(r.args(), "--webhook-bind-address=:9443") {
		t.Errorf("after the upgrade: %q", r.args())
	}
	if !r.exists("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "lockpolicies.syncopate.dev") {
		t.Error("an upgrade brings no CRDs")
	}

	if err := r.helm("uninstall", "syncopate"); err != nil {
		t.Fatal(err)
	}
	if r.exists("apps/v1", "Deployment", operatorNamespace, "syncopate") || r.exists("rbac.authorization.k8s.io/v1", "ClusterRole", "", "syncopate") ||
		r.exists("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "syncopate") {
		t.Error("the operator is still there")
	}
	if !r.exists("syncopate.dev/v1alpha1", "WorkflowRun", "default", "kept") {
		t.Error("the run is gone")
	}
	if err := r.helm("install", "syncopate", chart, "--set", "image.tag=dev"); err != nil {
		t.Errorf("an installation over what the last one left: %v", err)
	}
	if !r.exists("syncopate.dev/v1alpha1", "WorkflowRun", "default", "kept") {
		t.Error("the run is gone")
	}
}

// copied is a copy of the chart.
func copied(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "syncopate")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(moduleRoot, "charts/syncopate"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// edit puts a text in the place of another one, which is there.
func edit(t *testing.T, path, old, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		t.Fatalf("%s has no %q", path, old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), old, text, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Helm 4 applies by the server, and all versions of a CRD are one field of it: who applied it
// beside Helm has that, too. The page says how to get on.
func TestHowAReleaseGetsOnWithCRDsThatOthersApplied(t *testing.T) {
	r := newRelease(t)
	upgrade := func(chart string, args ...string) error {
		return r.helm(append([]string{"upgrade", "syncopate", chart, "--reset-then-reuse-values"}, args...)...)
	}
	crds := func(args ...string) {
		t.Helper()
		program := filepath.Join(server.env.BinaryAssetsDirectory, "kubectl")
		if _, err := run(nil, program, append([]string{"--kubeconfig", r.kubeconfig, "apply", "--server-side", "-k", "config/crd"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	conflict := func(when string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "conflict") {
			t.Errorf("%s: %v", when, err)
		}
	}
	changed := func(to string) string {
		dir := copied(t)
		edit(t, filepath.Join(dir, "files/crds/syncopate.dev_semaphores.yaml"), "jsonPath: .metadata.c", "description: "+to+"\n      jsonPath: .metadata.c")
		return dir
	}
	crds() // as kustomize does
	const chart = "charts/syncopate"
	if err := r.helm("install", "syncopate", chart, "--create-namespace", "--set", "image.tag=dev", "--set", "nats.storage=16Gi", "--take-ownership"); err != nil {
		t.Fatal(err)
	}
	conflict("after kustomize", upgrade(changed("one")))
	if err := upgrade(changed("one"), "--force-conflicts"); err != nil {
		t.Error(err)
	}
	if err := upgrade(changed("two")); err != nil {
		t.Errorf("once more: %v", err)
	}
	crds("--force-conflicts", "--field-manager=helm")
	if err := upgrade(changed("three")); err != nil {
		t.Errorf("after a repair in the name of Helm: %v", err)
	}
	crds("--force-conflicts")
	conflict("after a repair by kubectl", upgrade(changed("four")))

	older := copied(t)
	edit(t, filepath.Join(older, "values.schema.json"), `        "storage": {"type"`, `        "notYet": {"type"`)
	edit(t, filepath.Join(older, "values.yaml"), "  storage: \"\" #", "  #")
	if err := upgrade(older, "--set", "crds.install=false"); err == nil || !strings.Contains(err.Error(), "storage") {
		t.Errorf("a value that an older chart does not have: %v", err)
	}
	if err := upgrade(older, "--set", "crds.install=false", "--set", "nats.storage=null"); err != nil {
		t.Errorf("without it: %v", err)
	}
}
