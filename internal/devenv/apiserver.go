// SPDX-License-Identifier: Apache-2.0

package devenv

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
)

// Assets is the directory of kube-apiserver, etcd and kubectl: $KUBEBUILDER_ASSETS, or where make
// controlplane puts them below the root of the repository.
func Assets(root string) string {
	return cmp.Or(os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join(root, "bin", "k8s"))
}

// StartAPIServer starts kube-apiserver and etcd, and installs the CRDs of folders. Its Config has
// no limit of requests on the side of the client, which would be the slowest part of every test.
func StartAPIServer(assets string, crds ...string) (*envtest.Environment, error) {
	return StartAPIServerWith(assets, nil, crds...)
}

// StartAPIServerWith is StartAPIServer with more arguments of kube-apiserver.
func StartAPIServerWith(assets string, args map[string]string, crds ...string) (*envtest.Environment, error) {
	return startAPIServer(assets, "", args, crds...)
}

// startAPIServer has etcd keep its data in etcdDir; empty: in a directory that goes with it.
func startAPIServer(assets, etcdDir string, args map[string]string, crds ...string) (*envtest.Environment, error) {
	s := &envtest.Environment{
		BinaryAssetsDirectory: assets, CRDDirectoryPaths: crds, ErrorIfCRDPathMissing: true,
		ControlPlaneStartTimeout: time.Minute, // a busy machine takes longer than the 20 s that it has by itself
	}
	if err := place(&s.ControlPlane); err != nil {
		return nil, err
	}
	s.ControlPlane.Etcd.DataDir = etcdDir
	for name, value := range args {
		s.ControlPlane.GetAPIServer().Configure().Set(name, value)
	}
	if _, err := s.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start kube-apiserver and etcd of %s: %w", assets, err), s.Stop()) // a part of it may run
	}
	s.Config.QPS, s.Config.Burst = -1, -1
	return s, nil
}

// place gives the servers ports that nobody else is given before they listen.
func place(plane *envtest.ControlPlane) error {
	client, errClient := ports.Address()
	peer, errPeer := ports.Address()
	api, errAPI := ports.Free()
	if err := errors.Join(errClient, errPeer, errAPI); err != nil {
		return err
	}
	plane.Etcd = &envtest.Etcd{URL: &url.URL{Scheme: "http", Host: client}}
	plane.Etcd.Configure().Set("listen-peer-urls", "http://"+peer)
	plane.GetAPIServer().SecureServing.ListenAddr = envtest.ListenAddr{Address: "127.0.0.1", Port: strconv.Itoa(api)}
	return nil
}

// Client is a client for the kinds of Kubernetes and those of this repository.
func Client(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}
