// SPDX-License-Identifier: Apache-2.0

package devenv

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
)

// Process is a child process whose output goes to a file.
type Process struct {
	Log  string // path of the file with its output
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; set when done is closed
}

func startProcess(path string, args, env []string, logPath string) (*Process, error) {
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	// A group of its own: an interrupt at the terminal reaches the parent, which then stops its
	// children in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", filepath.Base(path), err), out.Close())
	}
	p := &Process{Log: logPath, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = errors.Join(cmd.Wait(), out.Close())
		close(p.done)
	}()
	return p, nil
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", filepath.Base(p.cmd.Path), err)
	}
	return nil
}

// Kill ends the process at once (SIGKILL) and waits until it is gone.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.done
	return err
}

// Terminate asks the process to end (SIGTERM) and waits for it; its error is how it ended.
func (p *Process) Terminate(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("terminate %s: %w", filepath.Base(p.cmd.Path), ctx.Err()), p.Kill())
	}
}

// PID is the process' number, by which the kernel tells what it uses.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// StartProcess starts any program with extra environment variables; its output goes
// to <dir>/<name>.log.
func (e *Env) StartProcess(path, name string, env ...string) (*Process, error) {
	return startProcess(path, nil, env, filepath.Join(e.dir, name+".log"))
}

// Manager is an operator process.
type Manager struct {
	*Process
	Metrics string // address of its metrics
	Probes  string // address of livez and readyz
}

// StartManager starts an operator, connected to this environment; args override its flags.
func (e *Env) StartManager(ctx context.Context, binary, name string, args ...string) (*Manager, error) {
	return e.StartManagerIn(ctx, nil, binary, name, args...)
}

// StartManagerIn is StartManager with more variables of its environment.
func (e *Env) StartManagerIn(ctx context.Context, env []string, binary, name string, args ...string) (*Manager, error) {
	metricsPort, err := ports.Free()
	if err != nil {
		return nil, err
	}
	probePort, err := ports.Free()
	if err != nil {
		return nil, err
	}
	m := &Manager{Metrics: "127.0.0.1:" + strconv.Itoa(metricsPort), Probes: "127.0.0.1:" + strconv.Itoa(probePort)}
	flags := append([]string{
		"--namespace", OperatorNamespace, "--holder", name, "--leader-elect=false",
		"--nats-url", e.NATS.URL(), "--redis-addrs", e.Redis.Addr,
		"--metrics-bind-address", m.Metrics, "--metrics-secure=false", "--health-probe-bind-address", m.Probes,
	}, args...)
	m.Process, err = startProcess(binary, flags, append([]string{"KUBECONFIG=" + e.Kubeconfig}, env...), filepath.Join(e.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Ready waits until readyz says so; it fails when the process ends or ctx does.
func (m *Manager) Ready(ctx context.Context) error {
	return m.await(ctx, "operator", func() bool { return m.ready(ctx) })
}

// await looks until the process is ready; it fails when the process ends or ctx does.
func (p *Process) await(ctx context.Context, what string, ready func() bool) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if ready() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready, see %s: %w", what, p.Log, ctx.Err())
		case <-p.done:
			return fmt.Errorf("%s ended, see %s: %w", what, p.Log, p.err)
		case <-tick.C:
		}
	}
}

func (m *Manager) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Probes+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}
