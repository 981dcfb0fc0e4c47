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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go"

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
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	host := fmt.Sprintf("127.0.0.1:%d", port)
	nc, err := Connect("nats://user:very-secret@"+host, nats.ReconnectWait(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	o.eventually("it says so", func() bool { // the second one says why
		return strings.Count(s.String(), "NATS is not reached") > 1 && strings.Contains(s.String(), "nats://"+host) && strings.Contains(s.String(), "refused")
	})
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

// Tries come each second.
//
// mutations: all that are told, one alone, and a count that goes on over a connection make this
// fail.
func TestFewOfTheTriesToConnectAreTold(t *testing.T) {
	s, nc, d := processLog(t), &nats.Conn{}, &dials{}
	for range 200 {
		d.failed(nc, io.ErrUnexpectedEOF)
	}
	if n := strings.Count(s.String(), "NATS is not reached"); n != 9 { // the 1st, 2nd, 4th, 8th, 16th, 32nd, 64th, 128th and 192nd
		t.Errorf("%d of 200 tries are told", n)
	}
	nc.Reconnects++
	d.failed(nc, errors.New("another outage"))
	if !strings.Contains(s.String(), "another outage") {
		t.Error("the first try of the next outage is not told")
	}
	d.ended(nc, nil)
	if strings.Contains(s.String(), "ended") {
		t.Error("a connection that its owner closes is no news")
	}
}
