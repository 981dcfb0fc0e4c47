// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const startTimeout = 10 * time.Second

// Server is a running nats-server.
type Server struct {
	tb      testing.TB
	stores  string // all stores are in it, so that it outlives the server
	options *server.Options
	running *server.Server
}

// Start runs a server until the test ends. adjust may change its options before.
func Start(tb testing.TB, adjust ...func(*server.Options)) *Server {
	tb.Helper()
	s := &Server{tb: tb, stores: tb.TempDir(), options: &server.Options{
		ServerName: "natstest",
		Host:       "127.0.0.1",
		Port:       freePorts(tb, 1)[0],
		JetStream:  true,
		NoLog:      true,
		NoSigs:     true,
	}}
	s.options.StoreDir = s.newStore()
	for _, f := range adjust {
		f(s.options)
	}
	s.start()
	tb.Cleanup(s.Shutdown)
	return s
}

func (s *Server) start() {
	s.tb.Helper()
	running, err := server.NewServer(s.options.Clone())
	if err != nil {
		s.tb.Fatalf("new nats-server: %v", err)
	}
	s.running = running
	running.Start()
	if !running.ReadyForConnections(startTimeout) {
		s.tb.Fatalf("nats-server is not ready after %s", startTimeout)
	}
}

// URL is where clients connect. It stays the same across restarts.
func (s *Server) URL() string { return s.running.ClientURL() }

// Shutdown stops the server and waits for it. It may be called again, and Restart may follow.
func (s *Server) Shutdown() {
	s.running.Shutdown()
	s.running.WaitForShutdown()
}

// RestartEmpty stops the server and starts it on the same port, with an empty store.
func (s *Server) RestartEmpty() {
	s.tb.Helper()
	s.RestartOn(s.newStore())
}

func (s *Server) newStore() string {
	s.tb.Helper()
	dir, err := os.MkdirTemp(s.stores, "store-")
	if err != nil {
		s.tb.Fatal(err)
	}
	return dir
}

// CopyStore restarts the server and gives a copy of the store as it was in between.
func (s *Server) CopyStore() (dir string) {
	s.tb.Helper()
	s.Shutdown()
	dir = s.newStore()
	if err := os.CopyFS(dir, os.DirFS(s.options.StoreDir)); err != nil {
		s.tb.Fatalf("copy the store: %v", err)
	}
	s.start()
	return dir
}

// RestartOn stops the server and starts it on the same port, on a store that CopyStore gave.
func (s *Server) RestartOn(dir string) {
	s.tb.Helper()
	s.Shutdown()
	s.options.StoreDir = dir
	s.start()
}

// Restart stops the server and starts it on the same port and store.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Shutdown()
	s.start()
}
