// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// A holder is stopped between its last look at its lease and its publish. Another one takes the run
// over, a worker does the job, and the result is settled. Then the publish arrives.
//
// mutation: store that expects 0 of the job's own subject only makes each case store the job
// a second time.
func TestAPublishFromBeforeATakeOverIsRefused(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]func(*testing.T, *natstest.Server, *Queue){
		"after the duplicate window": func(t *testing.T, _ *natstest.Server, b *Queue) { outliveWindow(t, b) },
		"after a restart of the server and the duplicate window": func(t *testing.T, s *natstest.Server, b *Queue) {
			s.Restart()
			bustest.Eventually(t, "the bus is ready again", func() bool { return b.conn.Ready(t.Context()) == nil })
			outliveWindow(t, b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t)
			paused, b := newQueue(t, s, tinyWindow), newQueue(t, s, tinyWindow)
			old, again := testJob(1), testJob(1)
			again.Fence = old.Fence + 1
			if got, err := b.Recover(t.Context(), again); err != nil || got != Published {
				t.Fatalf("recover: %v, %v", got, err)
			}
			finish(t, b, again)
			later(t, s, b)
			bustest.Eventually(t, "connected", paused.conn.Connected)
			if err := paused.Publish(t.Context(), old); err == nil {
				t.Error("the publish succeeds")
			}
			if n := jobsQueued(t, b); n != 0 {
				t.Errorf("%d jobs are queued, want none", n)
			}
		})
	}
}

// mutation: Fence that does not compare fences lets the earlier holder begin an epoch of its
// own, and publish.
func TestAnEarlierHolderCannotBeginAnEpoch(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t), tinyWindow)
	old, again := testJob(1), testJob(1)
	again.Fence = old.Fence + 1
	if _, err := b.Recover(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	wantFenced := func(err error) {
		t.Helper()
		f, ok := errors.AsType[*FencedError](err)
		if !ok || f.By != again.Fence || f.Fence != old.Fence {
			t.Errorf("got %v, want to be told of fence %d", err, again.Fence)
		}
	}
	_, err := b.Fence(t.Context(), old) // while the job waits
	wantFenced(err)
	finish(t, b, again)
	_, err = b.Recover(t.Context(), old) // and after that
	wantFenced(err)
	wantFenced(b.Publish(t.Context(), old))
	if n := jobsQueued(t, b); n != 0 {
		t.Errorf("%d jobs are queued, want none", n)
	}
}

// The same holder: a publish whose answer did not come is on its way on a connection that is gone
// for its sender.
//
// mutation: Recover without Fence stores the job twice.
func TestAPublishThatIsLateIsRefusedAfterItsOwnRecovery(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t), tinyWindow)
	j := testJob(1)
	if got, err := b.Recover(t.Context(), j); err != nil || got != Published {
		t.Fatalf("recover: %v, %v", got, err)
	}
	finish(t, b, j)
	outliveWindow(t, b)
	err := b.Publish(t.Context(), j)
	if _, fenced := errors.AsType[*FencedError](err); err == nil || fenced {
		t.Errorf("got %v, want an error that does not name another holder", err)
	}
	if n := jobsQueued(t, b); n != 0 {
		t.Errorf("%d jobs are queued, want none", n)
	}
}

