// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// try runs a command in the repository with the cluster as its $KUBECONFIG, and returns all
// that it printed.
func try(ctx context.Context, input string, name string, args ...string) (string, error) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+config.kubeconfig)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	GinkgoWriter.Printf("$ %s %s\n%s\n", name, strings.Join(args, " "), out.String())
	return out.String(), err
}

// kubectl runs kubectl as a user does and returns what it prints.
func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := try(ctx, "", "kubectl", args...)
	Expect(err).NotTo(HaveOccurred(), "kubectl %s: %s", strings.Join(args, " "), out)
	return out
}

// refused runs kubectl with a manifest, which must be refused, and returns why.
func refused(ctx context.Context, manifest string, args ...string) string {
	GinkgoHelper()
	out, err := try(ctx, manifest, "kubectl", args...)
	Expect(err).To(HaveOccurred(), out)
	return out
}

// create creates what a manifest says, with more arguments.
func create(ctx context.Context, manifest string, args ...string) {
	GinkgoHelper()
	out, err := try(ctx, manifest, "kubectl", append([]string{"create", "-f", "-"}, args...)...)
	Expect(err).NotTo(HaveOccurred(), out)
}

// helm runs the pinned Helm.
func helm(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := try(ctx, "", "go", append([]string{"tool", "-modfile=hack/tools/helm/go.mod", "helm"}, args...)...)
	Expect(err).NotTo(HaveOccurred(), "helm %s: %s", strings.Join(args, " "), out)
	return out
}
