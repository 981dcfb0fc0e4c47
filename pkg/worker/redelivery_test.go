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
