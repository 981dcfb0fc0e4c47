// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// finish does the job as a worker does: result first, then the ack of the job.
func finish(t *testing.T, b *Queue, j Job) {
	t.Helper()
	m := bustest.Take(t, b.conn, j.Topic)
	bustest.Answer(t, b.conn, j.ID, bustest.Succeeded)
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestRecoverPublishesOnlyWhatIsNowhere(t *testing.T) {
	t.Parallel()
	j := testJob(1)
	for name, c := range map[string]struct {
		before func(*testing.T, *natstest.Server, *Queue)
		want   RecoverOutcome
		queued int
	}{
		"a job that was never published is published": {
			before: func(*testing.T, *natstest.Server, *Queue) {}, want: Published, queued: 1,
		},
		"a job that waits is left alone": { // mutation: no look into JOBS still passes thanks to the expected sequence; both gone fails
			before: func(t *testing.T, _ *natstest.Server, b *Queue) { publish(t, b, j) }, want: Queued, queued: 1,
		},
		"a job that a worker has and started is left alone": {
			before: func(t *testing.T, _ *natstest.Server, b *Queue) {
				publish(t, b, j)
				bustest.Take(t, b.conn, j.Topic)
				bustest.Answer(t, b.conn, j.ID, `{"status":"Started"}`)
			}, want: Queued, queued: 1,
		},
		"a job that JOBS lost while its worker was at it is published again": { // mutation: Started taken for an answer makes this fail
			before: func(t *testing.T, _ *natstest.Server, b *Queue) {
				publish(t, b, j)
				bustest.Take(t, b.conn, j.Topic)
				bustest.Answer(t, b.conn, j.ID, `{"status":"Started"}`)
				if err := b.Withdraw(t.Context(), j.Topic, j.ID); err != nil {
					t.Fatal(err)
				}
			}, want: Published, queued: 1,
		},
		"a job that was started and is finished is not given to a second worker": {
			before: func(t *testing.T, _ *natstest.Server, b *Queue) {
				publish(t, b, j)
				bustest.Answer(t, b.conn, j.ID, `{"status":"Started"}`)
				bustest.PublishRaw(t, b.conn, b.conn.Names.Result(j.ID), "no result", protocol.HeaderToken, bustest.Ring().Sign(j.ID))
				if err := bustest.Take(t, b.conn, j.Topic).DoubleAck(t.Context()); err != nil {
					t.Fatal(err)
				}
			}, want: Answered, queued: 0,
		},
		"a finished job is not given to a second worker": { // mutation: no look into RESULTS makes this fail
			before: func(t *testing.T, _ *natstest.Server, b *Queue) {
				publish(t, b, j)
				finish(t, b, j)
			}, want: Answered, queued: 0,
		},
		"a finished job is not given to a second worker after a restart": {
			before: func(t *testing.T, s *natstest.Server, b *Queue) {
				publish(t, b, j)
				finish(t, b, j)
				s.Restart()
				bustest.Eventually(t, "the bus is ready again", func() bool { return b.conn.Ready(t.Context()) == nil })
			}, want: Answered, queued: 0,
		},
		"a job that left the queue without a result is published again": {
			before: func(t *testing.T, _ *natstest.Server, b *Queue) {
				publish(t, b, j)
				if err := b.Withdraw(t.Context(), j.Topic, j.ID); err != nil {
					t.Fatal(err)
				}
			}, want: Published, queued: 1,
		},
		// mutation: no check of the token in Answered makes this fail
		"a forged result does not keep a job from its worker": {
			before: func(t *testing.T, _ *natstest.Server, b *Queue) {
				bustest.PublishRaw(t, b.conn, b.conn.Names.Result(j.ID), bustest.Succeeded, protocol.HeaderToken, "k1.forged")
			}, want: Published, queued: 1,
		},
		"a result behind forged ones counts": { // mutation: looking at the first message only makes this fail
			before: func(t *testing.T, _ *natstest.Server, b *Queue) {
				bustest.PublishRaw(t, b.conn, b.conn.Names.Result(j.ID), bustest.Succeeded)
				bustest.Answer(t, b.conn, j.ID, bustest.Succeeded)
				bustest.PublishRaw(t, b.conn, b.conn.Names.Result(j.ID), bustest.Succeeded)
			}, want: Answered, queued: 0,
		},
		"a vanished stream is made again": {
			before: func(t *testing.T, _ *natstest.Server, b *Queue) {
				for _, s := range []string{b.conn.Names.JobsStream(), b.conn.Names.ResultsStream()} {
					if err := b.conn.JetStream.DeleteStream(t.Context(), s); err != nil {
						t.Fatal(err)
					}
				}
			}, want: Published, queued: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t)
			b := newQueue(t, s, tinyWindow)
			c.before(t, s, b)
			// mutation: Gone that looks into one of the streams only, or takes an error for an
			// answer, makes this fail.
			if gone, err := b.Gone(t.Context(), j.Topic, []protocol.JobID{j.ID}); err == nil && (len(gone) == 1) != (c.want == Published) {
				t.Errorf("gone: %v", gone)
			}
			var got RecoverOutcome
			bustest.Eventually(t, "the job is recovered", func() bool {
				var err error
				if got, err = b.Recover(t.Context(), j); err != nil && !errors.Is(err, ErrRecentlyGone) {
					t.Fatal(err)
				}
				return err == nil
			})
			if got != c.want {
				t.Errorf("outcome %s, want %s", got, c.want)
			}
			// mutation: Found that looks into one of the streams only makes this fail.
			if found, err := b.Found(t.Context(), j.Topic, []protocol.JobID{j.ID}); err != nil || found[j.ID] == 0 || found[j.ID] == Published {
				t.Errorf("found: %v (%v)", found, err)
			}
			if n := jobsQueued(t, b); n != c.queued {
				t.Errorf("%d jobs are queued, want %d", n, c.queued)
			}
		})
	}
}

