// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
)

// in is an operator of cluster a in a namespace.
func in(namespace string) func(*bus.Config) {
	return func(c *bus.Config) { c.Installation, c.Home = "a", namespace }
}

func wantNeighbour(t *testing.T, what string, err error, theirs, ours string) {
	t.Helper()
	f, ok := errors.AsType[*bus.ForeignError](err)
	if !ok || !f.Neighbour || f.Theirs != theirs || f.Ours != ours {
		t.Errorf("%s: %v, want the streams to be of the operator in %s and this to be in %s", what, err, theirs, ours)
		return
	}
	for _, word := range []string{"namespace " + theirs, "is in " + ours, "--nats-take-over=" + theirs} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: says %q without %q", what, err, word)
		}
	}
}

// homes are the namespaces that the streams name.
func homes(t *testing.T, b *broker) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, name := range []string{b.Names.JobsStream(), b.Names.ResultsStream(), b.Names.DeadLettersStream(), b.Names.ControlStream(), b.Names.PayloadsStream()} {
		all[bustest.Info(t, b.Conn, name).Config.Metadata[bus.HomeKey]] = true
	}
	return all
}

func wantHome(t *testing.T, b *broker, namespace string) {
	t.Helper()
	if got := homes(t, b); len(got) != 1 || !got[namespace] {
		t.Errorf("the streams name %v, want %s", got, namespace)
	}
}

// An operator was left in another namespace of the cluster. It has keys of its own, so each of the
// two would take results of the other's jobs for forged, and end them as dead letters.
//
// mutation: check, or own, that asks for the cluster alone makes this fail.
func TestAnOperatorInAnotherNamespaceTakesNothing(t *testing.T) {
	s := natstest.Start(t)
	a, b := newBroker(t, s, in("flow")), newcomer(t, s, in("syncopate-system"))
	job := testJob(1)
	if err := a.jobs.Publish(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	bustest.Answer(t, a.Conn, job.ID, bustest.Succeeded)
	stop := consumeAnyhow(t, b)
	wantNeighbour(t, "publish", b.jobs.Publish(t.Context(), testJob(2)), "flow", "syncopate-system")
	wantNeighbour(t, "ready", b.Ready(t.Context()), "flow", "syncopate-system")
	got, _ := collect(t, a)
	if d := bustest.Receive(t, "the result reaches whose job it was", got, 1)[0]; d.ID != job.ID {
		t.Errorf("got %s", d.ID)
	}
	stop()
	if letters := bustest.DeadLetters(t, a.Conn); len(letters) > 0 {
		t.Errorf("%d dead letters, the first on %s", len(letters), letters[0].Subject)
	}
	wantHome(t, a, "flow")
}

// In a rolling update both versions are there, and the older one names no namespace. It may be
// gone back to.
//
// mutations: own that leaves streams without a namespace as they are, or an older operator that
// is refused for it, makes this fail.
func TestStreamsOfAnOlderOperatorGetItsNamespaceAndItGoesOn(t *testing.T) {
	s := natstest.Start(t)
	old := newBroker(t, s, installed("a"))
	next := newcomer(t, s, in("flow"))
	if err := next.RepairStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantHome(t, next, "flow")
	if err := errors.Join(old.RepairStreams(t.Context()), old.Ready(t.Context()), old.jobs.Publish(t.Context(), testJob(1))); err != nil {
		t.Errorf("the older one: %v", err)
	}
	if err := errors.Join(newcomer(t, s, in("flow")).RepairStreams(t.Context()), next.Ready(t.Context())); err != nil {
		t.Errorf("after the way back: %v", err)
	}
	wantHome(t, next, "flow")
}

// mutations: own that does not rename the streams of a namespace that is gone or named by the flag,
// or a watch that goes on when another namespace is named, makes this fail.
func TestStreamsOfAnotherNamespaceAreTakenOver(t *testing.T) {
	for name, adjust := range map[string]func(*bus.Config){
		"by the flag":           func(c *bus.Config) { c.TakeOver = "flow" },
		"the namespace is gone": func(c *bus.Config) { c.HomeGone = func(_ context.Context, ns string) bool { return ns == "flow" } },
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t)
			a := newBroker(t, s, in("flow"))
			ended := make(chan error, 1)
			go func() { ended <- a.results.Consume(t.Context(), func(context.Context, *results.Delivery) {}) }()
			b := newcomer(t, s, in("syncopate-system"), adjust)
			if err := errors.Join(b.jobs.Publish(t.Context(), testJob(1)), b.Ready(t.Context())); err != nil {
				t.Fatal(err)
			}
			wantHome(t, b, "syncopate-system")
			a.Look() // as every 10 s
			wantNeighbour(t, "consume", bustest.Receive(t, "Consume returns", ended, 1)[0], "syncopate-system", "flow")
			wantNeighbour(t, "publish", a.jobs.Publish(t.Context(), testJob(2)), "syncopate-system", "flow")
		})
	}
}