// Take-over after take-over: there is one fence message of an attempt, it goes by itself, no worker
// gets it, and nobody takes it for a job.
//
// mutation: no dropFence, no WithMsgTTL, a fenceMargin of a minute, or ParseJob that takes it for a
// job.
func TestFenceMessagesDoNotPileUp(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t))
	j := testJob(1)
	j.Deadline = b.conn.Clock.Now().Add(time.Hour)
	for range 5 {
		j.Fence++
		if _, err := b.Recover(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	subjects := bustest.Info(t, b.conn, b.conn.Names.JobsStream()).State.Subjects
	want := map[string]uint64{"syncopate.jobs.web.fetch.run-1.fetch.-.1": 1, "syncopate.jobs._fence.fetch.run-1.fetch.-.1": 2}
	if diff := cmp.Diff(want, subjects); diff != "" { // the first one is behind the job, and nobody looks for it any more
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	m, err := b.conn.Read(t.Context(), b.conn.Names.JobsStream(), bus.Query{LastFor: b.conn.Names.Fence(j.Topic, j.ID)})
	if err != nil || m == nil {
		t.Fatalf("fence message: %v, %v", m, err)
	}
	// An hour beyond the deadline, as protocol.md says. The server may have counted some
	// of it down.
	if ttl, err := time.ParseDuration(m.Header.Get("Nats-TTL")); err != nil || ttl < 2*time.Hour-5*time.Minute || ttl > 2*time.Hour+time.Second {
		t.Errorf("lives for %s, %v", ttl, err)
	}
	if queued, err := b.List(t.Context()); err != nil || len(queued) != 1 {
		t.Errorf("queued jobs: %v, %v", queued, err)
	}
	if got := bustest.Take(t, b.conn, j.Topic).Headers().Get(protocol.HeaderMsgID); got != j.ID.String() {
		t.Errorf("a worker gets %q", got)
	}
	if w, err := b.Workers(t.Context(), j.Topic); err != nil || w.Queued != 0 || w.Busy != 1 {
		t.Errorf("workers: %+v, %v", w, err)
	}
}

// In a cluster a message is on its way for a moment after its check: jobs of one run must not be in
// each other's way there, and two writers of one attempt must be.
//
// mutation: one fence message for a run, by whose subject all its jobs are checked, makes the first
// part fail; Fence that is checked by the subject of the fence message only, and not by the one
// that jobs are checked by, may make the second fail.
func TestAClusterStoresEachJobOnce(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	a, b := clusterBus(t, c), clusterBus(t, c)
	bustest.Eventually(t, "the topic is there", func() bool { return a.topics.ensure(t.Context(), testJob(1).Topic) == nil })
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			j := testJob(1)
			j.ID.Item = strconv.Itoa(i)
			if err := a.Publish(t.Context(), j); err != nil {
				t.Errorf("job %d of many: %v", i, err)
			}
		})
	}
	wg.Wait()
	if n := jobsQueued(t, a); n != 64 {
		t.Fatalf("%d jobs are queued, want 64", n)
	}
	for i := 2; i < 42; i++ {
		old, again := testJob(i), testJob(i)
		again.Fence = old.Fence + 1
		wg.Go(func() { _ = a.Publish(t.Context(), old) }) // may come before or after the other, or be refused
		wg.Go(func() {
			bustest.Eventually(t, "the job is recovered", func() bool {
				_, err := b.Recover(t.Context(), again)
				return err == nil
			})
		})
		wg.Wait()
	}
	for subject, n := range bustest.Info(t, a.conn, a.conn.Names.JobsStream()).State.Subjects {
		if n != 1 && !strings.Contains(subject, "_fence") {
			t.Errorf("%d messages on %s", n, subject)
		}
	}
}

func clusterBus(t *testing.T, c *natstest.Cluster) *Queue {
	t.Helper()
	conn := bustest.Dial(t, bus.Config{URL: c.URL(), Replicas: 3, DuplicateWindow: 100 * time.Millisecond})
	bustest.Eventually(t, "the streams are there", func() bool { return conn.RepairStreams(t.Context()) == nil && conn.Ready(t.Context()) == nil })
	return queueOn(t, conn, Options{})
}

