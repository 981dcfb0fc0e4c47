// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Samples are what a new user applies first: no unknown field, and the same words work with kubectl
// on the directory.
func TestSamplesApply(t *testing.T) {
	dir := filepath.Join(moduleRoot, "config", "samples")
	ns := namespace(t)
	kubectl(t, "apply", "--validate=strict", "-n", ns, "-f", dir)
	runs := &v1alpha1.WorkflowRunList{}
	if err := server.client.List(t.Context(), runs, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if want := runsIn(t, dir); len(runs.Items) != want || want < 4 {
		t.Errorf("there are %d runs, and %d in the samples", len(runs.Items), want)
	}
	policies := &v1alpha1.LockPolicyList{}
	if err := server.client.List(t.Context(), policies); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range policies.Items {
		names = append(names, policies.Items[i].Name)
	}
	if diff := cmp.Diff([]string{"batch", "canary", "fixed-delay", "payments", "quick", "shared", "shares"}, names); diff != "" {
		t.Errorf("policies of the samples (-want +got):\n%s", diff)
	}
	// A second apply of the same files changes nothing and is not refused by a rule.
	kubectl(t, "apply", "--validate=strict", "-n", ns, "-f", dir)
	kubectl(t, "delete", "-n", ns, "-f", dir)
}

// runsIn counts the runs in the manifests of a directory.
func runsIn(t *testing.T, dir string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		for _, o := range documents(t, file) {
			if o.GetKind() == "WorkflowRun" {
				n++
			}
		}
	}
	return n
}

// What installs the operator: every object is one that the API server takes as it stands.
func TestInstallManifestsApply(t *testing.T) {
	var files []string
	for _, part := range []string{"manager", "rbac", "approval", "webhook/base", "webhook/self-managed"} {
		found, err := filepath.Glob(filepath.Join(moduleRoot, "config", part, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		if base := filepath.Base(file); base == "kustomization.yaml" || strings.HasSuffix(base, "_patch.yaml") {
			continue
		}
		for _, o := range documents(t, file) {
			// A dry run makes no namespace, so the objects are tried in one that is there.
			if o.GetNamespace() != "" {
				o.SetNamespace("default")
			}
			if err := server.client.Create(t.Context(), o, client.DryRunAll); err != nil {
				t.Errorf("%s: %s %s: %v", file, o.GetKind(), o.GetName(), err)
			}
		}
	}
}

func documents(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var objects []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}
