// SPDX-License-Identifier: Apache-2.0

package devenv

import (
	"bytes"
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
func (e *Env) KillAPIServer() (restart func() error, err error) {
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
	return func() error {
		var err error
		if e.apiServer, err = startProcess(args[0], args[1:], nil, filepath.Join(e.dir, "kube-apiserver.log")); err != nil {
			return err
		}
		return e.awaitAPIServer()
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

func (e *Env) awaitAPIServer() error {
	client, err := rest.HTTPClientFor(e.Config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	patience := time.NewTimer(apiServerPatience)
	defer patience.Stop()
	tick := time.NewTicker(apiServerLook)
	defer tick.Stop()
	for {
		resp, err := client.Get(e.Config.Host + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-patience.C:
			return fmt.Errorf("the API server is not ready after %s, see %s", apiServerPatience, e.apiServer.Log)
		case <-e.apiServer.Done():
			return fmt.Errorf("the API server ended, see %s: %w", e.apiServer.Log, e.apiServer.err)
		case <-tick.C:
		}
	}
}
