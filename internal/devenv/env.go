// SPDX-License-Identifier: Apache-2.0

package devenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// OperatorNamespace is where the operator keeps its own objects.
const OperatorNamespace = "syncopate-system"

// Options say where things are.
type Options struct {
	Root        string    // root of the repository: CRDs are read from it
	Dir         string    // directory for state and logs; must exist
	RequireReal bool      // refuse the embedded stand-in for Redis
	Log         io.Writer // says what is started; nil: nothing
	// APIServerArgs are arguments of kube-apiserver, by their names without dashes.
	APIServerArgs map[string]string
	// EtcdDir is where etcd has its data, for those who stop it to copy them or to put a copy
	// back. Empty: a directory that goes with it.
	EtcdDir string
}

// Env is a running environment.
type Env struct {
	Config     *rest.Config
	Kubeconfig string // path of a kubeconfig with all rights
	NATS       *NATS
	Redis      *Redis

	dir     string
	cluster *envtest.Environment
}

// Start starts API server, NATS and Redis, and installs the CRDs. Stop must be called also
// after an error.
func Start(ctx context.Context, o Options) (*Env, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	e := &Env{dir: o.Dir}
	if err := e.startCluster(o); err != nil {
		return e, err
	}
	var err error
	if e.NATS, err = StartNATS(filepath.Join(o.Dir, "nats")); err != nil {
		return e, err
	}
	fmt.Fprintf(o.Log, "nats-server      in process, JetStream on disk     %s\n", e.NATS.URL())
	if e.Redis, err = StartRedis(ctx, o.Dir, o.RequireReal); err != nil {
		return e, err
	}
	fmt.Fprintf(o.Log, "redis            %-33s %s\n", e.Redis.Kind, e.Redis.Addr)
	return e, e.prepareNamespace(ctx)
}

func (e *Env) startCluster(o Options) error {
	var err error
	if e.cluster, err = startAPIServer(Assets(o.Root), o.EtcdDir, o.APIServerArgs, filepath.Join(o.Root, "config", "crd", "bases")); err != nil {
		return err
	}
	e.Config = e.cluster.Config
	e.Kubeconfig = filepath.Join(o.Dir, "kubeconfig")
	if err := os.WriteFile(e.Kubeconfig, e.cluster.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	fmt.Fprintf(o.Log, "kube-apiserver   real, with etcd                   %s\n", e.Config.Host)
	return nil
}

func (e *Env) prepareNamespace(ctx context.Context) error {
	c, err := client.New(e.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: OperatorNamespace}}
	if err := c.Create(ctx, ns); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	return nil
}

// EtcdURL is where the etcd of the API server takes requests.
func (e *Env) EtcdURL() string { return e.cluster.ControlPlane.Etcd.URL.String() }

// StopEtcd ends etcd, and leaves its data where Options.EtcdDir says. API servers that run go on
// without it.
func (e *Env) StopEtcd() error {
	if err := e.cluster.ControlPlane.Etcd.Stop(); err != nil {
		return fmt.Errorf("stop etcd: %w", err)
	}
	return nil
}

// StartEtcd starts it after StopEtcd, at the same address, with the data that are in
// Options.EtcdDir by then. An API server that ran on meanwhile has caches of what was there before:
// start another one.
func (e *Env) StartEtcd() error {
	if err := e.cluster.ControlPlane.Etcd.Start(); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	return nil
}

// Stop ends everything.
func (e *Env) Stop() error {
	var errs []error
	if e.Redis != nil {
		errs = append(errs, e.Redis.Stop())
	}
	if e.NATS != nil {
		e.NATS.Stop()
	}
	if e.cluster != nil {
		errs = append(errs, e.cluster.Stop())
	}
	return errors.Join(errs...)
}
