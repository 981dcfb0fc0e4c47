// SPDX-License-Identifier: Apache-2.0

// Package packaging proves on a real API server what config/ and charts/ install: that every object
// is taken as it stands, that pods of the Deployment are let into their namespace, what the
// operator's account and people may do, and that the operator's requests wait where its flow
// schemas say. That the chart renders the same objects as kustomize is hack/compare-charts.sh's
// business; so here kustomize's are installed, and of the chart there is what it says to values.
package packaging

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/syncopate-dev/syncopate/internal/testenv"
)

const operatorNamespace = "syncopate-system"

// moduleRoot is the repository, seen from this package.
var moduleRoot = filepath.Join("..", "..")

// server is the API server that all tests of the package share, with config/default-webhook
// installed. It has no controllers.
var server struct {
	env    *envtest.Environment
	config *rest.Config
	client client.Client
	helm   string // path of its binary
}

func TestMain(m *testing.M) {
	os.Exit(runWithServer(m))
}

func runWithServer(m *testing.M) int {
	home, err := os.MkdirTemp("", "helm-") // plugins and repositories of whoever runs this are not wanted
	if err != nil {
		fmt.Fprintln(os.Stderr, "make a home for helm:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(home) }()
	for _, name := range []string{"HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"} {
		if err := os.Setenv(name, home); err != nil {
			fmt.Fprintln(os.Stderr, "make a home for helm:", err)
			return 1
		}
	}
	return testenv.With(m, prepare)
}

// prepare builds helm and installs config/default-webhook.
func prepare(env *envtest.Environment) error {
	server.env, server.config = env, env.Config
	scheme, err := testenv.Scheme()
	if err != nil {
		return err
	}
	if server.client, err = client.New(server.config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	path, err := run(nil, "go", "tool", "-modfile=hack/tools/helm/go.mod", "-n", "helm") // builds it, if need be
	if err != nil {
		return fmt.Errorf("build helm: %w", err)
	}
	server.helm = strings.TrimSpace(string(path))
	return install()
}

// install is kubectl apply -k config/default-webhook.
func install() error {
	manifests, err := run(nil, "go", "tool", "-modfile=hack/tools/go.mod", "kustomize", "build", "config/default-webhook")
	if err != nil {
		return err
	}
	return apply(manifests)
}

// apply is kubectl apply --server-side with strict validation: an unknown field, or one that is
// there twice, is an error.
func apply(manifests []byte, args ...string) error {
	_, err := kubectl(manifests, append([]string{"apply", "--server-side", "--validate=strict", "-f", "-"}, args...)...)
	return err
}

// kubectl runs it as the administrator.
func kubectl(stdin []byte, args ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "kubectl-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the kubeconfig: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, server.env.KubeConfig, 0o600); err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	program, err := filepath.Abs(filepath.Join(server.env.BinaryAssetsDirectory, "kubectl"))
	if err != nil {
		return nil, err
	}
	return run(stdin, program, append([]string{"--kubeconfig", kubeconfig}, args...)...)
}

// run runs a program at the root of the repository; the error has what it said.
func run(stdin []byte, program string, args ...string) ([]byte, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = moduleRoot
	cmd.Stdin = bytes.NewReader(stdin)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, said.String())
	}
	return out.Bytes(), nil
}

// kustomize is kustomize build.
func kustomize(t *testing.T, dir string) []byte {
	t.Helper()
	out, err := run(nil, "go", "tool", "-modfile=hack/tools/go.mod", "kustomize", "build", dir)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// helm is helm template with an image and these arguments.
func helm(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	return run(nil, server.helm, append([]string{"template", "syncopate", "charts/syncopate", "--namespace", operatorNamespace, "--set", "image.tag=dev"}, args...)...)
}

func objects(t *testing.T, manifests []byte) []*unstructured.Unstructured {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	var found []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			found = append(found, o)
		}
	}
}