// JOBS and RESULTS have leaders of their own. One that is new answers only when it has all that the
// one before had confirmed (nats-server 2.15), so a job that is gone from JOBS has its answer in
// RESULTS whoever leads there. This test tells if that changes.
func TestTheLeadersOfJobsAndResultsMayChangeBetweenTheLooks(t *testing.T) {
	t.Parallel()
	b := clusterBus(t, natstest.StartCluster(t))
	stepDown := func(stream string) {
		ctx, cancel := context.WithTimeout(t.Context(), bus.CallTimeout)
		defer cancel()
		_, _ = b.conn.NATS.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil)
	}
	for i := 1; i <= 6; i++ {
		j := testJob(i)
		bustest.Eventually(t, "the job is published", func() bool {
			err := b.Publish(t.Context(), j)
			if err != nil {
				_, err = b.Recover(t.Context(), j)
			}
			return err == nil
		})
		m := bustest.Take(t, b.conn, j.Topic)
		bustest.Eventually(t, "the job is answered", func() bool {
			_, err := b.conn.JetStream.PublishMsg(t.Context(), bustest.Result(b.conn.Names, bustest.Ring(), j.ID, bustest.Succeeded))
			return err == nil
		})
		var election sync.WaitGroup
		election.Go(func() { stepDown(b.conn.Names.ResultsStream()) }) // while the job is acknowledged and looked for
		bustest.Eventually(t, "the job is acknowledged", func() bool {
			err := m.DoubleAck(t.Context())
			return err == nil || errors.Is(err, jetstream.ErrMsgAlreadyAckd)
		})
		if i%2 == 0 {
			stepDown(b.conn.Names.JobsStream())
		}
		var got RecoverOutcome
		bustest.Eventually(t, "the job is looked up", func() bool {
			var err error
			got, err = b.Recover(t.Context(), j)
			return err == nil
		})
		if got == Published { // Queued: the new leader of JOBS has not got the acknowledgement yet
			t.Errorf("job %d is published again", i)
		}
		election.Wait()
	}
}

// A stream that was made anew gives the sequences of the one before again.
//
// mutation: bus.Conn.Delete that does not compare the losses deletes the job of another run.
func TestWithdrawDoesNotDeleteAnotherJobInAStreamMadeAnew(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t))
	withdrawn, other := testJob(1), testJob(2)
	publish(t, b, withdrawn)
	bustest.Look(t, b.conn)
	// What Withdraw does, with the loss between its two requests.
	m, err := b.conn.Read(t.Context(), b.conn.Names.JobsStream(), bus.Query{LastFor: b.conn.Names.Job(withdrawn.Topic, withdrawn.ID)})
	if err != nil || m == nil {
		t.Fatalf("look: %v, %v", m, err)
	}
	bustest.Recreate(t, b.conn, b.conn.Names.JobsStream())
	bustest.Look(t, b.conn)
	publish(t, b, other)
	if last := bustest.Info(t, b.conn, b.conn.Names.JobsStream()).State.LastSeq; last != m.Seq {
		t.Fatalf("the other job has sequence %d, want %d", last, m.Seq)
	}
	if err := b.conn.Delete(t.Context(), m); !errors.Is(err, bus.ErrStreamLost) {
		t.Errorf("delete: %v", err)
	}
	if err := b.Withdraw(t.Context(), withdrawn.Topic, withdrawn.ID); err != nil {
		t.Errorf("withdraw again: %v", err)
	}
	if n := jobsQueued(t, b); n != 1 {
		t.Errorf("%d jobs are queued, want the other one", n)
	}
}

// The other job was published before anybody noticed the loss: it may be deleted, and is looked up
// when the loss is noticed.
func TestAJobThatAWithdrawalTookInALostStreamIsPublishedAgain(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t), tinyWindow)
	withdrawn, other := testJob(1), testJob(2)
	publish(t, b, withdrawn)
	bustest.Look(t, b.conn)
	m, err := b.conn.Read(t.Context(), b.conn.Names.JobsStream(), bus.Query{LastFor: b.conn.Names.Job(withdrawn.Topic, withdrawn.ID)})
	if err != nil || m == nil || m.Seq != 1 {
		t.Fatalf("look: %v, %v", m, err)
	}
	bustest.Recreate(t, b.conn, b.conn.Names.JobsStream())
	known := b.conn.Losses() // what the run keeps with its publish
	if _, err := b.store(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := b.conn.Delete(t.Context(), m); err != nil && !errors.Is(err, bus.ErrStreamLost) {
		t.Fatal(err)
	}
	bustest.Look(t, b.conn)
	if b.conn.Losses() <= known {
		t.Fatalf("%d losses, and %d before the publish: nobody would look for the job", b.conn.Losses(), known)
	}
	bustest.Eventually(t, "the job is there again", func() bool {
		_, err := b.Recover(t.Context(), other)
		return err == nil && jobsQueued(t, b) == 1
	})
}