// Whoever recovers the jobs of a large run would hold the inputs of all of them in memory.
// mutation: Recover that asks for the input first, or that drops its error, makes this fail.
func TestRecoverAsksForTheInputOfWhatIsNowhereOnly(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t))
	asked, refusal := 0, errors.New("not now")
	absent := testJob(1)
	absent.Input = nil
	absent.Render = func(context.Context) (json.RawMessage, error) {
		asked++
		return json.RawMessage(`{"n":"rendered"}`), refusal
	}
	if got, err := b.Recover(t.Context(), absent); got != 0 || !errors.Is(err, refusal) || asked != 1 || jobsQueued(t, b) != 0 {
		t.Fatalf("without an input: %s, %v, asked %d times, %d jobs", got, err, asked, jobsQueued(t, b))
	}
	refusal = nil
	for i, want := range []RecoverOutcome{Published, Queued} {
		if got, err := b.Recover(t.Context(), absent); got != want || err != nil || asked != 2 {
			t.Errorf("%d: %s, %v, asked %d times in all", i, got, err, asked)
		}
	}
	if m := bustest.Take(t, b.conn, absent.Topic); string(m.Data()) != `{"n":"rendered"}` {
		t.Errorf("published %s", m.Data())
	}
	bustest.Answer(t, b.conn, bustest.JobID(2), bustest.Succeeded)
	absent.ID = bustest.JobID(2)
	if got, err := b.Recover(t.Context(), absent); got != Answered || err != nil || asked != 2 {
		t.Errorf("answered: %s, %v, asked %d times in all", got, err, asked)
	}
}

// A job that is finished between the two looks is seen in neither place if RESULTS is asked first.
// mutation: the looks in the other order make this fail.
func TestRecoverLooksIntoJobsBeforeResults(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t))
	seen := make(chan *nats.Msg, 10)
	sub, err := b.conn.NATS.ChanSubscribe("$JS.API.STREAM.MSG.GET.*", seen)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if _, err := b.Recover(t.Context(), testJob(1)); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, m := range bustest.Receive(t, "reads", seen, 2) {
		order = append(order, m.Subject)
	}
	want := []string{"$JS.API.STREAM.MSG.GET.SYNCOPATE_JOBS", "$JS.API.STREAM.MSG.GET.SYNCOPATE_RESULTS"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order of reads (-want +got):\n%s", diff)
	}
}

