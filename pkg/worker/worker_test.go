// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: publishing the result before Started, or without the token, or with the Msg-Id of
// Started, fails this.
func TestAJobIsStartedDoneAnsweredAndAcknowledged(t *testing.T) {
	o := newOperator(t)
	o.topic("http.fetch")
	deadline := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	o.publish("http.fetch", job("fetch"), `{"url":"u"}`, func(h nats.Header) { h.Set(protocol.HeaderDeadline, deadline.Format(time.RFC3339Nano)) })

	seen := make(chan Job, 1)
	w := o.worker()
	w.Handle("http.fetch", func(ctx context.Context, j Job) (any, error) {
		if d, ok := ctx.Deadline(); !ok || !d.Equal(deadline) {
			t.Errorf("context's deadline %v, %v", d, ok)
		}
		seen <- j
		var in struct{ URL string }
		if err := j.Decode(&in); err != nil {
			return nil, err
		}
		return map[string]any{"status": 200, "url": in.URL}, nil
	}, Concurrency(8))
	o.start(w)

	got := o.results(2)
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
	want := []received{
		{Result: protocol.Result{Status: protocol.StatusStarted}},
		{Result: protocol.Result{Status: protocol.StatusSucceeded, Output: []byte(`{"status":200,"url":"u"}`)}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(received{}, "Header", "Subject")); diff != "" {
		t.Error(diff)
	}
	for i, id := range []string{"8b0e/fetch/-/1/" + token + "/started", "8b0e/fetch/-/1/" + token} {
		if h := got[i].Header; h.Get("Nats-Msg-Id") != id || h.Get("Syncopate-Token") != token || got[i].Subject != o.names.Result(job("fetch")) {
			t.Errorf("result %d: %s %v", i, got[i].Subject, h)
		}
	}
	wantJob := Job{
		ID: job("fetch"), Topic: "http.fetch", Input: []byte(`{"url":"u"}`), Fence: 17, Deadline: deadline,
		Source: "/namespaces/a/workflowruns/r", Delivery: 1,
	}
	if diff := cmp.Diff(wantJob, <-seen, cmpopts.IgnoreFields(Job{}, "Payload")); diff != "" {
		t.Error(diff)
	}
}

// The handler works within the span that Trace begins where the job is in a trace, and the span
// ends with its error, also with a panic; one in Trace itself fails that job only.
//
// mutations: work without traced, parseTask without the header, or traced without recovered, makes
// this fail.
func TestAHandlerWorksWithinASpan(t *testing.T) {
	type key struct{}
	const place = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ends := make(chan string, 3)
	o := newOperator(t)
	o.topic("t")
	for _, step := range []string{"good", "panics", "trace-panics"} {
		o.publish("t", job(step), `{}`, func(h nats.Header) { h.Set(protocol.HeaderTraceParent, place) })
	}
	w := o.worker(func(options *Options) {
		options.Trace = func(ctx context.Context, j Job) (context.Context, func(error)) {
			if j.ID.Step == "trace-panics" {
				panic("no tracer")
			}
			return context.WithValue(ctx, key{}, j.TraceParent), func(err error) { ends <- fmt.Sprint(j.ID.Step, " ", err) }
		}
	})
	w.Handle("t", func(ctx context.Context, j Job) (any, error) {
		if j.ID.Step == "panics" {
			panic("oh")
		}
		return ctx.Value(key{}), nil
	})
	o.start(w)
	got := map[string]string{}
	for _, r := range o.results(6) {
		if id, err := o.names.ParseResult(r.Subject); err == nil && r.Result.Status != protocol.StatusStarted {
			got[id.Step] = string(r.Result.Output)
			if e := r.Result.Error; e != nil {
				got[id.Step] = e.Code + " " + e.Message
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"good": `"` + place + `"`, "panics": "Panic oh", "trace-panics": "Panic no tracer"}, got); diff != "" {
		t.Error(diff)
	}
	ended := []string{<-ends, <-ends}
	slices.Sort(ended)
	if diff := cmp.Diff([]string{"good <nil>", "panics Panic: oh"}, ended); diff != "" {
		t.Error(diff)
	}
}

type later struct{}

func (later) Error() string             { return "busy" }
func (later) RetryDelay() time.Duration { return 1500 * time.Microsecond }

// oddError may be nil in an error that is not, and then it panics.
type oddError struct{ text string }

func (e *oddError) Error() string { return e.text }

type oddOutput struct{}

func (oddOutput) MarshalJSON() ([]byte, error) { panic("no form") }

// mutations: call without recover ends the process in "panics", result without it in "typednil" and
// "formless"; so does a log of err.Error() in work.
func TestErrorsBecomeResults(t *testing.T) {
	handlers := map[string]struct {
		handler Handler
		want    protocol.Result
	}{
		"plain": {func(context.Context, Job) (any, error) { return nil, errors.New("boom") }, protocol.Result{Status: "Failed", Error: &protocol.ResultError{Code: "Error", Message: "boom"}}},
		"coded": {func(context.Context, Job) (any, error) {
			return nil, fmt.Errorf("fetch: %w", Fail("NotFound", "no page"))
		}, protocol.Result{Status: "Failed", Error: &protocol.ResultError{Code: "NotFound", Message: "fetch: NotFound: no page"}}},
		"final":    {func(context.Context, Job) (any, error) { return nil, Final(Fail("NotFound", "no page")) }, protocol.Result{Status: "Failed", Final: true, Error: &protocol.ResultError{Code: "NotFound", Message: "no page"}}},
		"later":    {func(context.Context, Job) (any, error) { return nil, RetryAfter(2*time.Second, errors.New("quota")) }, protocol.Result{Status: "Retry", RetryAfterMillis: 2000, Error: &protocol.ResultError{Code: "Error", Message: "quota"}}},
		"delayer":  {func(context.Context, Job) (any, error) { return nil, fmt.Errorf("deep: %w", later{}) }, protocol.Result{Status: "Retry", RetryAfterMillis: 2, Error: &protocol.ResultError{Code: "Error", Message: "deep: busy"}}},
		"panics":   {func(context.Context, Job) (any, error) { panic("oh") }, protocol.Result{Status: "Failed", Error: &protocol.ResultError{Code: "Panic", Message: "oh"}}},
		"typednil": {func(context.Context, Job) (any, error) { var e *oddError; return "out", e }, protocol.Result{Status: "Failed", Error: &protocol.ResultError{Code: "Panic", Message: "runtime error: invalid memory address or nil pointer dereference"}}},
		"formless": {func(context.Context, Job) (any, error) { return oddOutput{}, nil }, protocol.Result{Status: "Failed", Error: &protocol.ResultError{Code: "Panic", Message: "no form"}}},
		"large":    {func(context.Context, Job) (any, error) { return strings.Repeat("x", 8<<20-1), nil }, protocol.Result{Status: "Failed", Final: true, Error: &protocol.ResultError{Code: "TooLarge", Message: "the output has 8388609 bytes, at most 8388608 can be stored"}}},
		"input":    {func(_ context.Context, j Job) (any, error) { var v int; return nil, j.Decode(&v) }, protocol.Result{Status: "Failed", Final: true, Error: &protocol.ResultError{Code: "InvalidInput", Message: "json: cannot unmarshal object into Go value of type int"}}},
	}
	o := newOperator(t)
	w := o.worker()
	for name, h := range handlers {
		o.topic(name)
		o.publish(name, job(name), `{}`)
		w.Handle(name, h.handler)
	}
	o.start(w)
	got, want := map[string]protocol.Result{}, map[string]protocol.Result{}
	for _, r := range o.results(2 * len(handlers)) {
		if id, err := o.names.ParseResult(r.Subject); err == nil && r.Result.Status != protocol.StatusStarted {
			got[id.Step] = r.Result
		}
	}
	for name, h := range handlers {
		want[name] = h.want
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	o.eventually("all are acknowledged", func() bool { return o.jobs() == 0 })
}

// mutation: keep without its ticker makes the server deliver the job again, and this fails.
func TestALongJobIsNotDeliveredTwice(t *testing.T) {
	const wait = 3 * time.Second // a sign of life may be late by two
	o := newOperator(t)
	o.topicOf("long", wait)
	o.publish("long", job("a"), `{}`)
	var calls atomic.Int32
	w := o.worker()
	w.Handle("long", func(context.Context, Job) (any, error) {
		calls.Add(1)
		<-time.After(2 * wait)
		return nil, nil
	}, Concurrency(4))
	o.start(w)
	o.results(2)
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// A handler that ends its goroutine, as t.FailNow does in a helper that was made for tests, leaves
// no answer: the job is delivered again after AckWait.
//
// mutation: process that stops keep only after work tells the server for ever that the job is under
// way, and this times out.
func TestAJobWhoseHandlerEndsItsGoroutineIsDeliveredAgain(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	o.publish("a", job("a"), `{}`)
	w := o.worker()
	w.Handle("a", func(_ context.Context, j Job) (any, error) {
		if j.Delivery == 1 {
			runtime.Goexit()
		}
		return "done", nil
	})
	o.start(w)
	got := o.results(2) // the second Started is a duplicate
	if last := got[1].Result; string(last.Output) != `"done"` {
		t.Errorf("got %+v", last)
	}
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
}

// mutation: settling answered jobs without waiting for publish (answer that returns at the first
// error) fails this.
func TestAJobIsNotAcknowledgedBeforeItsResultIsStored(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	done := make(chan struct{})
	w := o.worker()
	w.Handle("a", func(ctx context.Context, _ Job) (any, error) {
		if err := o.js.DeleteStream(ctx, o.names.ResultsStream()); err != nil {
			t.Error(err)
		}
		close(done)
		return "done", nil
	})
	o.start(w)
	o.publish("a", job("a"), `{}`)
	within(t, "the handler is called", done)
	o.eventually("a publish is refused", func() bool { return strings.Contains(strings.Join(o.logs.all(), "\n"), "Result not published") })
	if n := o.jobs(); n != 1 {
		t.Errorf("%d jobs, the job was acknowledged without a result", n)
	}
	o.stream(jetstreamResults(o.names))
	if got := o.results(1); string(got[0].Result.Output) != `"done"` {
		t.Errorf("got %+v", got[0].Result)
	}
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
}

// mutation: running.cancel that ignores the ids, or compares only the run, fails this; so does
// listen that takes members in another case.
func TestCancelStopsTheNamedJobs(t *testing.T) {
	o := newOperator(t)
	o.topicOf("wait", time.Hour) // each handler is called once, however busy the machine is
	causes := make(chan string, 3)
	var started sync.WaitGroup
	started.Add(3)
	release := make(chan struct{})
	w := o.worker()
	w.Handle("wait", func(ctx context.Context, j Job) (any, error) {
		started.Done()
		select {
		case <-ctx.Done():
			causes <- fmt.Sprint(j.ID.RunUID, "/", j.ID.Step, ": ", context.Cause(ctx))
			return nil, ctx.Err()
		case <-release:
			return nil, nil
		}
	}, Concurrency(3))
	o.start(w)
	other := protocol.JobID{RunUID: "ffff", Step: "a", Item: protocol.NoItem, Attempt: 1}
	o.publish("wait", job("a"), `{}`)
	o.publish("wait", job("b"), `{}`)
	o.publish("wait", other, `{}`)
	started.Wait()

	o.cancel("8b0e", protocol.Control{Action: "Unknown"})
	if _, err := o.js.Publish(t.Context(), o.names.Control("8b0e"), []byte(`{"Action":"Cancel"}`)); err != nil { // an unknown member
		t.Fatal(err)
	}
	o.cancel("8b0e", protocol.Control{Action: protocol.ActionCancel, Jobs: []string{job("a").String(), "8b0e/gone/-/1"}})
	if got := <-causes; got != "8b0e/a: job cancelled" {
		t.Error(got)
	}
	o.eventually("the cancelled job is acknowledged", func() bool { return o.jobs() == 2 })
	o.cancel("8b0e", protocol.Control{Action: protocol.ActionCancel})
	if got := <-causes; got != "8b0e/b: job cancelled" {
		t.Error(got)
	}
	close(release)
	got := o.results(4) // three times Started, and one result
	if last := got[3]; last.Subject != o.names.Result(other) || last.Result.Status != protocol.StatusSucceeded {
		t.Errorf("got %+v", last)
	}
	o.eventually("all are acknowledged", func() bool { return o.jobs() == 0 })
}

// mutation: process without its look at the deadline calls the handler, and this fails.
func TestAnExpiredJobIsAcknowledgedWithoutWork(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	o.publish("a", job("late"), `{}`, func(h nats.Header) { h.Set(protocol.HeaderDeadline, time.Now().Add(-time.Second).Format(time.RFC3339)) })
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { t.Error("called"); return nil, nil })
	o.start(w)
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
	// mutation: V(1) hides that a wrong clock drops good jobs.
	if said := strings.Join(o.logs.all(), "\n"); !strings.Contains(said, `"level"=0 "msg"="Job dropped, its deadline has passed by this clock"`) ||
		!strings.Contains(said, `"deadline"=`) || !strings.Contains(said, `"now"=`) {
		t.Error(said)
	}
}

// mutation: work without WithDeadline makes this time out; late that does not log fails it.
func TestAJobWhoseDeadlinePassesEndsWithoutAResult(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	w := o.worker()
	w.Handle("a", func(ctx context.Context, _ Job) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
	o.start(w)
	o.eventually("the worker takes jobs", func() bool { return o.state("a").NumWaiting == 1 })
	soon := func(h nats.Header) { // and late enough to be begun on a busy machine
		h.Set(protocol.HeaderDeadline, time.Now().Add(3*time.Second).Format(time.RFC3339Nano))
	}
	o.publish("a", job("slow"), `{}`, soon)
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
	o.publish("a", job("next"), `{}`, soon)
	for _, r := range o.results(2) {
		if r.Result.Status != protocol.StatusStarted {
			t.Errorf("got %+v", r.Result)
		}
	}
	if said := strings.Join(o.logs.all(), "\n"); !strings.Contains(said, saidLate) || !strings.Contains(said, `"deadline"=`) || !strings.Contains(said, `"now"=`) {
		t.Error(said)
	}
}

// saidLate is what a worker says of work that it throws away.
const saidLate = `"level"=0 "msg"="Job ended without a result, its deadline has passed by this clock"`

// mutation: parse that takes a message without job id calls the handler; process that NAKs it
// loops, and this times out.
func TestAMessageThatIsNoJobIsTerminated(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	for i, edit := range []func(nats.Header){
		func(h nats.Header) { h.Set(protocol.HeaderMsgID, "x") },
		func(h nats.Header) { h.Del(protocol.HeaderReply) },
		func(h nats.Header) { h.Set(protocol.HeaderReply, "syncopate.control.8b0e") }, // mutation: no look at the reply publishes there
		func(h nats.Header) { h.Set(protocol.HeaderReply, o.names.Result(job("other"))) },
		func(h nats.Header) { // mutation: no look at the subject answers the other job
			h.Set(protocol.HeaderMsgID, job("other").String())
			h.Set(protocol.HeaderReply, o.names.Result(job("other")))
		},
		func(h nats.Header) { h.Set(protocol.HeaderDeadline, "tomorrow") },
		func(h nats.Header) { h.Set(protocol.HeaderFence, "many") },
	} {
		o.publish("a", job(fmt.Sprint("s", i)), `{}`, edit)
	}
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { t.Error("called"); return nil, nil })
	o.start(w)
	o.eventually("all are terminated", func() bool { return o.jobs() == 0 })
	said := strings.Join(o.logs.all(), "\n")
	if n := strings.Count(said, "Message terminated"); n != 7 || strings.Contains(said, "secret") {
		t.Errorf("%d lines, want 7 without the token:\n%s", n, said)
	}
}

func TestTheTokenIsNeverLogged(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	o.publish("a", job("good"), `{}`)
	o.publish("a", job("bad"), `{}`, func(h nats.Header) { h.Del(protocol.HeaderReply) })
	w := o.worker()
	w.Handle("a", func(_ context.Context, j Job) (any, error) { return nil, fmt.Errorf("job %+v", j) })
	stop := o.start(w)
	o.results(2)
	o.eventually("all are settled", func() bool { return o.jobs() == 0 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, line := range o.logs.all() {
		if strings.Contains(line, "secret") {
			t.Error(line)
		}
	}
}

// mutation: Connect that hands on what the library says of an address makes this fail.
func TestConnectQuotesNoAddressThatItCannotRead(t *testing.T) {
	for _, address := range []string{"nats://worker:SECRET%zz@nats:4222", "nats://worker:SECRET^@nats:4222", "nats://nats:SECRET"} {
		_, err := Connect(address)
		if !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
