// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// A job of which the operator never hears that it began is ended by its startTimeoutSeconds, and
// the next attempt works beside it.
//
// mutation: start that tries once makes this time out.
func TestAStartThatWasNotStoredIsPublishedAgain(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	if err := o.js.DeleteStream(t.Context(), o.names.ResultsStream()); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	finish := sync.OnceFunc(func() { close(release) })
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { <-release; return "done", nil })
	o.start(w)
	t.Cleanup(finish)
	o.publish("a", job("a"), `{}`)
	o.eventually("the start is not published", func() bool {
		return strings.Contains(strings.Join(o.logs.all(), "\n"), "Start not published")
	})
	o.stream(jetstreamResults(o.names))
	got := o.results(1)[0] // the handler is still at work
	id := protocol.StartedMsgID(job("a"), token)
	if got.Result.Status != protocol.StatusStarted || got.Header.Get(protocol.HeaderMsgID) != id {
		t.Errorf("got %+v", got)
	}
	finish()
	if last := o.results(2)[1].Result; string(last.Output) != `"done"` {
		t.Errorf("got %+v", last)
	}
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
}

// The clock stands still, so the server hears nothing of the job and delivers it to this worker
// once more, as after an outage of NATS.
//
// mutations: process that works on a job which is at work already makes a second call; one that
// settles that delivery leaves no job.
func TestAJobThatComesAgainWhileItIsAtWorkIsNotDoneBesideItself(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	var calls atomic.Int32
	release := make(chan struct{})
	finish := sync.OnceFunc(func() { close(release) })
	w := o.worker()
	w.clock = clocktesting.NewFakeClock(time.Now())
	w.Handle("a", func(context.Context, Job) (any, error) { calls.Add(1); <-release; return "done", nil }, Concurrency(3))
	o.publish("a", job("a"), `{}`)
	o.start(w)
	t.Cleanup(finish)
	o.eventually("the job is delivered three times", func() bool { return o.state("a").Delivered.Consumer >= 3 })
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls, beside each other", n)
	}
	if n := o.jobs(); n != 1 {
		t.Errorf("%d jobs, want the one at work", n)
	}
	finish()
	if last := o.results(2)[1].Result; string(last.Output) != `"done"` {
		t.Errorf("got %+v", last)
	}
	o.eventually("the first delivery ends the job", func() bool { return o.jobs() == 0 })
}

// NATS has lost its data while a job is at work, and the operator publishes the job again. Of the
// new message the server hears nothing if only the first one is pinged: it comes again and again.
// In the new stream it may be in the place that the first one had.
//
// mutations: a message of its own that is ignored is not pinged; a start that is not said again
// times out; one that is not settled leaves a job.
func TestAMessageOfItsOwnOfAJobAtWorkIsEndedWithIt(t *testing.T) {
	for name, sequence := range map[string]uint64{"another place": 100, "the same place": 1} {
		t.Run(name, func(t *testing.T) {
			o := newOperator(t)
			o.topic("a")
			o.publish("a", job("a"), `{}`)
			var calls atomic.Int32
			release := make(chan struct{})
			finish := sync.OnceFunc(func() { close(release) })
			w := o.worker()
			w.Handle("a", func(context.Context, Job) (any, error) { calls.Add(1); <-release; return "done", nil }, Concurrency(2))
			o.start(w)
			t.Cleanup(finish)
			o.results(1)
			for _, stream := range []string{o.names.ResultsStream(), o.names.JobsStream()} {
				if err := o.js.DeleteStream(t.Context(), stream); err != nil {
					t.Fatal(err)
				}
			}
			o.stream(jetstreamResults(o.names))
			jobs := jetstreamJobs(o.names)
			jobs.FirstSeq = sequence
			o.stream(jobs)
			o.topic("a")
			pings := o.overhear("$JS.ACK.>")
			o.publish("a", job("a"), `{}`)
			stored := o.jobStored(sequence)
			o.eventually("the new message is pinged", func() bool {
				select {
				case m := <-pings:
					return strings.Contains(m.Subject, stored)
				default:
					return false
				}
			})
			if got := o.results(1)[0].Result; got.Status != protocol.StatusStarted {
				t.Errorf("got %+v", got)
			}
			finish()
			o.results(2)
			o.eventually("the new message is acknowledged", func() bool { return o.jobs() == 0 })
			if n := calls.Load(); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// A handler that ends its process each time is seen from outside as one that never answers.
//
// mutations: work without its look at the count of deliveries makes this time out; one that counts
// from 0 calls the handler twice.
func TestAJobThatIsDeliveredTooOftenFailsForGood(t *testing.T) {
	const most = 3
	o := newOperator(t)
	o.topic("a")
	o.publish("a", job("a"), `{}`)
	var calls atomic.Int32
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) {
		calls.Add(1)
		runtime.Goexit()
		return nil, nil
	}, MaxDeliveries(most))
	o.start(w)
	got := o.results(2)[1].Result // the Started of the others are duplicates of the first
	if got.Status != protocol.StatusFailed || !got.Final || got.Error == nil || got.Error.Code != CodeDeliveredTooOften {
		t.Errorf("got %+v", got)
	}
	if n := calls.Load(); n != most {
		t.Errorf("%d calls, want %d", n, most)
	}
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
}

// In a stopping worker the pull is still open: what goes back at once comes again at once, over and
// over, and a good job is soon one that was delivered too often.
//
// mutation: pull that gives jobs back before its request is over makes this fail.
func TestAStoppingWorkerDoesNotUseUpTheDeliveriesOfAJob(t *testing.T) {
	o := newOperator(t)
	o.topicOf("a", time.Hour)
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { return nil, nil })
	w.pullWait = 2 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	top := w.topics["a"]
	c, err := top.bind(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- top.pull(ctx, t.Context(), c, make(chan struct{}, 20)) }()
	o.eventually("the pull waits at the server", func() bool { return o.state("a").NumWaiting > 0 })
	cancel()
	o.publish("a", job("a"), `{}`)
	if err := <-done; err != nil {
		t.Error(err)
	}
	batch, err := c.Fetch(1, jetstream.FetchMaxWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	m := <-batch.Messages()
	if m == nil {
		t.Fatal("the job was not given back")
	}
	if meta, err := m.Metadata(); err != nil || meta.NumDelivered != 2 {
		t.Errorf("%v; got %+v", err, meta)
	}
}
