// SPDX-License-Identifier: Apache-2.0

package natsdial

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

var errTest = errors.New("the test wants it")

// listen is a listener of this machine, and its port.
func listen(t *testing.T) (port string) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// mutations: one address only; a whole time-out for each.
func TestTheAddressesOfANameShareTheTimeOut(t *testing.T) {
	t.Parallel()
	port := listen(t)
	begin := time.Now()
	var tried []string
	d := &hosts{inTurn: true, Dialer: net.Dialer{
		Timeout: time.Hour,
		ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
			tried = append(tried, address)
			if deadline, ok := ctx.Deadline(); !ok || deadline.Sub(begin) > 45*time.Minute {
				t.Errorf("%s has until %s", address, deadline)
			}
			if len(tried) == 1 {
				return errTest
			}
			return nil
		},
	}, lookup: func(_ context.Context, host string) ([]string, error) {
		if host != "nats" {
			return nil, errTest
		}
		return []string{"127.0.0.2", "127.0.0.1"}, nil
	}}
	c, err := d.Dial("tcp", net.JoinHostPort("nats", port))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if want := []string{"127.0.0.2:" + port, "127.0.0.1:" + port}; !slices.Equal(tried, want) {
		t.Errorf("tried %v, want %v", tried, want)
	}
}

// The library dials such an address as it is: the dialer may have a name server of its own, and an
// address without a host is one of this machine.
//
// mutation: a look-up that fails is a dial that fails.
func TestWhatTheLookUpDoesNotKnowIsForTheDialer(t *testing.T) {
	t.Parallel()
	var asked atomic.Bool
	d := &hosts{lookup: func(context.Context, string) ([]string, error) { return nil, errTest }, Dialer: net.Dialer{
		Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			asked.Store(true)
			return nil, errTest
		}},
	}}
	c, err := d.Dial("tcp", ":"+listen(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if c, err = d.Dial("tcp", "nats.test:4222"); err == nil {
		_ = c.Close()
	}
	if !asked.Load() {
		t.Errorf("the name server of the dialer is not asked: %v", err)
	}
}

// mutation: a look-up of what is an address.
func TestAnAddressIsNotLookedUp(t *testing.T) {
	t.Parallel()
	d := &hosts{lookup: func(context.Context, string) ([]string, error) { return nil, errTest }}
	c, err := d.Dial("tcp", net.JoinHostPort("127.0.0.1", listen(t)))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// secure is a dialer that makes TLS itself.
type secure struct{ nats.CustomDialer }

func (secure) SkipTLSHandshake() bool { return true }

// mutations: EndOnFailedWrite that forgets what the other options say of the dialer, or that wraps
// one that makes TLS itself, of which the library asks more.
func TestTheOptionKeepsWhatTheOthersSay(t *testing.T) {
	t.Parallel()
	multipath := true
	o := nats.Options{Dialer: &net.Dialer{Timeout: time.Minute}, Timeout: time.Second, NoRandomize: true, SkipHostLookup: true, AllowMultipathTCP: &multipath}
	if err := EndOnFailedWrite(&o); err != nil {
		t.Fatal(err)
	}
	d, ok := o.CustomDialer.(ending).CustomDialer.(*hosts)
	if !ok || d.Timeout != time.Minute || !d.inTurn || d.lookup != nil || !d.MultipathTCP() {
		t.Errorf("%+v", o.CustomDialer)
	}
	o = nats.Options{Timeout: time.Second}
	_ = EndOnFailedWrite(&o)
	if d, ok = o.CustomDialer.(ending).CustomDialer.(*hosts); !ok || d.Timeout != time.Second || d.inTurn || d.lookup == nil || !o.SkipHostLookup {
		t.Errorf("%+v", o.CustomDialer)
	}
	o = nats.Options{}
	_ = EndOnFailedWrite(&o)
	if d, ok = o.CustomDialer.(ending).CustomDialer.(*hosts); !ok || d.Timeout != nats.DefaultTimeout {
		t.Errorf("%+v", o.CustomDialer)
	}
	o = nats.Options{CustomDialer: secure{}}
	_ = EndOnFailedWrite(&o)
	if _, is := o.CustomDialer.(secure); !is {
		t.Errorf("%T", o.CustomDialer)
	}
}
