// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func installed(name string) func(*bus.Config) { return func(c *bus.Config) { c.Installation = name } }

// newcomer is a Bus of another installation with keys of its own, which has not made any streams.
func newcomer(t *testing.T, s *natstest.Server, adjust ...func(*bus.Config)) *broker {
	t.Helper()
	c := bus.Config{URL: s.URL()}
	for _, f := range append([]func(*bus.Config){installed("b")}, adjust...) {
		f(&c)
	}
	own, err := keys.New(keys.Keyring{Current: keys.Key{ID: "k2", Secret: []byte("another key of 32 bytes or more..")}}, nil, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return wire(bustest.Dial(t, c), own)
}

func wantForeign(t *testing.T, what string, err error, theirs, ours string) {
	t.Helper()
	f, ok := errors.AsType[*bus.ForeignError](err)
	if !ok || f.Theirs != theirs || f.Ours != ours {
		t.Errorf("%s: %v, want the streams to be of %s and this to be %s", what, err, theirs, ours)
	}
}

// Two clusters were given one prefix of one NATS. Without names each takes the other's results for
// forged, and its jobs for those of runs that were deleted.
//
// mutations: Consume, or any of the calls, that does not ask whose the streams are makes this fail.
func TestAnotherInstallationTakesNothing(t *testing.T) {
	s := natstest.Start(t)
	a, b := newBroker(t, s, installed("a")), newcomer(t, s)
	ctx, job, ref := t.Context(), testJob(1), protocol.NewOutputRef(bustest.JobID(1), []byte("1"))
	if err := a.jobs.Publish(ctx, job); err != nil {
		t.Fatal(err)
	}
	bustest.Answer(t, a.Conn, job.ID, bustest.Succeeded)
	stop := consumeAnyhow(t, b)

	_, recovered := b.jobs.Recover(ctx, testJob(2))
	_, found := b.jobs.Found(ctx, "another", []protocol.JobID{job.ID})
	_, read := b.payloads.Get(ctx, ref)
	_, queued := b.jobs.List(ctx)
	_, listed := b.payloads.List(ctx)
	_, loose := b.payloads.LooseParts(ctx, 0)
	_, workers := b.jobs.Workers(ctx, job.Topic)
	_, answers := b.reader.Answers(ctx, job.ID.RunUID, 1)
	for what, err := range map[string]error{
		"ensure": b.EnsureStreams(ctx), "ready": b.Ready(ctx), "publish": b.jobs.Publish(ctx, testJob(2)), "recover": recovered, "found": found,
		"withdraw": b.jobs.Withdraw(ctx, job.Topic, job.ID), "cancel": b.jobs.Cancel(ctx, job.ID.RunUID, nil), "queue": queued,
		"store": b.payloads.Put(ctx, ref, []byte("1")), "read": read, "drop": b.payloads.Drop(ctx, []string{ref.Name}),
		"list": listed, "parts": loose, "drop parts": b.payloads.DropParts(ctx, []string{"x"}), "workers": workers, "answers": answers,
	} {
		wantForeign(t, what, err, "a", "b")
		if retry, ok := errors.AsType[*bus.RetryError](err); !ok || retry.Delay <= 0 {
			t.Errorf("%s: does not say when to retry", what)
		}
	}
	if b.Connected() {
		t.Error("it believes that it can use NATS")
	}
	got, _ := collect(t, a)
	if d := bustest.Receive(t, "the result reaches whose job it was", got, 1)[0]; d.ID != job.ID {
		t.Errorf("got %s", d.ID)
	}
	stop()
	if letters := bustest.DeadLetters(t, a.Conn); len(letters) > 0 {
		t.Errorf("%d dead letters, the first on %s", len(letters), letters[0].Subject)
	}
}

// consumeAnyhow has a bus consume that nobody asked whether it may, until its first look at least.
func consumeAnyhow(t *testing.T, b *broker) (stop func()) {
	t.Helper()
	b.Look()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() {
		done <- b.results.Consume(ctx, func(ctx context.Context, d *results.Delivery) { _ = d.Settle(ctx, nil) })
	}()
	return func() {
		cancel()
		bustest.Receive(t, "Consume returns", done, 1)
	}
}

// mutation: own that names a stream without its other settings, or none, makes this fail.
func TestStreamsOfBeforeBecomeOurs(t *testing.T) {
	s := natstest.Start(t)
	before := newBroker(t, s, func(c *bus.Config) { c.MaxBytes.Jobs = 12 << 20 })
	if err := before.jobs.Publish(t.Context(), testJob(1)); err != nil {
		t.Fatal(err)
	}
	b := newcomer(t, s)
	for range 2 { // the second time there is nothing to do
		if err := b.RepairStreams(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{b.Names.JobsStream(), b.Names.ResultsStream(), b.Names.DeadLettersStream(), b.Names.ControlStream(), b.Names.PayloadsStream()} {
		if c := bustest.Info(t, b.Conn, name).Config; c.Metadata[bus.InstallationKey] != "b" {
			t.Errorf("stream %s has %v", name, c.Metadata)
		}
	}
	jobs := bustest.Info(t, b.Conn, b.Names.JobsStream())
	if jobs.Config.MaxBytes != 12<<20 || jobs.State.Msgs != 1 {
		t.Errorf("%d messages, at most %d bytes", jobs.State.Msgs, jobs.Config.MaxBytes)
	}
	wantForeign(t, "a third one", newcomer(t, s, installed("c")).EnsureStreams(t.Context()), "b", "c")
}

// mutations: WatchStreams that goes on, or EnsureStreams that takes over whatever it finds,
// makes this fail.
func TestStreamsAreTakenOverOnPurpose(t *testing.T) {
	s := natstest.Start(t)
	a := newBroker(t, s, installed("a"))
	ended := make(chan error, 1)
	go func() { ended <- a.results.Consume(t.Context(), func(context.Context, *results.Delivery) {}) }()
	wantForeign(t, "from another", newcomer(t, s, func(c *bus.Config) { c.TakeOver = "x" }).EnsureStreams(t.Context()), "a", "b")
	b := newcomer(t, s, func(c *bus.Config) { c.TakeOver = "a" })
	if err := b.jobs.Publish(t.Context(), testJob(1)); err != nil { // the first use asks
		t.Fatal(err)
	}
	bustest.Nothing(t, "the end, before a look", ended, 50*time.Millisecond)
	a.Look() // as every 10 s
	wantForeign(t, "consume", bustest.Receive(t, "Consume returns", ended, 1)[0], "b", "a")
	wantForeign(t, "publish", a.jobs.Publish(t.Context(), testJob(2)), "b", "a")
	wantForeign(t, "ready", a.Ready(t.Context()), "b", "a")
	if err := b.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// Whose the streams are is asked once, not by each call; who was refused asks again after a while.
//
// mutation: Usable that remembers a refusal for ever, or asks each time, makes this fail.
func TestWhoWasRefusedAsksAgain(t *testing.T) {
	s := natstest.Start(t)
	clock := clocktesting.NewFakeClock(time.Now())
	a := newBroker(t, s, installed("a"))
	b := newcomer(t, s, func(c *bus.Config) { c.Clock = clock })
	wantForeign(t, "at first", b.jobs.Cancel(t.Context(), "run-1", nil), "a", "b")
	for _, name := range a.Watched() {
		rename(t, a, name, "b")
	}
	for _, name := range []string{a.Names.DeadLettersStream(), a.Names.ControlStream(), a.Names.PayloadsStream()} {
		rename(t, a, name, "b")
	}
	wantForeign(t, "soon after", b.jobs.Cancel(t.Context(), "run-1", nil), "a", "b")
	clock.Step(bus.StreamCheck)
	if err := b.jobs.Cancel(t.Context(), "run-1", nil); err != nil {
		t.Error(err)
	}
}

func rename(t *testing.T, b *broker, stream, installation string) {
	t.Helper()
	c := bustest.Info(t, b.Conn, stream).Config
	c.Metadata[bus.InstallationKey] = installation
	if _, err := b.JetStream.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}
