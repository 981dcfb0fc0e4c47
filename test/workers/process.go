// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// Command is a worker that is a program.
type Command struct {
	Dir  string   // working directory; empty: the caller's
	Args []string // program and arguments
	Env  []string // beside the caller's environment
}

// Start runs the program. It is a Config.Start.
func (c Command) Start() (Process, error) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), c.Env...)
	p := &child{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	// A group of its own: what the program starts is killed with it, and an interrupt at the
	// terminal reaches the kit first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Args[0], err)
	}
	go func() { // ends with the program; Kill and Terminate wait for it
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

type child struct {
	cmd    *exec.Cmd
	output buffer
	done   chan struct{}
	err    error // of Wait; set when done is closed
}

func (p *child) Kill() error {
	err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

func (p *child) Terminate(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("it did not end: %w", ctx.Err()), p.Kill())
	}
}

func (p *child) Output() string { return p.output.String() }

// buffer may be read while a program writes to it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
