// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// startTries bounds the ports tried: between finding a free port and listening on it, another
// process may take it.
const startTries = 5

// Server is a redis-server that belongs to one test.
type Server struct {
	t    testing.TB
	path string
	args []string
	port int
	cmd  *exec.Cmd
}

// Start starts a server and waits until it takes connections. args are more arguments, such
// as "--requirepass", "secret".
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("REQUIRE_REDIS") == "1" {
			t.Fatalf("REQUIRE_REDIS=1, but there is no redis-server: %v", err)
		}
		t.Skipf("no redis-server: %v", err)
	}
	s := &Server{t: t, path: path, args: args}
	t.Cleanup(s.Stop)
	for range startTries {
		s.port = freePort(t)
		if err = s.start(); err == nil {
			return s
		}
	}
	t.Fatalf("start redis-server: %v", err)
	return nil
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	defer func() { _ = l.Close() }()
	addr, _ := l.Addr().(*net.TCPAddr)
	return addr.Port
}

// start returns an error when the server ended before it was ready.
func (s *Server) start() error {
	args := []string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.t.TempDir()}
	// Not the test's context: it ends before the cleanups run, which may still use the server.
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), s.path, append(args, s.args...)...)
	cmd.SysProcAttr = diesWithParent()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	s.cmd = cmd
	if !ready(out) {
		_ = cmd.Wait()
		s.cmd = nil
		return fmt.Errorf("ended before it was ready (port %d)", s.port)
	}
	return nil
}

// ready reads the server's log until it takes connections. A server logs so little that the pipe
// never fills afterwards.
func ready(out io.Reader) bool {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			return true
		}
	}
	return false
}

// Addr is host:port of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Client is a plain client for looking at the server's data, closed with the test.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Pause hangs the server: connections stay open, nothing is answered (SIGSTOP).
func (s *Server) Pause() { s.t.Helper(); s.signal(syscall.SIGSTOP) }

// Resume ends Pause (SIGCONT): the server works off what was sent in the meantime.
func (s *Server) Resume() { s.t.Helper(); s.signal(syscall.SIGCONT) }

// Stop kills the server: its port refuses connections. Nothing happens if it does not run.
func (s *Server) Stop() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	s.signal(syscall.SIGKILL)
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Restart kills the server if it runs and starts it again on the same port, with no data.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	if err := s.start(); err != nil {
		s.t.Fatalf("restart redis-server: %v", err)
	}
}

// FlushAll deletes all data.
func (s *Server) FlushAll() {
	s.t.Helper()
	if err := s.Client().FlushAll(context.WithoutCancel(s.t.Context())).Err(); err != nil {
		s.t.Fatalf("flush redis: %v", err)
	}
}

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("signal %v to redis-server: %v", sig, err)
	}
}
