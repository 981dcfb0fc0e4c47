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
