// SPDX-License-Identifier: Apache-2.0

// Package apirules proves the rules of the API on a real API server: what it fills in, what it
// refuses and with which words, what it serves to `kubectl get` and to field selectors, and what a
// status write costs.
//
// No operator runs here. The guarantees G3 (one writer) and G7 (ends are absorbing) rest on the
// rules alone, so each of them is shown by a write which the API server refuses, and by the nearest
// write which it must not refuse.
package apirules

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// moduleRoot is the repository, seen from this package.
var moduleRoot = filepath.Join("..", "..")

// server is the API server that all tests of the package share; every test makes objects
// of its own.
var server struct {
	env    *envtest.Environment
	client client.Client
}

func TestMain(m *testing.M) {
	os.Exit(testenv.With(m, func(s *envtest.Environment) error {
		scheme, err := testenv.Scheme()
		if err != nil {
			return err
		}
		c, err := client.New(s.Config, client.Options{Scheme: scheme})
		server.env, server.client = s, client.WithFieldValidation(c, "Strict")
		return err
	}, testenv.CRDs()))
}

// aRun is the smallest run that the API server accepts, with further lines of spec, each indented
// by two spaces.
func aRun(spec ...string) string {
	steps := "  steps: [{name: a, job: {topic: demo.echo}}]"
	return aRunOf(append([]string{steps}, spec...)...)
}

// aRunOf is a run with exactly these lines of spec.
func aRunOf(spec ...string) string {
	head := "apiVersion: syncopate.dev/v1alpha1\nkind: WorkflowRun\nmetadata: {generateName: run-, namespace: default}\n"
	if len(spec) == 0 {
		return head + "spec: {}\n"
	}
	return head + "spec:\n" + strings.Join(spec, "\n") + "\n"
}

// aPolicy is a LockPolicy with these lines of spec next to its classes.
func aPolicy(spec ...string) string {
	return "apiVersion: syncopate.dev/v1alpha1\nkind: LockPolicy\nmetadata: {generateName: policy-}\n" +
		"spec:\n  workloadClasses: [batch]\n" + strings.Join(spec, "\n") + "\n"
}

func parse(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(manifest), &o.Object); err != nil {
		t.Fatalf("the test's manifest is not YAML: %v\n%s", err, manifest)
	}
	return o
}

// create applies the manifest; the object is deleted when the test ends.
func create(t testing.TB, manifest string) (*unstructured.Unstructured, error) {
	t.Helper()
	o := parse(t, manifest)
	err := server.client.Create(t.Context(), o)
	if err == nil {
		t.Cleanup(func() {
			if err := server.client.Delete(context.WithoutCancel(t.Context()), o); client.IgnoreNotFound(err) != nil {
				t.Errorf("delete what the test made: %v", err)
			}
		})
	}
	return o, err
}

func mustCreate(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	o, err := create(t, manifest)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return o
}

// patch merges the YAML into the object, through its main endpoint.
func patch(t testing.TB, o *unstructured.Unstructured, mergePatch string) error {
	t.Helper()
	return server.client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, asJSON(t, mergePatch)))
}

// patchStatus merges the YAML into the object, through its status endpoint.
func patchStatus(t testing.TB, o *unstructured.Unstructured, mergePatch string) error {
	t.Helper()
	return server.client.Status().Patch(t.Context(), o, client.RawPatch(types.MergePatchType, asJSON(t, mergePatch)))
}

func asJSON(t testing.TB, text string) []byte {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("the test's patch is not YAML: %v\n%s", err, text)
	}
	return data
}

// wantRefused fails the test unless the API server refused with all these words; no words mean that
// it had to accept.
func wantRefused(t testing.TB, err error, words ...string) {
	t.Helper()
	if len(words) == 0 {
		if err != nil {
			t.Fatalf("refused, but it is allowed: %v", err)
		}
		return
	}
	if err == nil {
		t.Fatalf("accepted, but it must be refused with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("refused without the words %q: %v", w, err)
		}
	}
}
