// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// stubSource has a certificate, or none.
type stubSource struct{ err error }

func (stubSource) Start(context.Context) error { return nil }

func (s stubSource) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &tls.Certificate{}, s.err
}

// mutation: ready that does not look at one of the two makes this fail.
func TestReadiness(t *testing.T) {
	errNone := errors.New("no certificate")
	s := &server{certificates: stubSource{errNone}}
	if err := s.ready(nil); !errors.Is(err, errNotListening) {
		t.Errorf("error %v", err)
	}
	s.listening.Store(true)
	if err := s.ready(nil); !errors.Is(err, errNone) {
		t.Errorf("error %v", err)
	}
	s.certificates = stubSource{}
	if err := s.ready(nil); err != nil {
		t.Error(err)
	}
}

// mutation: a server that waits for its connections without an end makes this fail; so does one
// that is ready after its end, as a process that still gives its leases back, or that
// logs an error.
func TestARequestThatHangsDoesNotKeepTheProcess(t *testing.T) {
	cert, key := selfSigned(t, "hook")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	addr, arrived := net.JoinHostPort("localhost", strconv.Itoa(freePort(t))), make(chan struct{})
	var told, failed atomic.Int64
	logger := funcr.New(func(_, args string) {
		switch {
		case strings.Contains(args, `"error"=`):
			failed.Add(1)
		case strings.Contains(args, "cut off"):
			told.Add(1)
		}
	}, funcr.Options{})
	s := &server{addr: addr, log: logger, certificates: pairSource{&pair}, handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(log.IntoContext(ctx, logger)) }()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		for ctx.Err() == nil {
			resp, err := client.Get("https://" + addr + Path)
			if _, refused := errors.AsType[*net.OpError](err); !refused {
				if err == nil {
					_ = resp.Body.Close()
				}
				return
			}
			time.Sleep(polling)
		}
	}()
	<-arrived
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	<-asked
	if failed.Load() > 0 || told.Load() != 1 {
		t.Errorf("%d errors in the log, told %d times", failed.Load(), told.Load())
	}
	if err := s.ready(nil); !errors.Is(err, errNotListening) {
		t.Errorf("it ended, and ready says %v", err)
	}
}

type pairSource struct{ pair *tls.Certificate }

func (pairSource) Start(context.Context) error { return nil }

func (s pairSource) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.pair, nil
}

func TestAnAddressInUseIsAnError(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	s := &server{addr: l.Addr().String(), certificates: stubSource{}, log: logr.Discard()}
	if err := s.Start(t.Context()); err == nil {
		t.Error("no error")
	}
	if s.ready(nil) == nil {
		t.Error("ready")
	}
}

// mutation: serve that takes such an end for one that was asked for makes this fail.
func TestAListenerThatFailsIsAnError(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil || l.Close() != nil {
		t.Fatal(err)
	}
	s := &server{log: logr.Discard()}
	if err := s.serve(t.Context(), &http.Server{ReadHeaderTimeout: headerTimeout}, l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("error %v", err)
	}
}

// mutation: a server that speaks older versions.
func TestTheWebhookSpeaksTLSOfTodayOnly(t *testing.T) {
	cert, key := selfSigned(t, "hook")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: net.JoinHostPort("localhost", strconv.Itoa(freePort(t))), log: logr.Discard(), certificates: pairSource{&pair}, handler: http.NotFoundHandler()}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	dial := func(most uint16) error {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: most}}
		c, err := d.DialContext(t.Context(), "tcp", s.addr)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	for !s.listening.Load() && len(ended) == 0 {
		time.Sleep(polling)
	}
	if old, now := dial(tls.VersionTLS11), dial(tls.VersionTLS12); old == nil || now != nil {
		t.Errorf("with TLS 1.1: %v, with 1.2: %v", old, now)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Each takes a core for some tens of milliseconds, and passes need the cores, too: it is no figure
// to make larger when creations wait.
//
// mutation: hundreds of them.
func TestLooksAtInputsLeaveTheCoresToPasses(t *testing.T) {
	if ChecksAtOnce > 8 || AtOnce > 32 {
		t.Errorf("%d looks at inputs at the same time, and %d questions", ChecksAtOnce, AtOnce)
	}
}

// Each keeps a goroutine and a file.
//
// mutation: a server without any one of them.
func TestConnectionsOnWhichNothingComesEnd(t *testing.T) {
	h := (&server{}).http()
	for name, bound := range map[string]time.Duration{"headers": h.ReadHeaderTimeout, "a request": h.ReadTimeout, "the next one": h.IdleTimeout} {
		if bound <= 0 || bound > 2*time.Minute {
			t.Errorf("%s may take %s", name, bound)
		}
	}
}
