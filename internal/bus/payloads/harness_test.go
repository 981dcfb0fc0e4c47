// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"bufio"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

type config = bus.Config

// newStore makes a store on a connection of its own, which is closed when the test ends.
func newStore(t testing.TB, s *natstest.Server, adjust ...func(*config)) *Store {
	t.Helper()
	c := config{URL: s.URL()}
	for _, f := range adjust {
		f(&c)
	}
	return New(bustest.Connect(t, c))
}

func asItIs(line []byte) []byte { return line }

// hop is the address of a server behind a hop, which passes on what its hooks make of the lines
// that clients and the server say.
func hop(t *testing.T, server string, clients, servers func([]byte) []byte) string {
	t.Helper()
	at, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			up, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at.Host)
			if err != nil {
				_ = client.Close()
				return
			}
			go pass(up, client, clients)
			go pass(client, up, servers)
		}
	}()
	return "nats://" + l.Addr().String()
}

func pass(to io.WriteCloser, from io.Reader, hook func([]byte) []byte) {
	defer func() { _ = to.Close() }()
	for r := bufio.NewReader(from); ; {
		line, err := r.ReadBytes('\n')
		if _, failed := to.Write(hook(line)); failed != nil || err != nil {
			return
		}
	}
}