// mutation: taking a duplicate for stored makes this fail: the run would wait for a job
// that is nowhere.
func TestRecoverDoesNotTakeAForgottenJobForQueued(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t)) // the window is 2 min
	publish(t, b, testJob(1))
	if err := b.Withdraw(t.Context(), "web.fetch", bustest.JobID(1)); err != nil {
		t.Fatal(err)
	}
	outcome, err := b.Recover(t.Context(), testJob(1))
	if outcome != 0 {
		t.Errorf("outcome %s", outcome)
	}
	wantRetry(t, err, ErrRecentlyGone)
}

func TestWithdrawTakesTheRightJobs(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) *Queue {
		b := newQueue(t, natstest.Start(t))
		for _, topic := range []string{"web", "web.fetch", "gpu"} {
			for _, run := range []int{1, 2} {
				j := testJob(run)
				j.Topic, j.ID.Step = topic, strings.ReplaceAll(topic, ".", "-") // a job is on one topic
				publish(t, b, j)
			}
		}
		return b
	}
	subjects := func(t *testing.T, b *Queue) (all []string) {
		for s := range bustest.Info(t, b.conn, b.conn.Names.JobsStream()).State.Subjects {
			all = append(all, s)
		}
		slices.Sort(all)
		return all
	}
	t.Run("one job", func(t *testing.T) {
		b := setup(t)
		for range 2 { // again is success
			if err := b.Withdraw(t.Context(), "web", protocol.JobID{RunUID: "run-1", Step: "web", Item: "-", Attempt: 1}); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{
			"syncopate.jobs.gpu.run-1.gpu.-.1", "syncopate.jobs.gpu.run-2.gpu.-.1",
			"syncopate.jobs.web.fetch.run-1.web-fetch.-.1", "syncopate.jobs.web.fetch.run-2.web-fetch.-.1",
			"syncopate.jobs.web.run-2.web.-.1",
		}
		if diff := cmp.Diff(want, subjects(t, b)); diff != "" {
			t.Errorf("jobs left (-want +got):\n%s", diff)
		}
	})
	t.Run("names that are wildcards are refused", func(t *testing.T) {
		b := setup(t)
		for _, err := range []error{
			b.Withdraw(t.Context(), "web", protocol.JobID{RunUID: "*", Step: "a", Item: "-", Attempt: 1}),
			b.Withdraw(t.Context(), "*", bustest.JobID(1)), b.Cancel(t.Context(), ">", nil),
		} {
			if !errors.Is(err, bus.ErrInvalidJob) {
				t.Errorf("got %v, want bus.ErrInvalidJob", err)
			}
		}
	})
}

func TestCancelTellsTheWorkers(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t))
	got := make(chan *nats.Msg, 10)
	sub, err := b.conn.NATS.ChanSubscribe(b.conn.Names.Control("*"), got)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := b.Cancel(t.Context(), "run-1", nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Cancel(t.Context(), "run-2", []protocol.JobID{bustest.JobID(2)}); err != nil {
		t.Fatal(err)
	}
	var bodies []string
	for _, m := range bustest.Receive(t, "control messages", got, 2) {
		bodies = append(bodies, m.Subject+" "+string(m.Data))
	}
	want := []string{
		`syncopate.control.run-1 {"action":"Cancel"}`,
		`syncopate.control.run-2 {"action":"Cancel","jobs":["run-2/fetch/-/1"]}`,
	}
	if diff := cmp.Diff(want, bodies); diff != "" {
		t.Errorf("control messages (-want +got):\n%s", diff)
	}
}

func TestListHasWhatIsInTheQueue(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t))
	var want []QueuedJob
	for step, topic := range map[string]string{"fetch": "web.fetch", "train": "gpu"} {
		j := testJob(1)
		j.Topic, j.ID.Step = topic, step
		publish(t, b, j)
		want = append(want, QueuedJob{Topic: topic, ID: j.ID})
	}
	bustest.PublishRaw(t, b.conn, "syncopate.jobs.odd", "x")
	got, err := b.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byTopic := func(a, b QueuedJob) int { return strings.Compare(a.Topic, b.Topic) }
	slices.SortFunc(want, byTopic)
	slices.SortFunc(got, byTopic)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("queued jobs (-want +got):\n%s", diff)
	}
}

