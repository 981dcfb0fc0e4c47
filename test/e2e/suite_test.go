// SPDX-License-Identifier: Apache-2.0

// Package e2e runs the operator as users do: as processes of its own against a real API server, a
// real nats-server and a real Redis, with workers made with the public SDK. It proves the
// guarantees that span processes. What needs pods, a kubelet and installed manifests is in
// package cluster, below.
package e2e

import (
	"context"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

const root = "../.."

var (
	env    *devenv.Env
	k8s    client.WithWatch
	binary string // of the operator
)

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "E2E")
}

var _ = BeforeSuite(func(ctx context.Context) {
	dir := GinkgoT().TempDir()
	var err error
	binary, err = testenv.Operator(ctx, dir)
	Expect(err).NotTo(HaveOccurred())

	err = testenv.Lazily(func() (err error) {
		env, err = devenv.Start(ctx, devenv.Options{
			Root: root, Dir: dir, APIServerArgs: audited(dir),
			RequireReal: os.Getenv("REQUIRE_REDIS") == "1", Log: GinkgoWriter,
		})
		return err
	})
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	Expect(err).NotTo(HaveOccurred())

	k8s, err = devenv.Client(env.Config)
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(startTimeout))