// mutation: a refusal that is remembered for good makes this fail.
func TestWhoWasRefusedTakesOverWhenTheNamespaceIsGone(t *testing.T) {
	s := natstest.Start(t)
	clock, gone := clocktesting.NewFakeClock(time.Now()), false
	newBroker(t, s, in("flow"))
	b := newcomer(t, s, in("syncopate-system"), func(c *bus.Config) {
		c.Clock, c.HomeGone = clock, func(context.Context, string) bool { return gone }
	})
	wantNeighbour(t, "at first", b.jobs.Cancel(t.Context(), "run-1", nil), "flow", "syncopate-system")
	gone = true
	clock.Step(bus.StreamCheck)
	if err := b.jobs.Cancel(t.Context(), "run-1", nil); err != nil {
		t.Error(err)
	}
	wantHome(t, b, "syncopate-system")
}

// A cluster that takes another's place takes its namespaces, too.
//
// mutation: check that compares namespaces of two clusters makes this fail.
func TestTheNamespaceOfAnotherClusterDoesNotMatter(t *testing.T) {
	s := natstest.Start(t)
	newBroker(t, s, in("flow"))
	b := newcomer(t, s, func(c *bus.Config) { c.Home, c.TakeOver = "syncopate-system", "a" })
	if err := b.RepairStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantHome(t, b, "syncopate-system")
	wantForeign(t, "another", newcomer(t, s, func(c *bus.Config) { c.Installation, c.Home = "c", "syncopate-system" }).EnsureStreams(t.Context()), "b", "c")
}

// remove deletes streams, as "nats stream rm" does.
func remove(t *testing.T, b *broker, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := b.JetStream.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
}

// The one that is refused asks again every 10 s, and may find a stream gone before the one whose
// streams they are does.
//
// mutation: EnsureStreams that makes a stream before it has looked at all of them makes this fail.
func TestWhoIsRefusedMakesNoStream(t *testing.T) {
	for name, neighbour := range map[string]struct {
		adjust func(*bus.Config)
		want   func(*testing.T, error)
	}{
		"in another namespace": {in("staging"), func(t *testing.T, err error) { wantNeighbour(t, "refused", err, "flow", "staging") }},
		"in another cluster": {func(c *bus.Config) { c.Installation, c.Home = "b", "flow" }, func(t *testing.T, err error) {
			wantForeign(t, "refused", err, "a", "b")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t)
			clock := clocktesting.NewFakeClock(time.Now())
			a, b := newBroker(t, s, in("flow")), newcomer(t, s, neighbour.adjust, func(c *bus.Config) { c.Clock = clock })
			neighbour.want(t, b.Usable(t.Context()))
			remove(t, a, a.Names.JobsStream())
			for range 2 {
				clock.Step(bus.StreamCheck)
				neighbour.want(t, b.Usable(t.Context()))
			}
			if _, err := a.JetStream.Stream(t.Context(), a.Names.JobsStream()); !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Errorf("the one that is refused made a stream: %v", err)
			}
			if err := errors.Join(a.CheckStreams(t.Context()), a.Ready(t.Context())); err != nil {
				t.Error(err)
			}
			wantHome(t, a, "flow")
		})
	}
}

// As in Redis: who was refused leaves NATS for a minute to the one before, which looks every 10 s.
//
// mutations: EnsureStreams that makes streams at once, or never, makes this fail.
func TestWhoIsRefusedLeavesAnEmptyNATSForAMinute(t *testing.T) {
	s := natstest.Start(t)
	clock := clocktesting.NewFakeClock(time.Now())
	a, b := newBroker(t, s, in("flow")), newcomer(t, s, in("staging"), func(c *bus.Config) { c.Clock = clock })
	all := append(a.Watched(), a.Names.DeadLettersStream(), a.Names.ControlStream(), a.Names.PayloadsStream())
	wantNeighbour(t, "at first", b.Usable(t.Context()), "flow", "staging")
	empty := func(wait time.Duration) {
		t.Helper()
		remove(t, a, all...)
		for at := time.Duration(0); at < wait; at += bus.StreamCheck {
			clock.Step(bus.StreamCheck)
			wantNeighbour(t, at.String(), b.Usable(t.Context()), "flow", "staging")
		}
	}
	empty(bus.ClaimAfter)
	if err := a.CheckStreams(t.Context()); err != nil {
		t.Error(err)
	}
	wantHome(t, a, "flow")
	clock.Step(bus.StreamCheck)
	wantNeighbour(t, "its streams are back", b.Usable(t.Context()), "flow", "staging")
	empty(bus.ClaimAfter)
	clock.Step(bus.StreamCheck)
	if err := b.Usable(t.Context()); err != nil {
		t.Errorf("the one before is gone: %v", err)
	}
	wantHome(t, b, "staging")
}