// A job that was given back waits in the server's redelivery queue until a worker asks for one.
// mutation: Withdraw by a purge of the subject makes this fail, since the server then forgets that
// queue until the job's AckWait is over.
func TestWithdrawingAJobDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t))
	publish(t, b, testJob(1))
	publish(t, b, testJob(2))
	c, err := b.conn.JetStream.Consumer(t.Context(), b.conn.Names.JobsStream(), protocol.Durable("web.fetch"))
	if err != nil {
		t.Fatal(err)
	}
	take := func() jetstream.Msg {
		t.Helper()
		m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := take()
	take()
	if err := first.Nak(); err != nil {
		t.Fatal(err)
	}
	if err := b.conn.NATS.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := b.Withdraw(t.Context(), "web.fetch", bustest.JobID(2)); err != nil {
		t.Fatal(err)
	}
	if again := take(); again.Subject() != first.Subject() {
		t.Errorf("got %s, want %s again", again.Subject(), first.Subject())
	}
}

// mutation: a look without ensure makes this fail: the job would wait until the next of its topic.
func TestWhatIsFoundCanBeHadByWorkers(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(*Queue, Job) error{
		"Found": func(b *Queue, j Job) error {
			found, err := b.Found(t.Context(), j.Topic, []protocol.JobID{j.ID})
			if err == nil && found[j.ID] != Queued {
				return fmt.Errorf("found %v", found)
			}
			return err
		},
		"Gone": func(b *Queue, j Job) error {
			gone, err := b.Gone(t.Context(), j.Topic, []protocol.JobID{j.ID})
			if err == nil && len(gone) > 0 {
				return fmt.Errorf("%v are gone", gone)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newQueue(t, natstest.Start(t))
			j := testJob(1)
			publish(t, b, j)
			b.topics.recheck = 0 // as if a minute had passed
			if err := b.conn.JetStream.DeleteConsumer(t.Context(), b.conn.Names.JobsStream(), "web_fetch"); err != nil {
				t.Fatal(err)
			}
			if err := look(b, j); err != nil {
				t.Fatal(err)
			}
			bustest.Take(t, b.conn, j.Topic)
		})
	}
}

// A topic's consumer can vanish and others take its place; then its runs, and by the pause after a
// failed look all others, would look no more.
//
// mutations: a look that ends with ErrTooManyTopics, and looks that each ask for room,
// make this fail.
func TestJobsAreLookedForWithoutRoomForTheirTopic(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t), func(c *config) { c.MaxTopics = 1 })
	j, lost := testJob(1), testJob(2).ID
	publish(t, b, j)
	if err := b.conn.JetStream.DeleteConsumer(t.Context(), b.conn.Names.JobsStream(), protocol.Durable(j.Topic)); err != nil {
		t.Fatal(err)
	}
	b.topics.forget() // as after a minute
	publish(t, b, jobOf("another", 3))
	ids := []protocol.JobID{j.ID, lost}
	if gone, err := b.Gone(t.Context(), j.Topic, ids); err != nil || !slices.Equal(gone, []protocol.JobID{lost}) {
		t.Errorf("gone: %v, %v, want %v", gone, err, lost)
	}
	if found, err := b.Found(t.Context(), j.Topic, ids); err != nil || len(found) != 1 || found[j.ID] != Queued {
		t.Errorf("found: %v, %v, want %v", found, err, j.ID)
	}
	if n := testutil.ToFloat64(b.metrics.topicsRefused); n != 1 {
		t.Errorf("room was asked for %v times, of which a log has a line each", n)
	}
}

// mutation: Gone that leaves what it does not ask about to later looks makes this fail: they are
// five minutes apart.
func TestJobsThatAreLostTogetherAreFoundTogether(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newQueue(t, s, tinyWindow)
	var ids []protocol.JobID
	for step := range 3 * mostAsked {
		j := testJob(1)
		j.ID.Step = fmt.Sprintf("s%d", step)
		ids = append(ids, j.ID)
		if step%2 == 0 {
			publish(t, b, j)
		}
	}
	gone, err := b.Gone(t.Context(), testJob(1).Topic, ids)
	if err != nil || len(gone) != len(ids)/2 {
		t.Errorf("%d are gone, %v", len(gone), err)
	}
	if found, err := b.Found(t.Context(), testJob(1).Topic, ids); err != nil || len(found) != len(ids)/2 {
		t.Errorf("%d are found, %v", len(found), err)
	}
}
