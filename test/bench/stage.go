// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/devenv"
)

// stage has the servers that suites share. They are started by the first suite that needs them.
type stage struct {
	options options

	dir    string
	env    *devenv.Env
	k8s    client.WithWatch
	binary string // of the operator
	worlds int
}

// open starts the control plane and builds the operator, once.
func (s *stage) open(ctx context.Context) error {
	if s.k8s != nil {
		return nil
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "syncopate-bench-"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	fmt.Fprintln(os.Stderr, "building the operator, starting kube-apiserver, etcd, nats-server and redis-server")
	s.binary = filepath.Join(s.dir, "manager")
	build := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "./cmd/manager")
	build.Dir = s.options.root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the operator: %w\n%s", err, out)
	}
	s.env, s.k8s, err = startEnv(ctx, s.options.root, s.dir)
	return err
}

// startEnv starts servers with their state in a directory. The environment has to be stopped also
// after an error.
func startEnv(ctx context.Context, root, dir string) (*devenv.Env, client.WithWatch, error) {
	env, err := devenv.Start(ctx, devenv.Options{Root: root, Dir: dir, RequireReal: true})
	if err != nil {
		return env, nil, err
	}
	c, err := devenv.Client(env.Config)
	return env, c, err
}

// close ends what open started.
func (s *stage) close(log io.Writer) {
	if s.env != nil {
		if err := s.env.Stop(); err != nil {
			fmt.Fprintln(log, "stop the servers:", err)
		}
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir) // below the system's directory for such files
	}
}

// size picks the small size with -short.
func (s *stage) size(full, short int) int {
	if s.options.short {
		return short
	}
	return full
}
