// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// blackHole passes bytes on to a server, until the machine behind the connections that it has then
// is gone: these take bytes and answer nothing, and nobody closes them.
type blackHole struct {
	net.Listener
	server string
	epoch  atomic.Int64
}

func (b *blackHole) serve() {
	for {
		client, err := b.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", b.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		of := b.epoch.Load()
		go b.pass(client, server, of)
		go b.pass(server, client, of)
	}
}

func (b *blackHole) pass(from, to net.Conn, of int64) {
	buf := make([]byte, 1<<14)
	for {
		n, err := from.Read(buf)
		if b.epoch.Load() == of {
			if n > 0 {
				_, _ = to.Write(buf[:n])
			}
			if err != nil {
				_ = to.Close()
			}
		}
		if err != nil {
			return
		}
	}
}

// The machine of one API server loses its power; another one answers at the same address.
//
// mutations: noticeDeadConnections that sets nothing: the client's own bounds are 45 s together;
// one that sets what is set.
func TestADeadConnectionToTheAPIServerIsNoticed(t *testing.T) {
	for name := range deadAfter {
		t.Setenv(name, "")
	}
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	if err := noticeDeadConnections(); err != nil {
		t.Fatal(err)
	}
	if got := os.Getenv("HTTP2_PING_TIMEOUT_SECONDS"); got != "1" {
		t.Errorf("what was set is now %q", got)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hole := &blackHole{Listener: listener, server: server.Listener.Addr().String()}
	defer listener.Close() //nolint:errcheck // ends serve
	go hole.serve()

	c, err := rest.HTTPClientFor(&rest.Config{Host: "https://" + listener.Addr().String(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+listener.Addr().String(), http.NoBody)
		if err != nil {
			return err
		}
		answer, err := c.Do(r)
		if err != nil {
			return err
		}
		if answer.ProtoMajor != 2 {
			return errors.New("no HTTP/2")
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return errors.Join(err, answer.Body.Close())
	}
	for begun := time.Now(); ; { // a handshake takes a while on a busy machine
		err := ask()
		if err == nil {
			break
		}
		if time.Since(begun) > 30*time.Second {
			t.Fatal(err)
		}
	}
	hole.epoch.Add(1)
	lost := time.Now()
	if ask() == nil {
		t.Fatal("the connection is not dead")
	}
	for ask() != nil {
		if time.Since(lost) > 30*time.Second { // 3 s as a rule
			t.Fatal("no answer for 30 s")
		}
	}
}
