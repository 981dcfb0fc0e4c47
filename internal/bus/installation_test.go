package bus

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func installed(name string) func(*Config) { return func(c *Config) { c.Installation = name } }

// newcomer is a Bus of another installation with keys of its own, which has not made any streams.
func newcomer(t *testing.T, s *natstest.Server, adjust ...func(*Config)) *Bus {
	t.Helper()
	c := Config{URL: s.URL(), Keys: Keyring{Current: Key{ID: "k2", Secret: []byte("another key of 32 bytes or more..")}}, Log: testLog(t)}
	for _, f := range append([]func(*Config){installed("b")}, adjust...) {
		f(&c)
	}
	b, err := Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(context.WithoutCancel(t.Context())) })
	eventually(t, "the bus is connected", b.connected)
	return b
}

func wantForeign(t *testing.T, what string, err error, theirs, ours string) {
	t.Helper()
	f, ok := errors.AsType[*ForeignError](err)
	if !ok || f.Theirs != theirs || f.Ours != ours {
		t.Errorf("%s: %v, want the streams to be of %s and this to be %s", what, err, theirs, ours)
	}
}

// Two clusters were given one prefix of one NATS. Without names each takes the other's results for forged, and its jobs for those of
// runs that were deleted.
//
// mutations: Consume, or any of the calls, that does not ask whose the streams are makes this fail.
func TestAnotherInstallationTakesNothing(t *testing.T) {
	s := natstest.Start(t)
	a, b := newBus(t, s, installed("a")), newcomer(t, s)
	ctx, job, ref := t.Context(), testJob(1), protocol.NewOutputRef(jobID(1), []byte("1"))
	if err := a.Publish(ctx, job); err != nil {
		t.Fatal(err)
	}
	answer(t, a, job.ID, succeeded)
	stop := consumeAnyhow(t, b)

	_, recovered := b.Recover(ctx, testJob(2))
	_, read := b.Payload(ctx, ref)
	_, queued := b.QueuedJobs(ctx)
	_, listed := b.Payloads(ctx)
	_, loose := b.LooseParts(ctx, 0)
	_, workers := b.Workers(ctx, job.Topic)
	_, answers := b.Answers(ctx, job.ID.RunUID, 1)
	for what, err := range map[string]error{
		"ensure": b.EnsureStreams(ctx), "ready": b.Ready(ctx), "publish": b.Publish(ctx, testJob(2)), "recover": recovered,
		"withdraw": b.Withdraw(ctx, job.Topic, job.ID), "cancel": b.Cancel(ctx, job.ID.RunUID, nil), "queue": queued,
		"store": b.StorePayload(ctx, ref, []byte("1")), "read": read, "drop": b.DropPayloads(ctx, []string{ref.Name}),
		"list": listed, "parts": loose, "drop parts": b.DropParts(ctx, []string{"x"}), "workers": workers, "answers": answers,
	} {
		wantForeign(t, what, err, "a", "b")
		if retry, ok := errors.AsType[*RetryError](err); !ok || retry.Delay <= 0 {
			t.Errorf("%s: does not say when to retry", what)
		}
	}
	if b.Connected() {
		t.Error("it believes that it can use NATS")
	}
	got, _ := collect(t, a)
	if d := receive(t, "the result reaches whose job it was", got, 1)[0]; d.ID != job.ID {
		t.Errorf("got %s", d.ID)
	}
	stop()
	if letters := deadLetters(t, a); len(letters) > 0 {
		t.Errorf("%d dead letters, the first on %s", len(letters), letters[0].Subject)
	}
}

// consumeAnyhow has a bus consume that nobody asked whether it may, until its first look at least.
func consumeAnyhow(t *testing.T, b *Bus) (stop func()) {
	t.Helper()
	b.losses.look()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- b.Consume(ctx, func(ctx context.Context, d *Delivery) { _ = d.Settle(ctx, nil) }) }()
	return func() {
		cancel()
		receive(t, "Consume returns", done, 1)
	}
}

// mutation: own that names a stream without its other settings, or none, makes this fail.
func TestStreamsOfBeforeBecomeOurs(t *testing.T) {
	s := natstest.Start(t)
	before := newBus(t, s, func(c *Config) { c.MaxBytes.Jobs = 12 << 20 })
	if err := before.Publish(t.Context(), testJob(1)); err != nil {
		t.Fatal(err)
	}
	b := newcomer(t, s)
	for range 2 { // the second time there is nothing to do
		if err := b.repairStreams(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{b.names.JobsStream(), b.names.ResultsStream(), b.names.DeadLettersStream(), b.names.ControlStream(), b.names.PayloadsStream()} {
		if c := streamInfo(t, b, name).Config; c.Metadata[installationKey] != "b" {
			t.Errorf("stream %s has %v", name, c.Metadata)
		}
	}
	jobs := streamInfo(t, b, b.names.JobsStream())
	if jobs.Config.MaxBytes != 12<<20 || jobs.State.Msgs != 1 {
		t.Errorf("%d messages, at most %d bytes", jobs.State.Msgs, jobs.Config.MaxBytes)
	}
	wantForeign(t, "a third one", newcomer(t, s, installed("c")).EnsureStreams(t.Context()), "b", "c")
}

// mutations: watchStreams that goes on, or EnsureStreams that takes over whatever it finds, makes this fail.
func TestStreamsAreTakenOverOnPurpose(t *testing.T) {
	s := natstest.Start(t)
	a := newBus(t, s, installed("a"))
	ended := make(chan error, 1)
	go func() { ended <- a.Consume(t.Context(), func(context.Context, *Delivery) {}) }()
	wantForeign(t, "from another", newcomer(t, s, func(c *Config) { c.TakeOver = "x" }).EnsureStreams(t.Context()), "a", "b")
	b := newcomer(t, s, func(c *Config) { c.TakeOver = "a" })
	if err := b.Publish(t.Context(), testJob(1)); err != nil { // the first use asks
		t.Fatal(err)
	}
	nothing(t, "the end, before a look", ended, 50*time.Millisecond)
	a.losses.look() // as every 10 s
	wantForeign(t, "consume", receive(t, "Consume returns", ended, 1)[0], "b", "a")
	wantForeign(t, "publish", a.Publish(t.Context(), testJob(2)), "b", "a")
	wantForeign(t, "ready", a.Ready(t.Context()), "b", "a")
	if err := b.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// Whose the streams are is asked once, not by each call; who was refused asks again after a while.
//
// mutation: usable that remembers a refusal for ever, or asks each time, makes this fail.
func TestWhoWasRefusedAsksAgain(t *testing.T) {
	s := natstest.Start(t)
	clock := clocktesting.NewFakeClock(time.Now())
	a := newBus(t, s, installed("a"))
	b := newcomer(t, s, func(c *Config) { c.Clock = clock })
	wantForeign(t, "at first", b.Cancel(t.Context(), "run-1", nil), "a", "b")
	for _, name := range a.losses.watched {
		rename(t, a, name, "b")
	}
	for _, name := range []string{a.names.DeadLettersStream(), a.names.ControlStream(), a.names.PayloadsStream()} {
		rename(t, a, name, "b")
	}
	wantForeign(t, "soon after", b.Cancel(t.Context(), "run-1", nil), "a", "b")
	clock.Step(streamCheck)
	if err := b.Cancel(t.Context(), "run-1", nil); err != nil {
		t.Error(err)
	}
}

func rename(t *testing.T, b *Bus, stream, installation string) {
	t.Helper()
	c := streamInfo(t, b, stream).Config
	c.Metadata[installationKey] = installation
	if _, err := b.js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}
