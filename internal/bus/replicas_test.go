// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

// replicasOf is how many each stream of the operator is to have.
func replicasOf(t *testing.T, c *bus.Conn) map[string]int {
	t.Helper()
	got := map[string]int{}
	for _, name := range []string{
		c.Names.JobsStream(), c.Names.ResultsStream(), c.Names.DeadLettersStream(), c.Names.ControlStream(), c.Names.PayloadsStream(),
	} {
		got[name] = bustest.Info(t, c, name).Config.Replicas
	}
	return got
}

func wantReplicas(t *testing.T, c *bus.Conn, want int) {
	t.Helper()
	got := replicasOf(t, c)
	if len(got) != 5 || slices.ContainsFunc(slices.Collect(maps.Values(got)), func(n int) bool { return n != want }) {
		t.Errorf("replicas %v, want %d", got, want)
	}
}

// followers is how many servers beside the leader have a consumer.
func followers(t *testing.T, c *bus.Conn, durable string) int {
	t.Helper()
	consumer, err := c.JetStream.Consumer(t.Context(), c.Names.JobsStream(), durable)
	if err != nil || consumer.CachedInfo().Cluster == nil {
		return 0
	}
	return len(consumer.CachedInfo().Cluster.Replicas)
}

// Streams were made with one replica, as is the default, and then somebody asks for three: as after
// a loss of data.
//
// mutation: replicate that is not called for payloads, or that lowers, makes this fail.
func TestStreamsGetTheReplicasThatAreAskedForAndKeepThem(t *testing.T) {
	t.Parallel()
	servers := natstest.StartCluster(t)
	asksFor := func(replicas int) *bus.Conn {
		t.Helper()
		c := bustest.Dial(t, bus.Config{URL: servers.URL(), Replicas: replicas})
		bustest.Eventually(t, "the streams are there", func() bool { return c.RepairStreams(t.Context()) == nil && c.Ready(t.Context()) == nil })
		return c
	}
	first := asksFor(1)
	wantReplicas(t, first, 1)
	durable := jetstream.ConsumerConfig{Durable: "web", FilterSubject: "syncopate.jobs.web.>", AckPolicy: jetstream.AckExplicitPolicy}
	if _, err := first.JetStream.CreateConsumer(t.Context(), first.Names.JobsStream(), durable); err != nil {
		t.Fatal(err)
	}
	three := asksFor(3)
	bustest.Eventually(t, "none has fewer, though some may have had no leader at first", func() bool {
		return three.RepairStreams(t.Context()) == nil && slices.Min(slices.Collect(maps.Values(replicasOf(t, three)))) == 3
	})
	wantReplicas(t, three, 3)
	bustest.Eventually(t, "consumers follow", func() bool { return followers(t, first, durable.Durable) == 2 })
	wantReplicas(t, asksFor(1), 3) // a replica of the operator that has the old flag still
	bustest.Eventually(t, "nothing differs from what is asked for", func() bool { return three.EnsureStreams(t.Context()) == nil })
}

// mutation: replicate that gives the refusal of the server back makes this fail.
func TestOneServerHasNoReplicasAndStopsNobody(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	newBroker(t, s)
	asks := bustest.Dial(t, bus.Config{URL: s.URL(), Replicas: 3})
	bustest.Eventually(t, "the streams are looked at", func() bool { return asks.RepairStreams(t.Context()) == nil })
	wantReplicas(t, asks, 1)
	drift, ok := errors.AsType[*bus.DriftError](asks.EnsureStreams(t.Context()))
	if !ok || len(drift.Drifts) != 5 {
		t.Fatalf("drift %+v; want that of each stream", drift)
	}
	if diff := cmp.Diff(bus.Drift{Object: "SYNCOPATE_JOBS", Field: "num_replicas", Want: "3", Got: "1"}, drift.Drifts[0]); diff != "" {
		t.Errorf("drift (-want +got):\n%s", diff)
	}
	if err := asks.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
}

// Two replicas of the operator start at a time: one has read a stream before the other raised it.
//
// mutation: edit that sends the settings as they were read makes this fail.
func TestAnUpdateKeepsWhatChangedSinceTheStreamWasRead(t *testing.T) {
	t.Parallel()
	b := newBroker(t, natstest.Start(t))
	stale, err := b.JetStream.Stream(t.Context(), b.Names.ControlStream())
	if err != nil {
		t.Fatal(err)
	}
	config := stale.CachedInfo().Config
	config.Description = "changed meanwhile"
	if _, err := b.JetStream.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	b.Bound(t.Context(), stale, 1<<20)
	if got := bustest.Info(t, b.Conn, b.Names.ControlStream()).Config; got.Description != config.Description || got.MaxBytes != 1<<20 {
		t.Errorf("description %q, limit %d", got.Description, got.MaxBytes)
	}
}

// NATS gives no answer to who lacks a right. Of five streams each would take the time of a call.
//
// mutation: replicate that gives the error back makes this fail, and so does improve that does not
// rest after it.
func TestWhoMayNotUpdateStreamsWorksWithThem(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "any", Password: "any"}, {Username: "less", Password: "less", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.UPDATE.>"}},
		}}}
	})
	bustest.Connect(t, bus.Config{URL: s.URL(), User: "any", Password: "any"})
	less := bustest.Dial(t, bus.Config{URL: s.URL(), User: "less", Password: "less", Replicas: 3, MaxBytes: bus.Divide(256 << 20)})
	ctx, cancel := context.WithTimeout(t.Context(), 4*bus.CallTimeout)
	defer cancel()
	drift, ok := errors.AsType[*bus.DriftError](less.EnsureStreams(ctx))
	if !ok || len(drift.Drifts) != 11 {
		t.Errorf("drift %v, want that of replicas and limits of five streams, and of dead letters on one subject", drift)
	}
	if err := less.RepairStreams(ctx); err != nil {
		t.Errorf("repair: %v", err)
	}
}

// mutation: checkStreams that does not raise makes this fail, and so does raise that does so
// at each look.
func TestReplicasThatWereRefusedAreTriedAgain(t *testing.T) {
	t.Parallel()
	s, clk := natstest.Start(t), clocktesting.NewFakeClock(time.Now())
	newBroker(t, s)
	asks := bustest.Dial(t, bus.Config{URL: s.URL(), Replicas: 3, Clock: clk})
	updates, err := asks.NATS.SubscribeSync("$JS.API.STREAM.UPDATE.>")
	if err != nil {
		t.Fatal(err)
	}
	wantUpdates := func(when string, want int) {
		t.Helper()
		if got, _, err := updates.Pending(); got != want || err != nil {
			t.Errorf("%s: NATS was asked %d times, %v; want %d", when, got, err, want)
		}
	}
	look := func() {
		t.Helper()
		if err := asks.CheckStreams(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := asks.RepairStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	look()
	wantUpdates("at first", 5)
	for pass := range 2 {
		clk.Step(bus.RaiseAgain)
		look()
		look()
		wantUpdates("later", 10+5*pass)
	}
}
