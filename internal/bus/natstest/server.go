package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const startTimeout = 10 * time.Second

// Server is a running nats-server.
type Server struct {
	tb      testing.TB
	options *server.Options
	running *server.Server
}

// Start runs a server until the test ends. adjust may change its options before.
func Start(tb testing.TB, adjust ...func(*server.Options)) *Server {
	tb.Helper()
	s := &Server{tb: tb, options: &server.Options{
		ServerName: "natstest",
		Host:       "127.0.0.1",
		Port:       server.RANDOM_PORT,
		JetStream:  true,
		StoreDir:   tb.TempDir(),
		NoLog:      true,
		NoSigs:     true,
	}}
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
	if s.options.Port == server.RANDOM_PORT {
		s.options.Port = addressPort(s.tb, running)
	}
}

// URL is where clients connect. It stays the same across restarts.
func (s *Server) URL() string { return s.running.ClientURL() }

// Shutdown stops the server and waits for it. It may be called again, and Restart may follow.
func (s *Server) Shutdown() {
	s.running.Shutdown()
	s.running.WaitForShutdown()
}

// Restart stops the server and starts it on the same port and store.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Shutdown()
	s.start()
}
