// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// stopTimeout is how long requests may take when the process ends: the leases of runs are given
	// back only after it. API servers keep connections open on which nothing comes.
	stopTimeout   = time.Second
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second
	idleTimeout   = 90 * time.Second // as long as the API server keeps an idle connection
)

// errNotListening is the state of readiness before the server was started, and after it ended.
var errNotListening = errors.New("the webhook does not listen")

// source has the certificate to serve with, while it runs.
type source interface {
	manager.Runnable
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

// server serves the webhook on every replica, once the caches are synced: managers start what needs
// no leader after them.
type server struct {
	addr         string
	handler      http.Handler
	certificates source
	log          logr.Logger

	listening atomic.Bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *server) Start(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("listen for the webhook: %w", err)
	}
	s.listening.Store(true)
	defer s.listening.Store(false)
	// API servers speak HTTP/1.1 to webhooks, so that their connections spread over the replicas.
	over := tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: s.certificates.GetCertificate,
	})
	return s.serve(ctx, s.http(), over)
}

// http is what serves connections. It ends those on which nothing comes.
func (s *server) http() *http.Server {
	return &http.Server{
		Handler: s.handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		ErrorLog: stdlog.New(connections(s.log), "", 0),
	}
}

// serve serves until ctx ends, and gives requests that are under way stopTimeout then. That some
// take longer, or that an API server has just made a connection, is no error.
func (s *server) serve(ctx context.Context, h *http.Server, l net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(l) }()
	select {
	case err := <-ended:
		return errors.Join(fmt.Errorf("serve the webhook: %w", err), h.Close())
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := h.Shutdown(bounded)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Info("Connections to the webhook that were in use, or new, are cut off", "after", stopTimeout)
		err = nil
	}
	err = errors.Join(err, h.Close())
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("stop the webhook: %w", err)
	}
	return nil
}

// ready is a healthz.Checker.
func (s *server) ready(*http.Request) error {
	if !s.listening.Load() {
		return errNotListening
	}
	_, err := s.certificates.GetCertificate(nil)
	return err
}

// connections writes to a log what the server says of connections: whoever hangs up in the middle
// of a handshake is worth a line.
type connections logr.Logger

// Write implements io.Writer.
func (c connections) Write(line []byte) (int, error) {
	logr.Logger(c).V(1).Info("Connection to the webhook", "text", strings.TrimSpace(string(line)))
	return len(line), nil
}
