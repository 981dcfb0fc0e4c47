// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
)

const (
	// serverEnv holds the serverConfig of a child process, as JSON; in a process that runs tests it
	// is not set.
	serverEnv = "LEDGER_NATS"
	// natsPatience bounds the start of a nats-server.
	natsPatience = time.Minute
)

// serverConfig is what a nats-server in a process of its own is told.
type serverConfig struct {
	Port       int
	Dir        string
	MaxPayload int32 // 0: the server's default, 1 MiB
}

// natsServer is a nats-server in a process of its own, so that it can be killed, which no server in
// this process can be.
type natsServer struct {
	tb       testing.TB
	config   serverConfig
	process  *devenv.Process
	restarts int
}

func startNATS(ctx context.Context, tb testing.TB) *natsServer {
	tb.Helper()
	port, err := ports.Free()
	if err != nil {
		tb.Fatal(err)
	}
	s := &natsServer{tb: tb, config: serverConfig{Dir: tb.TempDir(), Port: port}}
	s.start(ctx)
	tb.Cleanup(func() { _ = s.process.Kill() })
	return s
}

func (s *natsServer) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.config.Port) }

// start starts the server, at the same address with the same store each time.
func (s *natsServer) start(ctx context.Context) {
	s.tb.Helper()
	config, err := json.Marshal(s.config)
	if err != nil {
		s.tb.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		s.tb.Fatal(err)
	}
	if s.process, err = site.env.StartProcess(self, fmt.Sprintf("nats-%d", s.config.Port), serverEnv+"="+string(config)); err != nil {
		s.tb.Fatal(err)
	}
	await(ctx, s.tb, natsPatience, "the nats-server accepts connections", func() string {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", s.config.Port))
		if err != nil {
			return err.Error()
		}
		_ = conn.Close()
		return ""
	})
}

// restart ends the server, in good order or with SIGKILL, and starts it again.
func (s *natsServer) restart(ctx context.Context, kill bool) {
	s.tb.Helper()
	if kill {
		if err := s.process.Kill(); err != nil {
			s.tb.Fatal(err)
		}
	} else if err := s.process.Terminate(ctx); err != nil {
		s.tb.Fatal(err)
	}
	s.restarts++
	s.start(ctx)
}

// serveNATS is the child process: a nats-server until SIGTERM, or until its parent is gone.
func serveNATS(config string) int {
	var c serverConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	parent := os.Getppid()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: c.Port, JetStream: true, StoreDir: c.Dir, MaxPayload: c.MaxPayload, NoSigs: true, NoLog: true,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	s.Start()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			s.Shutdown()
			s.WaitForShutdown()
			return 0
		case <-tick.C:
			if os.Getppid() != parent {
				return 1
			}
		}
	}
}
