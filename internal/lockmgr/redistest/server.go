// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
)

// saved is the file that servers save to. There is none, but for a moment.
const saved = "dump.rdb"

// Server is a redis-server that belongs to one test.
type Server struct {
	t    testing.TB
	path string
	dir  string
	args []string
	port int
	cmd  *exec.Cmd

	tls *certs.Files // nil: plain text
	env []string     // more variables
	// sentinel is the configuration file of a sentinel, which rewrites it; empty: a server.
	sentinel string
	// admin logs in whoever looks at the server's data.
	adminUser, adminPassword string

	own   *redis.Client         // see admin
	watch *redis.SentinelClient // likewise, of a sentinel
}

// Start starts a server and waits until it takes connections. args are more arguments, such
// as "--requirepass", "secret".
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t)
	s.args = args
	s.begin()
	return s
}

func newServer(t testing.TB) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("REQUIRE_REDIS") == "1" {
			t.Fatalf("REQUIRE_REDIS=1, but there is no redis-server: %v", err)
		}
		t.Skipf("no redis-server: %v", err)
	}
	return &Server{t: t, path: path, dir: t.TempDir()}
}

// begin starts the server for the first time, and ends it with the test.
func (s *Server) begin() {
	s.t.Helper()
	s.t.Cleanup(s.Stop)
	s.port = FreePort(s.t)
	if err := s.start(); err != nil {
		s.t.Fatalf("start redis-server: %v", err)
	}
}

// FreePort is a port of this machine that nobody else is given before it is listened on.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// start returns an error when the server ended before it was ready.
func (s *Server) start() error {
	// Not the test's context: it ends before the cleanups run, which may still use the server.
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), s.path, append(s.fixed(), s.args...)...)
	cmd.SysProcAttr = diesWithParent()
	cmd.Env = append(os.Environ(), s.env...)
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
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the server
	return nil
}

// fixed are the arguments that follow from what the server is.
func (s *Server) fixed() []string {
	port := strconv.Itoa(s.port)
	args := []string{"--bind", "127.0.0.1", "--dir", s.dir, "--port", port}
	if s.tls != nil {
		args = append(args[:4], "--port", "0", "--tls-port", port, "--tls-cert-file", s.tls.Cert, "--tls-key-file", s.tls.Key,
			"--tls-ca-cert-file", s.tls.CA, "--tls-auth-clients", "yes", "--tls-replication", "yes")
	}
	if s.sentinel != "" {
		return append([]string{s.sentinel, "--sentinel"}, args...)
	}
	return append(args, "--save", "", "--appendonly", "no")
}

// ready reads the server's log until it takes connections.
func ready(out io.Reader) bool {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "Ready to accept connections") || strings.Contains(lines.Text(), "Sentinel ID is") {
			return true
		}
	}
	return false
}

// Addr is host:port of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Client is a plain client for looking at the server's data, closed with the test.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(s.options())
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// options are for a client with all rights.
func (s *Server) options() *redis.Options {
	o := &redis.Options{Addr: s.Addr(), Username: s.adminUser, Password: s.adminPassword}
	if s.tls != nil {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&tls.Dialer{Config: s.tls.Client(s.t)}).DialContext(ctx, network, addr)
		}
	}
	return o
}

// admin is a client that all calls of a test share. It is not for several goroutines to begin with.
func (s *Server) admin() *redis.Client {
	if s.own == nil {
		s.own = s.Client()
	}
	return s.own
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

// BreakSaving has the server's last save fail, so that it refuses writes (MISCONF): a folder is
// where the file should be. mend ends that, and leaves no file.
func (s *Server) BreakSaving() (mend func()) {
	s.t.Helper()
	file := filepath.Join(s.dir, saved)
	if err := os.Mkdir(file, 0o700); err != nil {
		s.t.Fatal(err)
	}
	s.must("CONFIG", "SET", "save", "3600 1")
	s.save("err")
	s.awaitAnswer("MISCONF", "SET", ballastKey(0), "")
	return func() {
		if err := os.Remove(file); err != nil {
			s.t.Fatal(err)
		}
		s.save("ok")
		s.must("CONFIG", "SET", "save", "")
		if err := os.Remove(file); err != nil {
			s.t.Fatal(err)
		}
	}
}

// save saves in the background, and waits until that has ended as it should.
func (s *Server) save(status string) {
	s.t.Helper()
	s.must("BGSAVE")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), setPatience)
	defer cancel()
	tick := time.NewTicker(setPoll)
	defer tick.Stop()
	for {
		info := s.admin().Info(ctx, "persistence").Val()
		if strings.Contains(info, "rdb_bgsave_in_progress:0") && strings.Contains(info, "rdb_last_bgsave_status:"+status) {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("not saved with %q within %s: %s", status, setPatience, info)
		case <-tick.C:
		}
	}
}

// RestartSlowly saves, kills the server, and starts it again with what it had: for a time it
// answers that it is loading. loaded waits until that is over, and leaves no file.
func (s *Server) RestartSlowly(d time.Duration) (loaded func()) {
	s.t.Helper()
	const keys = 40
	ballast := make([]byte, 16<<10)
	for i := range keys {
		_, _ = rand.Read(ballast) // else it is stored in fewer bytes than there are between two looks at requests
		s.must("SET", ballastKey(i), ballast)
	}
	s.must("SAVE")
	s.Stop()
	args := s.args
	s.args = append(slices.Clip(args), "--key-load-delay", strconv.FormatInt((d/keys).Microseconds(), 10), "--loading-process-events-interval-bytes", "1024")
	started := make(chan error, 1)
	go func() { started <- s.start() }()
	s.awaitAnswer("LOADING", "GET", ballastKey(0))
	return func() {
		s.t.Helper()
		err := <-started
		s.args = args
		if err != nil {
			s.t.Fatalf("start redis-server with what it saved: %v", err)
		}
		for i := range keys {
			s.must("DEL", ballastKey(i))
		}
		if err := os.Remove(filepath.Join(s.dir, saved)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// awaitAnswer asks until the answer is an error of that kind: else a fault did not happen.
func (s *Server) awaitAnswer(kind string, command ...any) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), setPatience)
	defer cancel()
	tick := time.NewTicker(setPoll)
	defer tick.Stop()
	for {
		err := s.admin().Do(ctx, command...).Err()
		if err != nil && strings.HasPrefix(err.Error(), kind) {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("no answer %s within %s: %v", kind, setPatience, err)
		case <-tick.C:
		}
	}
}

func ballastKey(i int) string { return "ballast-" + strconv.Itoa(i) }

// must sends a command with all rights.
func (s *Server) must(command ...any) {
	s.t.Helper()
	if err := s.admin().Do(context.WithoutCancel(s.t.Context()), command...).Err(); err != nil {
		s.t.Fatalf("%v: %v", command[0], err)
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
