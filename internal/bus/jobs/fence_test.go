package bus

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// A holder is stopped between its last look at its lease and its publish. Another one takes the run over, a worker does the job, and the
// result is settled. Then the publish arrives.
//
// mutation: store that expects 0 of the job's own subject only makes each case store the job a second time.
func TestAPublishFromBeforeATakeOverIsRefused(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]func(*testing.T, *natstest.Server, *Bus){
		"after the duplicate window": func(t *testing.T, _ *natstest.Server, b *Bus) { outliveWindow(t, b) },
		"after a restart of the server and the duplicate window": func(t *testing.T, s *natstest.Server, b *Bus) {
			s.Restart()
			eventually(t, "the bus is ready again", func() bool { return b.Ready(t.Context()) == nil })
			outliveWindow(t, b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t)
			paused, b := newBus(t, s, tinyWindow), newBus(t, s, tinyWindow)
			old, again := testJob(1), testJob(1)
			again.Fence = old.Fence + 1
			if got, err := b.Recover(t.Context(), again); err != nil || got != Published {
				t.Fatalf("recover: %v, %v", got, err)
			}
			finish(t, b, again)
			later(t, s, b)
			eventually(t, "connected", paused.connected)
			if err := paused.Publish(t.Context(), old); err == nil {
				t.Error("the publish succeeds")
			}
			if n := jobsQueued(t, b); n != 0 {
				t.Errorf("%d jobs are queued, want none", n)
			}
		})
	}
}

