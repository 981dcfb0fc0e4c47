// SPDX-License-Identifier: Apache-2.0

package devenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

const (
	apiServerPatience = time.Minute
	apiServerLook     = 50 * time.Millisecond
)

// KillAPIServer kills the process of the API server (SIGKILL); etcd goes on. restart starts it
// again, with the same arguments, and returns when it is ready. Linux only.
func (e *Env) KillAPIServer() (restart func(context.Context) error, err error) {
	pid, args, err := e.findAPIServer()
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("kill the API server: %w", err)
	}
	if e.apiServer != nil { // its own, which was started by restart
		<-e.apiServer.Done()
	}
	return func(ctx context.Context) error {
		var err error
		if e.apiServer, err = startProcess(args[0], args[1:], nil, filepath.Join(e.dir, "kube-apiserver.log")); err != nil {
			return err
		}
		return e.awaitAPIServer(ctx)
	}, nil
}

// findAPIServer finds the process by the port that it listens on, which it was told.
func (e *Env) findAPIServer() (pid int, args []string, err error) {
	port := "--secure-port=" + e.cluster.ControlPlane.APIServer.SecureServing.Port
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, nil, fmt.Errorf("look for the API server: %w", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte(port+"\x00")) {
			continue
		}
		if _, err := fmt.Sscanf(path, "/proc/%d/cmdline", &pid); err != nil {
			return 0, nil, fmt.Errorf("look for the API server: %w", err)
		}
		return pid, strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), nil
	}
	return 0, nil, errors.New("no process is the API server's")
}

func (e *Env) awaitAPIServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiServerPatience)
	defer cancel()
	client, err := rest.HTTPClientFor(e.Config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	tick := time.NewTicker(apiServerLook)
	defer tick.Stop()
	for {
		if e.apiServerReady(ctx, client) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready after %s, see %s", apiServerPatience, e.apiServer.Log)
		case <-e.apiServer.Done():
			return fmt.Errorf("the API server ended, see %s: %w", e.apiServer.Log, e.apiServer.err)
		case <-tick.C:
		}
	}
}

func (e *Env) apiServerReady(ctx context.Context, client *http.Client) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.Config.Host+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}
