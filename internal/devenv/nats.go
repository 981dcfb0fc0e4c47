// SPDX-License-Identifier: Apache-2.0

package devenv

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
)

// natsStartTimeout bounds the start of the nats-server.
const natsStartTimeout = 20 * time.Second

// errNATSStart is returned when the nats-server accepts no connections in time.
var errNATSStart = errors.New("nats-server does not accept connections")

// NATS is an in-process nats-server with JetStream that can be restarted at the same address with
// the same store.
type NATS struct {
	opts   server.Options
	server *server.Server
}

// StartNATS starts a server on a free port of the loopback interface with its store in dir.
func StartNATS(dir string) (*NATS, error) {
	port, err := ports.Free()
	if err != nil {
		return nil, err
	}
	n := &NATS{opts: server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	}}
	if err := n.Start(); err != nil {
		return nil, err
	}
	return n, nil
}

// Start starts the server again, at the same address with the same store, after Stop.
func (n *NATS) Start() error {
	opts := n.opts // the server keeps and changes what it is given
	s, err := server.NewServer(&opts)
	if err != nil {
		return fmt.Errorf("make nats-server: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(natsStartTimeout) {
		s.Shutdown()
		return errNATSStart
	}
	n.server = s
	return nil
}

// URL is the server's address.
func (n *NATS) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", n.opts.Port) }

// Stop ends the server and waits until it is down.
func (n *NATS) Stop() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
}

// Restart ends the server and starts it again at the same address with the same store.
func (n *NATS) Restart() error {
	n.Stop()
	return n.Start()
}
