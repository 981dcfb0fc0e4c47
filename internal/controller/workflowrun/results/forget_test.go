// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/bus"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// thereAgain are streams that are ours whenever they are asked for.
type thereAgain struct{}

func (thereAgain) EnsureStreams(context.Context) error { return nil }

// takenOver is a source that another installation takes over after its first results. It gives
// those again when it is used again, as NATS does with what was given back.
type takenOver struct {
	results []protocol.JobID
	used    int
}

func (s *takenOver) Consume(ctx context.Context, accept func(context.Context, *busresults.Delivery)) error {
	for _, id := range s.results {
		accept(ctx, &busresults.Delivery{ID: id})
	}
	if s.used++; s.used > 1 {
		return nil
	}
	return fmt.Errorf("watch: %w", &bus.ForeignError{Stream: "results", Theirs: "b", Ours: "a"})
}

// mutation: Start without Forget has each result twice.
func TestConsumer_WhatWasGivenBackToAnotherInstallationWaitsOnceWhenItComesAgain(t *testing.T) {
	p := newPost(NewInbox(1000, 1<<20))
	run := runOf("ns", "run")
	p.Index.See(run)
	s := &takenOver{}
	for i := range int32(10) {
		s.results = append(s.results,
			protocol.JobID{RunUID: string(run.UID), Step: "s", Item: protocol.NoItem, Attempt: i + 1},
			protocol.JobID{RunUID: "unknown", Step: "s", Item: protocol.NoItem, Attempt: i + 1})
	}
	if err := NewConsumer(thereAgain{}, s, p.Router).Start(t.Context()); err != nil || s.used != 2 {
		t.Fatalf("used %d times, %v", s.used, err)
	}
	if in, out := p.Inbox.Backlog().Results, p.Orphans().Backlog().Results; in != 10 || out != 10 {
		t.Errorf("%d wait in the inbox, and %d for their run; want 10 each", in, out)
	}
}

// The run is deleted while its result is on its way, and its partition is left.
//
// mutation: putBack that parks what it did not take out of the inbox.
func TestRouter_AResultThatWasForgottenIsNotParked(t *testing.T) {
	p := newPost(NewInbox(10, 1<<20))
	run := runOf("ns", "run")
	l := &Pending{Fact: lifecycle.Result{ID: protocol.JobID{RunUID: string(run.UID)}}, Since: epoch, Delivery: &fakeDelivery{}}
	p.Inbox.Put(run.Namespace, run.UID, l)
	p.Forget(map[int]bool{protocol.Partition(string(run.UID)): true})
	p.entered(t.Context(), types.NamespacedName{Namespace: run.Namespace, Name: run.Name}, l)
	if in, out := p.Inbox.Backlog().Results, p.Orphans().Backlog().Results; in != 0 || out != 0 {
		t.Errorf("%d wait in the inbox, and %d for their run, of a partition that was left", in, out)
	}
}

// Both are in goroutines of their own: what waits for unknown runs is sorted while partitions are
// handed over.
//
// mutation: Known that takes results out of one inbox, and puts them into the other, without
// moving held makes this fail nearly always.
func TestOrphans_NoResultEscapesForgetOnItsWayIntoTheInbox(t *testing.T) {
	run := runOf("ns", "run")
	left := map[int]bool{protocol.Partition(string(run.UID)): true}
	for range 50 {
		p := newPost(NewInbox(1000, 1<<20))
		for range 900 {
			p.orphans.parked.Put("", run.UID, &Pending{Fact: lifecycle.Result{ID: protocol.JobID{RunUID: string(run.UID)}}, Since: epoch, Delivery: &fakeDelivery{}})
		}
		p.Index.See(run)
		var both sync.WaitGroup
		both.Go(func() { p.Orphans().Known(t.Context(), run.UID) })
		both.Go(func() {
			for p.Orphans().Backlog().Results > 0 { // until they are on their way
			}
			p.Forget(left)
		})
		both.Wait()
		if in, out := p.Inbox.Backlog().Results, p.Orphans().Backlog().Results; in != 0 || out != 0 {
			t.Fatalf("%d wait in the inbox, and %d for their run, of a partition that was left", in, out)
		}
	}
}
