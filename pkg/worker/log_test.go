// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
)

// said is what was written to the log of the process.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// processLog is the default log of the process until the test ends.
func processLog(t *testing.T) *said {
	t.Helper()
	before, out, flags := slog.Default(), log.Writer(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(out)
		log.SetFlags(flags)
	})
	s := &said{}
	slog.SetDefault(slog.New(slog.NewTextHandler(s, nil)))
	return s
}

// The operator has another prefix, which nothing else tells of.
//
// mutation: Options.Log whose default is logr.Logger{} makes this time out.
func TestAWorkerWithoutALogOfItsOwnSaysWhatItWaitsFor(t *testing.T) {
	s, o := processLog(t), newOperator(t)
	nc, err := Connect(o.server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	w := New(nc, Options{Prefix: "another"})
	w.Handle("http.fetch", func(context.Context, Job) (any, error) { return nil, nil })
	o.start(w)
	o.eventually("it says so", func() bool {
		return strings.Contains(s.String(), "Waiting for the operator to make the topic's consumer") && strings.Contains(s.String(), "stream not found")
	})
}

// mutation: a default that is taken for every log without a sink that writes makes this fail.
func TestAWorkerThatIsToBeSilentIs(t *testing.T) {
	s := processLog(t)
	Options{Log: logr.FromSlogHandler(slog.DiscardHandler)}.withDefaults().Log.Info("quiet")
	if s.String() != "" {
		t.Errorf("it says %s", s)
	}
}

// mutations: Connect without its handler of failed tries makes this time out; one that quotes the
// address as it was given fails it.
func TestConnectSaysThatNATSIsNotReached(t *testing.T) {
	s, o := processLog(t), &operator{t: t}
	host := dead(t)
	nc, err := Connect("nats://user:very-secret@"+host, nats.ReconnectWait(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	o.eventually("it says so", func() bool { return strings.Contains(s.String(), "NATS is not reached") })
	if !strings.Contains(s.String(), "nats://"+host) || !strings.Contains(s.String(), "refused") {
		t.Errorf("it does not say which one, or why: %s", s)
	}
	if strings.Contains(s.String(), "very-secret") {
		t.Errorf("it quotes the password: %s", s)
	}
}

// mutation: Connect without its handler of ends makes this time out.
func TestConnectSaysThatTheConnectionEnded(t *testing.T) {
	s, o := processLog(t), newOperator(t) // which connects so
	o.down()
	o.eventually("it says so", func() bool { return strings.Contains(s.String(), "The connection to NATS ended") })
}

// outage is a connection that does not come about, and a clock that stands.
type outage struct {
	*operator // which has no server
	said      *said
	tries     *dials
	clock     *clocktesting.FakePassiveClock
	nc        *nats.Conn
}

func newOutage(t *testing.T, address string, opts ...nats.Option) *outage {
	t.Helper()
	now := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	o := &outage{operator: &operator{t: t}, said: processLog(t), clock: now, tries: &dials{clock: now}}
	quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	var err error
	if o.nc, err = connect(address, o.tries, append([]nats.Option{nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0), quiet}, opts...)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.nc.Close)
	return o
}

func (o *outage) lines() int { return strings.Count(o.said.String(), "NATS is not reached") }

func (o *outage) more(n uint64) {
	o.t.Helper()
	count := func() uint64 {
		o.tries.mu.Lock()
		defer o.tries.mu.Unlock()
		return o.tries.tries
	}
	want := count() + n
	o.eventually("there are more tries", func() bool { return count() >= want })
}

// refusing starts a server with a login.
func (o *operator) refusing() (host string) {
	o.t.Helper()
	o.options = server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, Username: "user", Password: "right"}
	o.serve(o.options)
	o.t.Cleanup(o.shutdown)
	return strings.TrimPrefix(o.server.ClientURL(), "nats://")
}

// closing is a server that accepts connections and ends them.
func closing(t *testing.T) (host string) {
	t.Helper()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

func dead(t *testing.T) (host string) {
	t.Helper()
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// The library calls no handler for a server that is reached.
//
// mutations: Connect without watch has no second line; a count that begins anew for each server
// that is reached has a line for each try, and one without bounds has one for each, too.
func TestConnectSaysThatAServerRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		address func(t *testing.T) string
		opts    []nats.Option
		causes  []string
	}{
		"a wrong password": {
			address: func(t *testing.T) string { return "nats://user:very-secret@" + (&operator{t: t}).refusing() },
			causes:  []string{"Authorization Violation"},
		},
		"TLS to a server without": {
			address: func(t *testing.T) string { return "nats://" + (&operator{t: t}).refusing() },
			opts:    []nats.Option{nats.Secure()}, causes: []string{"secure connection not available"},
		},
		"connections that end": {
			address: func(t *testing.T) string { return "nats://" + closing(t) },
			causes:  []string{"a server was reached"},
		},
		"a dead one and one that refuses": {
			address: func(t *testing.T) string {
				return "nats://" + dead(t) + ",nats://user:very-secret@" + (&operator{t: t}).refusing()
			},
			causes: []string{"Authorization Violation", "connection refused"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutage(t, c.address(t), c.opts...)
			o.eventually("it says so", func() bool { return o.lines() > 0 })
			o.more(100)
			if n := o.lines(); n != 1 {
				t.Errorf("%d lines at one time: %s", n, o.said)
			}
			o.eventually("it says why, again and again", func() bool {
				o.clock.SetTime(o.clock.Now().Add(seldom))
				o.more(10)
				all := o.lines() > 2
				for _, cause := range c.causes {
					all = all && strings.Contains(o.said.String(), cause)
				}
				return all
			})
			if strings.Contains(o.said.String(), "very-secret") {
				t.Errorf("it quotes the password: %s", o.said)
			}
		})
	}
}

// mutation: a watch that does not see that the connection is there goes on with the count and the
// pause of the outage before.
func TestTheNextOutageIsToldAnew(t *testing.T) {
	o := newOperator(t)
	out := newOutage(t, o.server.ClientURL(), nats.ReconnectHandler(func(*nats.Conn) {}), nats.ConnectHandler(func(*nats.Conn) {}))
	for outages := range 2 {
		o.eventually("it is connected", out.nc.IsConnected)
		port := o.down()
		out.eventually("the outage is told", func() bool { return out.lines() == outages+1 })
		out.more(20)
		o.up(port)
	}
	out.eventually("it begins anew", func() bool {
		out.tries.mu.Lock()
		defer out.tries.mu.Unlock()
		return out.nc.IsConnected() && out.tries.tries == 0
	})
	if n := out.lines(); n != 2 {
		t.Errorf("%d lines of two outages: %s", n, out.said)
	}
}

// mutations: all that are told, one alone, and pauses that double for ever make this fail.
func TestFewOfTheTriesToConnectAreTold(t *testing.T) {
	s, nc, now := processLog(t), &nats.Conn{}, clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	d, begin := &dials{clock: now}, now.Now()
	var told []int
	for second := range 1200 {
		now.SetTime(begin.Add(time.Duration(second) * time.Second))
		before := len(s.String())
		if d.unreachable(nc, io.ErrUnexpectedEOF); len(s.String()) > before {
			told = append(told, second)
		}
	}
	if diff := cmp.Diff([]int{0, 2, 6, 14, 30, 62, 126, 254, 510, 810, 1110}, told); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(s.String(), "tries=1111 ") {
		t.Errorf("it does not count the tries: %s", s)
	}
	d.reached()
	d.unreachable(nc, nats.ErrNoServers) // which says nothing
	d.unreachable(nc, errors.New("another outage"))
	if !strings.Contains(s.String(), `tries=1 cause="another outage"`) {
		t.Error("the first try of the next outage is not told")
	}
	d.ended(nc, nil)
	if strings.Contains(s.String(), "ended") {
		t.Error("a connection that its owner closes is no news")
	}
}
