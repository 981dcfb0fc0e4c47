// SPDX-License-Identifier: Apache-2.0

package wakes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/wakes"
)

const patience = 20 * time.Second

func start(t *testing.T, client redis.UniversalClient) (*wakes.Channel, <-chan types.NamespacedName) {
	t.Helper()
	heard := make(chan types.NamespacedName, 10_000)
	c := wakes.New(client, func(run types.NamespacedName) { heard <- run }, clock.RealClock{}, logr.Discard())
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("it does not end")
		}
	})
	return c, heard
}

// await sends until it is heard: who has not subscribed yet hears nothing.
func await(t *testing.T, from *wakes.Channel, heard <-chan types.NamespacedName, run types.NamespacedName) {
	t.Helper()
	limit, again := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for {
		from.Send(run)
		select {
		case got := <-heard:
			if got == run {
				return
			}
			t.Fatalf("heard of %s", got)
		case <-again.C:
		case <-limit:
			t.Fatal("nothing was heard")
		}
	}
}

// mutation: a listener that ends with its connection, or a sender without its queue,
// makes this fail.
func TestChannel_WordReachesTheOtherReplica(t *testing.T) {
	s := redistest.Start(t)
	a, _ := start(t, s.Client())
	_, atB := start(t, s.Client())
	run := types.NamespacedName{Namespace: "team", Name: "nightly"}
	await(t, a, atB, run)
	for _, garbage := range []string{"", "/", "team/", "/nightly", "no slash", strings.Repeat("x", 400) + "/" + strings.Repeat("y", 400)} {
		if err := s.Client().Publish(t.Context(), "syncopate:locks:wakes", garbage).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Client().ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	for len(atB) > 0 {
		<-atB
	}
	await(t, a, atB, run)
}

// mutation: a Send that blocks makes this fail.
func TestChannel_SendNeverWaits(t *testing.T) {
	c := wakes.New(nil, nil, clock.RealClock{}, logr.Discard()) // nobody sends
	for range 100_000 {
		c.Send(types.NamespacedName{Namespace: "team", Name: "nightly"})
	}
}

// One namespace sends word of many runs while Redis takes none. mutation: a queue without shares,
// or one that keeps a run twice, makes this fail.
func TestChannel_OneNamespaceLeavesRoomToOthers(t *testing.T) {
	s := redistest.Start(t)
	a, _ := start(t, s.Client())
	_, atB := start(t, s.Client())
	await(t, a, atB, types.NamespacedName{Namespace: "team", Name: "first"}) // both listen
	c := wakes.New(s.Client(), func(types.NamespacedName) {}, clock.RealClock{}, logr.Discard())
	for i := range 10_000 {
		c.Send(types.NamespacedName{Namespace: "loud", Name: fmt.Sprint("run-", i)})
	}
	quiet := types.NamespacedName{Namespace: "quiet", Name: "nightly"}
	for range 100 {
		c.Send(quiet)
	}
	last := types.NamespacedName{Namespace: "third", Name: "last"}
	c.Send(last)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = c.Start(ctx) }() // ends with the test
	heard := 0
	for limit, run := time.After(patience), (types.NamespacedName{}); run != last; {
		select {
		case run = <-atB:
			if run == quiet {
				heard++
			}
		case <-limit:
			t.Fatal("the last word was dropped")
		}
	}
	if heard != 1 {
		t.Errorf("word of the quiet namespace came %d times", heard)
	}
}
