// SPDX-License-Identifier: Apache-2.0

package devenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
)

// APIServer is another kube-apiserver on the etcd of an Env. It takes the same credentials as the
// first, which does not notice when this one is killed.
type APIServer struct {
	*Process
	Config *rest.Config

	path, log string
	args      []string
}

// StartSecondAPIServer starts one and returns when it is ready. It runs until Kill.
func (e *Env) StartSecondAPIServer(ctx context.Context) (*APIServer, error) {
	port, err := ports.Free()
	if err != nil {
		return nil, err
	}
	const host = "127.0.0.1"
	first := e.cluster.ControlPlane.GetAPIServer()
	in := func(name string) string { return filepath.Join(first.CertDir, name) }
	s := &APIServer{Config: rest.CopyConfig(e.Config), path: first.Path, log: filepath.Join(e.dir, "kube-apiserver-2.log"), args: []string{
		"--etcd-servers=" + e.EtcdURL(), "--bind-address=" + host, "--secure-port=" + strconv.Itoa(port), "--cert-dir=" + first.CertDir,
		"--client-ca-file=" + in("client-cert-auth-ca.crt"), "--authorization-mode=RBAC", "--service-account-issuer=https://" + host + "/",
		"--service-account-key-file=" + in("sa-signer.crt"), "--service-account-signing-key-file=" + in("sa-signer.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount", "--allow-privileged=true",
	}}
	s.Config.Host = net.JoinHostPort(host, strconv.Itoa(port))
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Start starts it after Kill, at the same address, and returns when it is ready. It fails when the
// server ends or ctx does.
func (s *APIServer) Start(ctx context.Context) error {
	c, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	p, err := startProcess(s.path, s.args, nil, s.log)
	if err != nil {
		return err
	}
	s.Process = p
	readyz := c.Discovery().RESTClient().Get().AbsPath("/readyz")
	if err := s.await(ctx, "kube-apiserver", func() bool { return readyz.Do(ctx).Error() == nil }); err != nil {
		return errors.Join(err, s.Kill())
	}
	return nil
}
