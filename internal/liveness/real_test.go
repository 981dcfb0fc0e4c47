// SPDX-License-Identifier: Apache-2.0

package liveness_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/liveness"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const patience = 60 * time.Second

// site is a Watcher on a real server, with short times.
type site struct {
	*testing.T
	server  *natstest.Server
	bus     *bus.Conn
	jobs    *jobs.Queue
	js      jetstream.JetStream
	watcher *liveness.Watcher[string]
	woken   chan string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, server: natstest.Start(t), woken: make(chan string, 1000)}
	signing, err := keys.New(keys.Keyring{Current: keys.Key{ID: "k1", Secret: []byte("0123456789abcdef0123456789abcdef")}}, nil, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	if s.bus, err = bus.Connect(t.Context(), bus.Config{URL: s.server.URL()}); err != nil {
		t.Fatal(err)
	}
	s.jobs = jobs.New(s.bus, signing, results.NewReader(s.bus, signing), jobs.Options{})
	t.Cleanup(func() { s.bus.Close(context.WithoutCancel(t.Context())) })
	s.eventually("the bus is connected", s.bus.Connected)
	if err := s.bus.EnsureStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.js, err = jetstream.New(s.client()); err != nil {
		t.Fatal(err)
	}
	s.watcher = liveness.New(s.jobs.Workers, func(key string) { s.woken <- key }, liveness.Options{Every: 200 * time.Millisecond, StuckAfter: 2 * time.Second})
	s.runs(func(ctx context.Context) error { s.watcher.Run(ctx); return nil })
	return s
}

// runs calls f until stop, or until the test ends.
func (s *site) runs(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.Errorf("run: %v", err)
		}
	})
	return cancel
}

func (s *site) client() *nats.Conn {
	s.Helper()
	nc, err := nats.Connect(s.server.URL(), natstest.Patient())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(nc.Close)
	return nc
}

// topic makes the consumer of a topic, with n jobs in it. It is watched by a run of the same name.
func (s *site) topic(name string, n int) {
	s.Helper()
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	_, err := s.js.CreateConsumer(s.Context(), names.JobsStream(), jetstream.ConsumerConfig{
		Durable: protocol.Durable(name), FilterSubject: names.TopicJobs(name), AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 3 * time.Second, MaxDeliver: -1,
	})
	if err != nil {
		s.Fatal(err)
	}
	for i := range n {
		id := protocol.JobID{RunUID: "u", Step: fmt.Sprintf("%s-%d", name, i), Item: protocol.NoItem, Attempt: 1}
		if err := s.jobs.Publish(s.Context(), jobs.Job{ID: id, Topic: name}); err != nil {
			s.Fatal(err)
		}
	}
	s.watcher.Watch(name, name)
}

func (s *site) works(topic string, h worker.Handler) (stop func()) {
	s.Helper()
	w := worker.New(s.client(), worker.Options{GracePeriod: -1})
	w.Handle(topic, h)
	return s.runs(w.Run)
}

func (s *site) eventually(what string, ok func() bool) {
	s.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			s.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func (s *site) becomes(topic string, kind liveness.Kind) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s is %s", topic, kind), func() bool { return s.watcher.State(topic).Kind == kind })
}

// What judge says is right for answers of a real server and workers of the SDK.
func TestRealWorkers(t *testing.T) {
	s := newSite(t)
	release := make(chan struct{})
	blocked := func(ctx context.Context, _ worker.Job) (any, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	}
	s.topic("nobody", 1)
	s.topic("idle", 0)
	stopIdle := s.works("idle", blocked)
	s.topic("busy", 1)
	s.works("busy", blocked)
	s.topic("behind", 2)
	s.works("behind", blocked)
	s.topic("silent", 1)
	s.runs(func(ctx context.Context) error { return s.neverAnswers(ctx, "silent") })

	s.becomes("nobody", liveness.NobodyPulls)
	s.becomes("idle", liveness.Pulling)
	s.becomes("busy", liveness.Pulling)
	s.becomes("behind", liveness.Stuck)
	s.becomes("silent", liveness.Stuck)
	if got := s.watcher.State("behind"); got.Queued != 1 || got.Busy != 1 {
		t.Errorf("behind: %+v", got)
	}
	stopIdle()
	s.becomes("idle", liveness.NobodyPulls)
	close(release)
	s.becomes("behind", liveness.Pulling)
	s.works("nobody", blocked)
	s.becomes("nobody", liveness.Pulling)

	s.server.Shutdown()
	s.becomes("nobody", liveness.Unknown)
	woken := map[string]int{}
	s.eventually("the runs were woken for each change", func() bool {
		select {
		case key := <-s.woken:
			woken[key]++
		default:
		}
		return woken["nobody"] >= 3 && woken["idle"] >= 3 && woken["behind"] >= 3
	})
	s.server.Restart() // so that its clients can leave in good order
}

// neverAnswers pulls one job after the other, and answers none.
func (s *site) neverAnswers(ctx context.Context, topic string) error {
	c, err := s.js.Consumer(ctx, protocol.Names{Prefix: protocol.DefaultPrefix}.JobsStream(), protocol.Durable(topic))
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		_, _ = c.Next(jetstream.FetchMaxWait(time.Second))
	}
	return nil
}
