// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// callLimit bounds what a test waits for an answer of a child that must come.
const callLimit = 30 * time.Second

// process is a child process, as its test sees it.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	peer *peer
	// ended is closed when the process has ended; err is how.
	ended chan struct{}
	err   error
	// killed says that the test killed it.
	killed bool
	stdin  interface{ Close() error }
}

// startProcess starts a child that uses the Redis at addr; offers are the methods that it may call.
// It ends with the test, which fails when the child ends badly, as it does after a data race.
func startProcess(t testing.TB, name, addr string, offers methods) *process {
	t.Helper()
	config, err := json.Marshal(childConfig{Name: name, Redis: addr})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(config))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = diesWithParent()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start child %s: %v", name, err)
	}
	p := &process{t: t, name: name, cmd: cmd, peer: newPeer(in, offers), ended: make(chan struct{}), stdin: in}
	go func() {
		defer close(p.ended)
		p.peer.serve(context.WithoutCancel(t.Context()), out)
		p.err = cmd.Wait()
	}()
	t.Cleanup(p.stop)
	return p
}

// ask calls a method of a child, which must succeed.
func ask[Out any](t testing.TB, p *process, method string, in any) Out {
	t.Helper()
	out, err := try[Out](t.Context(), p, method, in)
	if err != nil {
		t.Fatalf("child %s: %v", p.name, err)
	}
	return out
}

// try calls a method of a child.
func try[Out any](ctx context.Context, p *process, method string, in any) (Out, error) {
	var out Out
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, errors.New("no answer"))
	defer cancel()
	return out, p.peer.call(ctx, method, in, &out)
}

// stop ends the process in good order. Nothing happens if it has ended.
func (p *process) stop() {
	p.t.Helper()
	if p.killed {
		return
	}
	p.signal(syscall.SIGCONT) // a test that failed may have left it paused
	_ = p.stdin.Close()       // it may have ended
	select {
	case <-p.ended:
	case <-time.After(callLimit):
		p.t.Errorf("child %s does not end", p.name)
		p.kill()
		return
	}
	p.killed = true
	if p.err != nil {
		p.t.Errorf("child %s: %v", p.name, p.err)
	}
}

// kill kills the process (SIGKILL), paused or not, and waits until all that it said was heard.
func (p *process) kill() {
	p.t.Helper()
	p.killed = true
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// pause stops the process where it is (SIGSTOP), and resume lets it go on (SIGCONT).
func (p *process) pause()  { p.t.Helper(); p.signal(syscall.SIGSTOP) }
func (p *process) resume() { p.t.Helper(); p.signal(syscall.SIGCONT) }

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %v to child %s: %v", sig, p.name, err)
	}
}
