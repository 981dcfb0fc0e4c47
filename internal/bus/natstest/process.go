// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// childStore is the environment variable that makes a test binary a nats-server, with the directory
// of its store.
const childStore = "NATSTEST_STORE"

// Main makes a process that StartProcess or StartNodes started a nats-server, until its parent is
// gone. TestMain calls it first, and returns if it says that it was one.
func Main() (served bool) {
	dir, config := os.Getenv(childStore), os.Getenv(childConfig)
	var err error
	switch {
	case config != "":
		err = serveConfig(config)
	case dir != "":
		err = serve(dir)
	default:
		return false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nats-server:", err)
	}
	return true
}

func serve(dir string) error {
	s, err := server.NewServer(&server.Options{
		ServerName: "natstest", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return fmt.Errorf("make: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(startTimeout) {
		return errors.New("is not ready for connections")
	}
	if _, err := fmt.Fprintln(os.Stdout, s.ClientURL()); err != nil {
		return fmt.Errorf("tell the address: %w", err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent
	return nil
}

// Process is a nats-server in a process of its own, which can be stopped where it is: connections
// stay, and nothing answers.
type Process struct {
	tb  testing.TB
	cmd *exec.Cmd
	url string
}

// StartProcess runs a server until the test ends. The test's TestMain must call Main.
func StartProcess(tb testing.TB) *Process {
	tb.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), childStore+"="+tb.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("start nats-server: %v", err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		_ = in.Close()
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatalf("nats-server did not start: %v", err)
	}
	return &Process{tb: tb, cmd: cmd, url: strings.TrimSpace(url)}
}

// URL is where clients connect.
func (p *Process) URL() string { return p.url }

// Pause stops the process where it is (SIGSTOP), and waits until it has.
func (p *Process) Pause() {
	p.tb.Helper()
	p.signal(syscall.SIGSTOP)
	var how syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &how, syscall.WUNTRACED, nil); err != nil || !how.Stopped() {
		p.tb.Fatalf("nats-server is not stopped: %v, %v", how, err)
	}
}

// Resume lets it go on (SIGCONT).
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.tb.Fatalf("signal nats-server: %v", err)
	}
}