// mutation: Fence that does not compare fences lets the earlier holder begin an epoch of its own, and publish.
func TestAnEarlierHolderCannotBeginAnEpoch(t *testing.T) {
	t.Parallel()
	b := newBus(t, natstest.Start(t), tinyWindow)
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

// The same holder: a publish whose answer did not come is on its way on a connection that is gone for its sender.
//
// mutation: Recover without Fence stores the job twice.
func TestAPublishThatIsLateIsRefusedAfterItsOwnRecovery(t *testing.T) {
	t.Parallel()
	b := newBus(t, natstest.Start(t), tinyWindow)
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

// Take-over after take-over: there is one fence message of an attempt, it goes by itself, no worker gets it, and nobody takes it for a job.
//
// mutation: no dropFence, no WithMsgTTL, or ParseJob that takes it for a job.
func TestFenceMessagesDoNotPileUp(t *testing.T) {
	t.Parallel()
	b := newBus(t, natstest.Start(t))
	j := testJob(1)
	j.Deadline = b.clock.Now().Add(time.Hour)
	for range 5 {
		j.Fence++
		if _, err := b.Recover(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	subjects := streamInfo(t, b, b.names.JobsStream()).State.Subjects
	want := map[string]uint64{"syncopate.jobs.web.fetch.run-1.fetch.-.1": 1, "syncopate.jobs._fence.fetch.run-1.fetch.-.1": 2}
	if diff := cmp.Diff(want, subjects); diff != "" { // the first one is behind the job, and nobody looks for it any more
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	m, err := b.leaderGet(t.Context(), b.names.JobsStream(), getRequest{LastFor: b.names.Fence(j.Topic, j.ID)})
	if err != nil || m == nil {
		t.Fatalf("fence message: %v, %v", m, err)
	}
	if ttl, err := time.ParseDuration(m.header.Get("Nats-TTL")); err != nil || ttl < fenceMargin || ttl > fenceMargin+time.Hour {
		t.Errorf("lives for %s, %v", ttl, err)
	}
	if queued, err := b.QueuedJobs(t.Context()); err != nil || len(queued) != 1 {
		t.Errorf("queued jobs: %v, %v", queued, err)
	}
	if got := take(t, b, j.Topic).Headers().Get(protocol.HeaderMsgID); got != j.ID.String() {
		t.Errorf("a worker gets %q", got)
	}
	if w, err := b.Workers(t.Context(), j.Topic); err != nil || w.Queued != 0 || w.Busy != 1 {
		t.Errorf("workers: %+v, %v", w, err)
	}
}

// In a cluster a message is on its way for a moment after its check: jobs of one run must not be in each other's way there, and two
// writers of one attempt must be.
//
// mutation: one fence message for a run, by whose subject all its jobs are checked, makes the first part fail; Fence that is checked by
// the subject of the fence message only, and not by the one that jobs are checked by, may make the second fail.
func TestAClusterStoresEachJobOnce(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	a, b := clusterBus(t, c), clusterBus(t, c)
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
			eventually(t, "the job is recovered", func() bool {
				_, err := b.Recover(t.Context(), again)
				return err == nil
			})
		})
		wg.Wait()
	}
	for subject, n := range streamInfo(t, a, a.names.JobsStream()).State.Subjects {
		if n != 1 && !strings.Contains(subject, "_fence") {
			t.Errorf("%d messages on %s", n, subject)
		}
	}
}

func clusterBus(t *testing.T, c *natstest.Cluster) *Bus {
	t.Helper()
	b, err := Connect(t.Context(), Config{URL: c.URL(), Keys: Keyring{Current: testKey}, Log: testLog(t), Replicas: 3, DuplicateWindow: 100 * time.Millisecond})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { b.Close(context.WithoutCancel(t.Context())) })
	eventually(t, "the streams are there", func() bool { return b.repairStreams(t.Context()) == nil && b.Ready(t.Context()) == nil })
	return b
}

// JOBS and RESULTS have leaders of their own. One that is new answers only when it has all that the one before had confirmed (nats-server
// 2.15), so a job that is gone from JOBS has its answer in RESULTS whoever leads there. This test tells if that changes.
func TestTheLeadersOfJobsAndResultsMayChangeBetweenTheLooks(t *testing.T) {
	t.Parallel()
	b := clusterBus(t, natstest.StartCluster(t))
	stepDown := func(stream string) {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		_, _ = b.nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil)
	}
	for i := 1; i <= 6; i++ {
		j := testJob(i)
		eventually(t, "the job is published", func() bool {
			err := b.Publish(t.Context(), j)
			if err != nil {
				_, err = b.Recover(t.Context(), j)
			}
			return err == nil
		})
		m := take(t, b, j.Topic)
		eventually(t, "the job is answered", func() bool {
			token := b.config.Keys.Sign(j.ID)
			m := nats.NewMsg(b.names.Result(j.ID))
			m.Data = []byte(succeeded)
			m.Header.Set(protocol.HeaderToken, token)
			m.Header.Set(protocol.HeaderMsgID, protocol.ResultMsgID(j.ID, token))
			_, err := b.js.PublishMsg(t.Context(), m)
			return err == nil
		})
		var election sync.WaitGroup
		election.Go(func() { stepDown(b.names.ResultsStream()) }) // while the job is acknowledged and looked for
		eventually(t, "the job is acknowledged", func() bool {
			err := m.DoubleAck(t.Context())
			return err == nil || errors.Is(err, jetstream.ErrMsgAlreadyAckd)
		})
		if i%2 == 0 {
			stepDown(b.names.JobsStream())
		}
		var got RecoverOutcome
		eventually(t, "the job is looked up", func() bool {
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
// mutation: deleteMessage that does not compare the losses deletes the job of another run.
func TestWithdrawDoesNotDeleteAnotherJobInAStreamMadeAnew(t *testing.T) {
	t.Parallel()
	b := newBus(t, natstest.Start(t))
	withdrawn, other := testJob(1), testJob(2)
	publish(t, b, withdrawn)
	looked(t, b)
	// What Withdraw does, with the loss between its two requests.
	seen := b.losses.before(b.names.JobsStream())
	m, err := b.leaderGet(t.Context(), b.names.JobsStream(), getRequest{LastFor: b.names.Job(withdrawn.Topic, withdrawn.ID)})
	if err != nil || m == nil {
		t.Fatalf("look: %v, %v", m, err)
	}
	recreate(t, b, b.names.JobsStream())
	looked(t, b)
	publish(t, b, other)
	if last := streamInfo(t, b, b.names.JobsStream()).State.LastSeq; last != m.Seq {
		t.Fatalf("the other job has sequence %d, want %d", last, m.Seq)
	}
	if err := b.deleteMessage(t.Context(), seen, m.Seq); !errors.Is(err, errStreamLost) {
		t.Errorf("delete: %v", err)
	}
	if err := b.Withdraw(t.Context(), withdrawn.Topic, withdrawn.ID); err != nil {
		t.Errorf("withdraw again: %v", err)
	}
	if n := jobsQueued(t, b); n != 1 {
		t.Errorf("%d jobs are queued, want the other one", n)
	}
}

// The other job was published before anybody noticed the loss: it may be deleted, and is looked up when the loss is noticed.
func TestAJobThatAWithdrawalTookInALostStreamIsPublishedAgain(t *testing.T) {
	t.Parallel()
	b := newBus(t, natstest.Start(t), tinyWindow)
	withdrawn, other := testJob(1), testJob(2)
	publish(t, b, withdrawn)
	looked(t, b)
	seen := b.losses.before(b.names.JobsStream())
	recreate(t, b, b.names.JobsStream())
	known := b.Losses() // what the run keeps with its publish
	if _, err := b.store(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := b.deleteMessage(t.Context(), seen, 1); err != nil && !errors.Is(err, errStreamLost) {
		t.Fatal(err)
	}
	looked(t, b)
	if b.Losses() <= known {
		t.Fatalf("%d losses, and %d before the publish: nobody would look for the job", b.Losses(), known)
	}
	eventually(t, "the job is there again", func() bool {
		_, err := b.Recover(t.Context(), other)
		return err == nil && jobsQueued(t, b) == 1
	})
}
