// SPDX-License-Identifier: Apache-2.0

package door

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

const (
	patience = 30 * time.Second // for what has to come
	silence  = 100 * time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hall is a door with a client before it and a server behind it, which are connected.
type hall struct {
	t              *testing.T
	door           *Proxy
	server         net.Listener
	client, served net.Conn
}

func newHall(t *testing.T, c clock.Clock) *hall {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	door, err := Start(t.Context(), server.Addr().String(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(door.Shut)
	h := &hall{t: t, door: door, server: server}
	h.connect()
	return h
}

// connect makes a connection anew.
func (h *hall) connect() {
	h.t.Helper()
	var err error
	if h.client, err = net.Dial("tcp", h.door.Addr()); err != nil {
		h.t.Fatal(err)
	}
	if h.served, err = h.server.Accept(); err != nil {
		h.t.Fatal(err)
	}
	for _, c := range []net.Conn{h.client, h.served} {
		_ = c.SetDeadline(time.Now().Add(patience))
		h.t.Cleanup(func() { _ = c.Close() })
	}
}

func (h *hall) send(from net.Conn, text string) {
	h.t.Helper()
	if _, err := from.Write([]byte(text)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hall) arrives(at net.Conn, want string) {
	h.t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(at, got); err != nil || string(got) != want {
		h.t.Fatalf("%q, %v; want %q", got, err, want)
	}
}

// ends expects that nothing but want comes, and then the end.
func (h *hall) ends(at net.Conn, want string) {
	h.t.Helper()
	got, err := io.ReadAll(at)
	if string(got) != want || errors.Is(err, syscall.ETIMEDOUT) {
		h.t.Fatalf("%q, %v; want %q and the end", got, err, want)
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		h.t.Fatal("the connection stays")
	}
}

// quiet expects that nothing comes for a moment.
func (h *hall) quiet(at net.Conn) {
	h.t.Helper()
	_ = at.SetReadDeadline(time.Now().Add(silence))
	var late net.Error
	if n, err := at.Read(make([]byte, 1)); n > 0 || !errors.As(err, &late) || !late.Timeout() {
		h.t.Fatalf("%d bytes, %v; want silence", n, err)
	}
	_ = at.SetReadDeadline(time.Now().Add(patience))
}

// mutation: a proxy that writes a chunk twice, or ends a link before what was read
// is written, fails.
func TestAnOpenDoorPassesAllOnAndTheEnd(t *testing.T) {
	h := newHall(t, clock.RealClock{})
	large := bytes.Repeat([]byte("0123456789"), 1<<20)
	go func() {
		_, _ = h.client.Write(large)
		_ = h.client.Close()
	}()
	if got, err := io.ReadAll(h.served); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes of %d, %v", len(got), len(large), err)
	}
}

// mutation: Shut that leaves the listener, or the connections, fails.
func TestAShutDoorRefusesAndClosesWhatThereIs(t *testing.T) {
	h := newHall(t, clock.RealClock{})
	h.door.Shut()
	h.ends(h.client, "")
	h.ends(h.served, "")
	if c, err := net.Dial("tcp", h.door.Addr()); err == nil {
		_ = c.Close()
		t.Error("it lets somebody in")
	}
	before := h.door.Addr()
	if err := h.door.Open(t.Context()); err != nil || h.door.Addr() != before {
		t.Fatalf("%s, then %s: %v", before, h.door.Addr(), err)
	}
	h.connect()
	h.send(h.client, "hello")
	h.arrives(h.served, "hello")
}

// mutation: a fault in the other direction, one for new connections only, and Heal that leaves
// silent connections fail.
func TestSilenceIsOfOneDirectionAndEndsWithTheConnection(t *testing.T) {
	for name, way := range map[string]Direction{"up": Up, "down": Down} {
		t.Run(name, func(t *testing.T) {
			h := newHall(t, clock.RealClock{})
			from, to := h.client, h.served
			if way == Down {
				from, to = to, from
			}
			h.door.Poison(way, Fault{Silent: true})
			h.send(from, "lost")
			h.send(to, "heard")
			h.arrives(from, "heard")
			h.quiet(to)
			h.door.Heal()
			h.ends(to, "")
			h.ends(from, "")
			h.connect()
			h.send(h.client, "again")
			h.arrives(h.served, "again")
		})
	}
}

// mutation: a fault that the reader does not ask for, or that Heal does not end, fails.
func TestWhatIsNotReadFillsTheBuffersOfTheSender(t *testing.T) {
	h := newHall(t, clock.RealClock{})
	h.door.Poison(Up, Fault{Unread: true})
	_ = h.client.SetWriteDeadline(time.Now().Add(silence))
	n, err := h.client.Write(make([]byte, 256<<20))
	var late net.Error
	if !errors.As(err, &late) || !late.Timeout() {
		t.Fatalf("%d bytes, %v; want a write that waits", n, err)
	}
	h.door.Heal()
	_ = h.client.Close()
	if got, err := io.ReadAll(h.served); err != nil || len(got) != n {
		t.Errorf("%d bytes of %d, %v", len(got), n, err)
	}
}

// mutation: a wait from the moment of the write, so that each chunk waits for those before, fails;
// so does none.
func TestBytesAreUnderWayForSoLongHoweverManyThereAre(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	h := newHall(t, c)
	h.door.Poison(Down, Fault{Wait: time.Second})
	for _, text := range []string{"a", "b", "c"} {
		h.send(h.served, text)
		h.quiet(h.client)
	}
	c.Step(999 * time.Millisecond)
	h.quiet(h.client)
	c.Step(time.Millisecond)
	h.arrives(h.client, "abc")
	h.send(h.client, "up is not slow")
	h.arrives(h.served, "up is not slow")

	h.send(h.served, "d")
	h.quiet(h.client)
	h.door.Heal()
	h.arrives(h.client, "d")
}

// mutation: a jitter to one side only, or none, fails.
func TestJitterIsToBothSidesAndNeverMore(t *testing.T) {
	less, more := 0, 0
	for range 1000 {
		switch d := (Fault{Wait: time.Second, Jitter: time.Second / 2}).delay(); {
		case d < time.Second/2 || d >= 3*time.Second/2:
			t.Fatalf("%s", d)
		case d < time.Second:
			less++
		default:
			more++
		}
	}
	if less < 300 || more < 300 {
		t.Errorf("%d less, %d more", less, more)
	}
}

// mutation: a count that begins before the fault, or none, fails.
func TestAConnectionEndsAfterSoManyBytes(t *testing.T) {
	h := newHall(t, clock.RealClock{})
	h.send(h.served, "before")
	h.arrives(h.client, "before")
	h.door.Poison(Down, Fault{Bytes: 5})
	h.send(h.served, "123")
	h.arrives(h.client, "123")
	h.send(h.served, "4567")
	h.ends(h.client, "45")
	h.ends(h.served, "")
}

// mutation: an end by FIN fails.
func TestAResetLosesTheBytesThatItComesWith(t *testing.T) {
	h := newHall(t, clock.RealClock{})
	h.door.Poison(Down, Fault{Reset: true})
	h.send(h.client, "up goes on")
	h.arrives(h.served, "up goes on")
	h.send(h.served, "lost")
	if n, err := h.client.Read(make([]byte, 8)); n > 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// mutation: a client that is kept where the server refuses fails.
func TestWhoIsRefusedByTheServerIsToldSo(t *testing.T) {
	h := newHall(t, clock.RealClock{})
	_ = h.server.Close()
	c, err := net.Dial("tcp", h.door.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	h.ends(c, "")
}
