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
			stop := o.start(w)
			t.Cleanup(finish)
			o.results(1)
			gone := o.jobStored(1)
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
			if err := stop(); err != nil {
				t.Error(err)
			}
			for _, m := range o.heardSoFar(pings) {
				if sequence == 1 && strings.Contains(m.Subject, gone) {
					t.Errorf("%s of the message that is gone", m.Data)
				}
			}
		})
	}
}

// What the worker says of a place in the stream counts for the message that is there now, which may
// be another job's. A second NAK takes it from the worker that just got it.
//
// mutation: join that keeps the message of before makes this fail.
func TestAMessageWhosePlaceAnotherOneHasIsOpenNoMore(t *testing.T) {
	const second = 1_000_000_000
	first := place{5, second}
	for name, test := range map[string]struct {
		at   place
		open int
	}{
		"a later one":              {place{6, 2 * second}, 2},
		"in the same place":        {place{5, 2 * second}, 1},
		"before it, but of later":  {place{4, 2 * second}, 1},
		"the same one once more":   {first, 1},
		"an older one of a stream": {place{4, second / 2}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var r running
			_, one, _ := r.add(t.Context(), job("a"), first, nil)
			r.add(t.Context(), job("a"), test.at, nil)
			r.add(t.Context(), job("a"), first, nil) // which was under way
			if n := len(r.messages(one)); n != test.open {
				t.Errorf("%d messages are open, want %d", n, test.open)
			}
			r.remove(one)
		})
	}
}

// The result was stored before the message came, and may have been lost since.
//
// mutation: join that looks at no seal makes this fail.
func TestAMessageThatComesAfterTheResultIsNotEndedByIt(t *testing.T) {
	var r running
	_, one, _ := r.add(t.Context(), job("a"), place{1, 1}, nil)
	if n := len(r.seal(one)); n != 1 {
		t.Errorf("%d messages are to be settled, want 1", n)
	}
	if _, _, first := r.add(t.Context(), job("a"), place{2, 2}, nil); first {
		t.Error("the job is done beside itself")
	}
	if n := len(r.seal(one)); n != 1 {
		t.Errorf("%d messages are to be settled, want 1", n)
	}
	r.remove(one)
}

// A handler that ends its process each time is seen from outside as one that never answers. So is a
// good job beside it: its next attempt is another job, which is counted anew.
//
// mutations: work without its look at the count of deliveries makes this time out; one that counts
// from 0 calls the handler twice; a failure that is final makes this fail.
func TestAJobThatIsDeliveredTooOftenFailsItsAttemptOnly(t *testing.T) {
	const most = 3
	o := newOperator(t)
	o.topic("a")
	o.publish("a", job("a"), `{}`)
	var calls atomic.Int32
	w := o.worker()
	w.Handle("a", func(_ context.Context, j Job) (any, error) {
		if j.ID.Attempt > 1 {
			return "done", nil
		}
		calls.Add(1)
		runtime.Goexit()
		return nil, nil
	}, MaxDeliveries(most))
	o.start(w)
	got := o.results(2)[1].Result // the Started of the others are duplicates of the first
	if got.Status != protocol.StatusFailed || got.Final || got.Error == nil || got.Error.Code != CodeDeliveredTooOften {
		t.Errorf("got %+v", got)
	}
	if n := calls.Load(); n != most {
		t.Errorf("%d calls, want %d", n, most)
	}
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
	next := job("a")
	next.Attempt++
	o.publish("a", next, `{}`)
	if all := o.results(4); all[3].Result.Status != protocol.StatusSucceeded {
		t.Errorf("the next attempt: %+v", all[3].Result)
	}
}

// In a stopping worker the pull is still open: what goes back at once comes again at once, over and
// over, and a good job is soon one that was delivered too often.
//
// mutations: pull that gives jobs back before its request is over, or not at all until AckWait.
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
	go func() { done <- top.pull(ctx, t.Context(), make(chan struct{}, 20)) }()
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
	if meta, err := m.Metadata(); err != nil || meta.NumDelivered > 2 { // 1 if the pull was over before the job came
		t.Errorf("%v; got %+v", err, meta)
	}
}

// The server hands the job out once more, as after an outage of NATS; here it was told to.
//
// mutation: pull that gives back all that comes late makes this fail.
func TestAStoppingWorkerDoesNotGiveAJobBackThatIsAtWork(t *testing.T) {
	o := newOperator(t)
	o.topicOf("a", time.Hour)
	release := make(chan struct{})
	finish := sync.OnceFunc(func() { close(release) })
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { <-release; return "done", nil }, Concurrency(2))
	w.pullWait = 2 * time.Second
	said := o.overhear("$JS.ACK.>")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(finish)
	o.publish("a", job("a"), `{}`)
	o.results(1)
	o.eventually("a second pull waits at the server", func() bool { return o.state("a").NumWaiting > 0 })
	cancel()
	stored := strings.TrimSuffix(o.jobStored(1), ".")
	if err := o.nc.Publish("$JS.ACK."+o.names.JobsStream()+"."+protocol.Durable("a")+".1.1.1"+stored+".0", []byte("-NAK")); err != nil {
		t.Fatal(err)
	}
	o.eventually("the job is delivered again", func() bool { return o.state("a").Delivered.Consumer > 1 })
	o.eventually("no pull is open", func() bool { return o.state("a").NumWaiting == 0 })
	finish()
	if err := <-done; err != nil {
		t.Error(err)
	}
	naks := 0
	for _, m := range o.heardSoFar(said) {
		if string(m.Data) == "-NAK" {
			naks++
		}
	}
	if naks != 1 {
		t.Errorf("%d NAKs, want that of the test", naks)
	}
	if n := o.jobs(); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}

// A consumer that was made anew hands all jobs out again. Of the deliveries by the one that is gone
// it takes no NAK: they have higher numbers than it has given.
//
// mutation: join that keeps the first delivery of a message makes this time out.
func TestAJobIsGivenBackByItsLatestDelivery(t *testing.T) {
	o := newOperator(t)
	o.topicOf("a", time.Hour)
	var calls atomic.Int32
	w := o.worker(func(o *Options) { o.GracePeriod = -1 })
	w.Handle("a", func(ctx context.Context, j Job) (any, error) {
		calls.Add(1)
		if j.ID != job("last") {
			return "done", nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}, Concurrency(2))
	stop := o.start(w)
	for _, step := range []string{"one", "two", "three"} {
		o.publish("a", job(step), `{}`)
	}
	o.eventually("the first jobs are acknowledged", func() bool { return calls.Load() == 3 && o.jobs() == 0 })
	o.publish("a", job("last"), `{}`)
	o.eventually("the last one is at work", func() bool { return calls.Load() == 4 })
	if err := o.js.DeleteConsumer(t.Context(), o.names.JobsStream(), protocol.Durable("a")); err != nil {
		t.Fatal(err)
	}
	o.topicOf("a", time.Hour)
	o.eventually("it is delivered again", func() bool {
		return strings.Contains(strings.Join(o.logs.all(), "\n"), "Job is at work here already")
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	again := make(chan struct{})
	other := o.worker()
	other.Handle("a", func(context.Context, Job) (any, error) { close(again); return "done", nil })
	o.start(other)
	within(t, "another worker has the job", again)
}
