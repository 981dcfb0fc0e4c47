// SPDX-License-Identifier: Apache-2.0

package natsdial

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	// some is what a slow peer takes at a time.
	some = 64 << 10
	// large is what the library writes at once of a large message.
	large = 6 * some
	// slow is how long a peer takes for some of it.
	slow = WriteTimeout * 2 / 3
)

// mutations: Write that leaves the connection open after its time-out; Read that tells of the end
// that Write made.
func TestAFailedWriteEndsTheConnectionAndIsItsCause(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer func() { _ = theirs.Close() }()
	c := &conn{Conn: ours}
	_ = c.SetWriteDeadline(time.Unix(1, 0))
	if n, err := c.Write([]byte("PING")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	_ = theirs.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the other end reads %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reads %v", err)
	}
}

// timing is a time-out that a dialer of somebody else has of its own.
type timing struct{}

func (timing) Error() string   { return "it took too long" }
func (timing) Timeout() bool   { return true }
func (timing) Temporary() bool { return true }

// foreign is a connection of such a dialer.
type foreign struct{ net.Conn }

func (foreign) Write([]byte) (int, error) { return 0, fmt.Errorf("tunnel: %w", timing{}) }

// mutation: Write that knows the time-outs of sockets only.
func TestATimeOutOfAnotherDialerEndsTheConnection(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer func() { _ = theirs.Close() }()
	c := &conn{Conn: foreign{ours}}
	if _, err := c.Write([]byte("PING")); !errors.Is(err, timing{}) {
		t.Fatal(err)
	}
	_ = theirs.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the other end reads %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, timing{}) {
		t.Errorf("reads %v", err)
	}
}

// slowly writes something large to a peer that takes some of it now and then, for so many times.
func slowly(t *testing.T, takes int, limit func(*conn) error) (n int, err error) {
	t.Helper()
	ours, theirs := net.Pipe()
	c := &conn{Conn: ours}
	var reader sync.WaitGroup
	defer func() {
		_ = ours.Close()
		reader.Wait()
	}()
	if err := limit(c); err != nil {
		t.Fatal(err)
	}
	reader.Go(func() {
		for range takes {
			<-time.After(slow)
			if _, err := io.ReadFull(theirs, make([]byte, some)); err != nil {
				return
			}
		}
	})
	return c.Write(make([]byte, large))
}

func limitWrites(c *conn) error { return c.SetWriteDeadline(time.Now().Add(WriteTimeout)) }

// mutations: one time-out for all that is written at once; one that is renewed though nothing is
// taken.
func TestTheTimeOutOfAWriteIsWithoutProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if n, err := slowly(t, large, limitWrites); err != nil || n != large {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		n, err := slowly(t, 3, limitWrites)
		if took := time.Since(begin); !errors.Is(err, os.ErrDeadlineExceeded) || n != 3*some || took != 3*slow+WriteTimeout {
			t.Errorf("%d bytes in %s, %v", n, took, err)
		}
	})
}

// A server that takes little at a time must not hold all that sends for minutes. TLS writes what
// the library writes at once in records of 16 KiB.
//
// mutations: a time-out without a bound; one that begins anew with each record.
func TestAWriteHasABoundInAll(t *testing.T) {
	t.Parallel()
	const huge, takes = 8 << 20, WriteTimeout - 100*time.Millisecond
	for name, record := range map[string]int{"at once": huge, "in records": 16 << 10} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			c := &conn{Conn: ours}
			var reader sync.WaitGroup
			reader.Go(func() {
				for err := error(nil); err == nil; {
					<-time.After(takes)
					_, err = io.ReadFull(theirs, make([]byte, some))
				}
			})
			begin, n, err := time.Now(), 0, limitWrites(c)
			for n < huge && err == nil {
				var took int
				took, err = c.Write(make([]byte, record))
				n += took
			}
			if took := time.Since(begin); !errors.Is(err, os.ErrDeadlineExceeded) || took != patiences*WriteTimeout {
				t.Errorf("%s: %d bytes in %s, %v", name, n, took, err)
			}
			if err := limitWrites(c); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%s: it is still open: %v", name, err)
			}
			_ = ours.Close()
			reader.Wait()
		})
	}
}

// The library bounds all that it does until it is connected.
//
// mutations: a time-out of writes that outlives what the library set; one that renews another.
func TestOnlyTheTimeOutOfAWriteIsRenewed(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*conn) error{
		"of the connect": func(c *conn) error { return c.SetDeadline(time.Now().Add(WriteTimeout)) },
		"of the connect, after a write": func(c *conn) error {
			return errors.Join(limitWrites(c), c.SetWriteDeadline(time.Time{}), c.SetDeadline(time.Now().Add(WriteTimeout)))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			if n, err := slowly(t, large, limit); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %d bytes, %v", name, n, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		n, err := slowly(t, large, func(c *conn) error { return errors.Join(limitWrites(c), c.SetWriteDeadline(time.Time{})) })
		if err != nil || n != large {
			t.Errorf("without a time-out: %d bytes, %v", n, err)
		}
	})
}

// A server says why it ends a connection, or that it stored something, and closes.
//
// mutation: each write that fails ends the connection.
func TestWhatTheServerSaidLastIsRead(t *testing.T) {
	t.Parallel()
	const last = "-ERR 'Maximum Payload Violation'\r\n"
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		if theirs, err := l.Accept(); err == nil {
			_, _ = theirs.Write([]byte(last))
			_ = theirs.Close()
		}
	}()
	var dialer net.Dialer
	ours, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	c := &conn{Conn: ours}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	for err = nil; err == nil; {
		_, err = c.Write([]byte("PING\r\n"))
	}
	b := make([]byte, len(last))
	if n, err := io.ReadFull(c, b); string(b[:n]) != last {
		t.Errorf("%q, %v", b[:n], err)
	}
}