// A replica of an older version, or a snapshot that is put back, makes a stream without a
// namespace while its operator runs.
//
// mutations: checkStream that leaves it without, or EnsureStreams of a neighbour that names it as
// the first stream it sees, makes this fail.
func TestAStreamThatLosesItsNamespaceGetsItAgain(t *testing.T) {
	s := natstest.Start(t)
	a := newBroker(t, s, in("flow"))
	for _, name := range a.Watched() {
		unnamed := bustest.Info(t, a.Conn, name).Config
		delete(unnamed.Metadata, bus.HomeKey)
		if _, err := a.JetStream.UpdateStream(t.Context(), unnamed); err != nil {
			t.Fatal(err)
		}
		wantNeighbour(t, "a neighbour that starts", newcomer(t, s, in("staging")).EnsureStreams(t.Context()), "flow", "staging")
		if err := a.CheckStreams(t.Context()); err != nil {
			t.Error(err)
		}
		wantHome(t, a, "flow")
	}
}

// A user of NATS that may not change streams worked until now, and goes on.
//
// mutations: own that fails when a stream cannot get a namespace, or that waits for each stream,
// makes this fail.
func TestStreamsThatCannotGetANamespaceAreUsedWithoutIt(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "any", Password: "any"}, {Username: "less", Password: "less", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.UPDATE.>"}},
		}}}
	})
	all := bustest.Connect(t, bus.Config{URL: s.URL(), User: "any", Password: "any", Installation: "a"})
	clk := clocktesting.NewFakeClock(time.Now())
	less := func(installation string) *bus.Conn {
		return bustest.Dial(t, bus.Config{URL: s.URL(), User: "less", Password: "less", Installation: installation, Home: "flow", TakeOver: "a", Clock: clk})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*bus.CallTimeout)
	defer cancel()
	b := less("a")
	if err := errors.Join(b.RepairStreams(ctx), b.Ready(ctx), b.CheckStreams(ctx)); err != nil {
		t.Error(err)
	}
	if err := less("b").RepairStreams(ctx); err == nil {
		t.Error("streams of another cluster are used without being taken over")
	}
	// As the user gets the right.
	next := bustest.Dial(t, bus.Config{URL: s.URL(), User: "any", Password: "any", Installation: "a", Home: "flow"})
	if err := next.RepairStreams(t.Context()); err != nil {
		t.Error(err)
	}
	if home := bustest.Info(t, all, all.Names.ResultsStream()).Config.Metadata[bus.HomeKey]; home != "flow" {
		t.Errorf("the streams name %q", home)
	}
}

// It goes on also after a move, and where it takes over.
//
// mutation: own that fails where it cannot rename streams of a namespace that is gone, or named by
// the flag, makes this fail.
func TestStreamsThatCannotBeRenamedAreUsedAfterAMove(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "any", Password: "any"}, {Username: "less", Password: "less", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.UPDATE.>"}},
		}}}
	})
	bustest.Connect(t, bus.Config{URL: s.URL(), User: "any", Password: "any", Installation: "a", Home: "flow"})
	clk := clocktesting.NewFakeClock(time.Now())
	for name, adjust := range map[string]func(*bus.Config){
		"by the flag":           func(c *bus.Config) { c.TakeOver = "flow" },
		"the namespace is gone": func(c *bus.Config) { c.HomeGone = func(_ context.Context, ns string) bool { return ns == "flow" } },
	} {
		var mu sync.Mutex
		var log strings.Builder
		less := bus.Config{URL: s.URL(), User: "less", Password: "less", Installation: "a", Home: "x", Clock: clk, Log: funcr.New(func(_, args string) {
			mu.Lock() // the client tells of errors beside
			defer mu.Unlock()
			log.WriteString(args + "\n")
		}, funcr.Options{})}
		adjust(&less)
		ctx, cancel := context.WithTimeout(t.Context(), 4*bus.CallTimeout)
		defer cancel()
		b := bustest.Dial(t, less)
		if err := errors.Join(b.RepairStreams(ctx), b.Ready(ctx), b.Usable(ctx), b.CheckStreams(ctx)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b.Close(ctx)
		mu.Lock()
		for _, word := range []string{`"namespace"="x"`, `"namespaceBefore"="flow"`, "$JS.API.STREAM.UPDATE." + b.Names.JobsStream()} {
			if !strings.Contains(log.String(), word) {
				t.Errorf("%s: the log is without %s:\n%s", name, word, log.String())
			}
		}
		mu.Unlock()
	}
}
