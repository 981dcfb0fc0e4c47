// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
	"github.com/syncopate-dev/syncopate/internal/testenv/door"
)

// dialled notes the sockets of a client.
type dialled struct {
	mu      sync.Mutex
	sockets []syscall.RawConn
}

// note has a client's sockets noted.
func (d *dialled) note(t *testing.T, o *redis.UniversalOptions) {
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		inner, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			t.Errorf("a connection is a %T", c)
			return c, nil
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.sockets = append(d.sockets, raw(t, inner.NetConn()))
		return c, nil
	}
}

func (d *dialled) all() []syscall.RawConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sockets
}

func raw(t *testing.T, c net.Conn) syscall.RawConn {
	t.Helper()
	socket, ok := c.(syscall.Conn)
	if !ok {
		t.Fatalf("a connection is a %T", c)
	}
	r, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// awaitPeek waits until peek says something of a socket.
func awaitPeek(t *testing.T, r syscall.RawConn) error {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(topologyPatience)
	for {
		if err := peek(r); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("nothing came to a socket")
		}
	}
}

// A Redis that is there again is used at once, by TLS, too, whoever ended the connections of
// before; and one that stays is asked by the connection that there is.
//
// mutation: dialTLS that returns the connection as it is makes all 32 calls fail.
func TestConnectionsByTLSThatHaveEndedFailNoCall(t *testing.T) {
	t.Parallel()
	const conns = 32
	ca := certs.NewAuthority(t)
	server := redistest.StartOne(t, redistest.Host{TLS: ca.Issue(time.Hour)}, login(false))
	way := door.New(t, server.Nodes[0].Addr())
	mine := ca.Issue(time.Hour)
	for version, ends := range map[uint16]func(){
		tls.VersionTLS12: func() { way.Shut(); way.Open() },
		tls.VersionTLS13: func() { server.KillClients("syncopate") },
	} {
		config := ClientConfig{Addrs: []string{way.Addr()}, Username: "syncopate", Password: "first"}
		if err := (Files{CA: mine.CA, Cert: mine.Cert, Key: mine.Key}).Apply(&config); err != nil {
			t.Fatal(err)
		}
		read := config.TLS
		config.TLS = func() (*tls.Config, error) {
			c, err := read()
			if err == nil {
				c.MinVersion, c.MaxVersion = version, version
			}
			return c, err
		}
		var noted dialled
		o := config.options()
		noted.note(t, o)
		client := redis.NewUniversalClient(o)
		t.Cleanup(func() { _ = client.Close() })
		fillPool(t, client, conns)
		for range conns {
			if err := client.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		before := noted.all()
		if len(before) != conns {
			t.Fatalf("%s: %d connections; want %d, which are used again", tls.VersionName(version), len(before), conns)
		}
		ends()
		for _, r := range before {
			_ = awaitPeek(t, r)
		}
		failed := 0
		for range conns {
			if client.Ping(t.Context()).Err() != nil {
				failed++
			}
		}
		if failed > 0 {
			t.Errorf("%s: %d of %d calls failed, of a Redis that is there", tls.VersionName(version), failed, conns)
		}
	}
}

// fillPool has a client make so many connections, and leaves them in its pool.
func fillPool(t *testing.T, client redis.UniversalClient, n int) {
	t.Helper()
	single, ok := client.(*redis.Client)
	if !ok {
		t.Fatalf("the client is a %T", client)
	}
	taken := make([]*redis.Conn, n)
	for i := range taken {
		taken[i] = single.Conn()
		if err := taken[i].Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range taken {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// mutation: a peek that takes what it sees, or says nothing of it, makes this fail.
func TestASocketIsLookedAtAndNotRead(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	here, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	there, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	socket := raw(t, here)
	if err := peek(socket); err != nil {
		t.Errorf("open, and nothing sent: %v", err)
	}
	if _, err := there.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := awaitPeek(t, socket); !errors.Is(err, errUnasked) {
		t.Errorf("something sent: %v", err)
	}
	if got := make([]byte, 1); !readOne(here, got) || got[0] != 'x' {
		t.Errorf("read %q of what was looked at", got)
	}
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	if err := awaitPeek(t, socket); !errors.Is(err, io.EOF) {
		t.Errorf("ended: %v", err)
	}
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	if err := peek(socket); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed here: %v", err)
	}
}

// readOne does not wait for ever: what was taken does not come again.
func readOne(c net.Conn, b []byte) bool {
	err := c.SetReadDeadline(time.Now().Add(topologyPatience))
	if err == nil {
		_, err = io.ReadFull(c, b)
	}
	return errors.Join(err, c.SetReadDeadline(time.Time{})) == nil
}
