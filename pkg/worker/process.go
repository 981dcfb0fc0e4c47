// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// outcome says what becomes of a job message.
type outcome int

const (
	answered outcome = iota // the result is stored: ack, and make sure that the server has it
	unwanted                // nobody waits for a result: ack
	returned                // not done here: NAK
)

// process does one job from its delivery to its acknowledgement.
func (t *topic) process(ctx context.Context, msg *nats.Msg) {
	j, err := t.parse(msg)
	if err != nil {
		t.log.Error(err, "Message terminated", "topic", t.name, "subject", msg.Subject)
		t.warn(msg.Respond([]byte("+TERM "+errJob.Error())), "terminate")
		return
	}
	if now := t.clock.Now(); j.expired(now) {
		// Said aloud: if this clock is wrong, the worker drops good jobs, and nothing else
		// tells of it.
		t.log.Info("Job dropped, its deadline has passed by this clock", "job", j.ID.String(), "topic", t.name, "deadline", j.Deadline, "now", now)
		t.settle(ctx, msg, unwanted)
		return
	}
	ctx, one, first := t.running.add(ctx, j.ID, j.place, msg)
	if !first {
		// NATS was away for longer than AckWait, or has lost data. The delivery at work ends this
		// message, too.
		t.log.Info("Job is at work here already", "job", j.ID.String(), "topic", t.name, "delivery", j.Delivery)
		return
	}
	defer t.running.remove(one)
	stop := t.each(t.pingEvery, func() {
		if j.expired(t.clock.Now()) {
			// The timer of the handler's context stands still while the machine sleeps, and does
			// not hear of a clock that is set.
			one.cancel(context.DeadlineExceeded)
		}
		for _, m := range t.running.messages(one) {
			t.warn(m.InProgress(), "tell that the job is under way")
		}
	})
	defer stop() // a handler may end its goroutine: then silence gives the job to another worker
	o := t.work(ctx, j, one)
	all := t.running.seal(one)
	stop()
	for _, m := range all {
		t.settle(ctx, m.Msg, o)
	}
}

func (t *topic) parse(msg *nats.Msg) (task, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return task{}, fmt.Errorf("%w: %w", errJob, err)
	}
	j, err := parseTask(t.names, t.name, msg.Subject, msg.Header, msg.Data, meta.NumDelivered)
	j.Payload, j.place = t.payload, place{meta.Sequence.Stream, meta.Timestamp.UnixNano()}
	return j, err
}

// each calls do after every interval, which may change meanwhile. stop waits for the end of that.
func (t *topic) each(interval func() time.Duration, do func()) (stop func()) {
	timer := t.clock.NewTimer(interval())
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-timer.C():
				timer.Reset(interval())
				do()
			case <-done:
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		all.Wait()
		timer.Stop()
	})
}

// start publishes Started. If the server does not store it, the operator takes the job for one that
// nobody began, and ends it; so it is published again beside the handler, until stop is called. It
// is, too, when another message of the job has come.
func (t *topic) start(ctx context.Context, j task, one *atWork) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	publish := func() {
		if ctx.Err() != nil || !one.unsaid.Swap(false) {
			return
		}
		err := t.publish(ctx, j, protocol.StartedMsgID(j.ID, j.token), protocol.Result{Status: protocol.StatusStarted})
		if err == nil {
			return
		}
		one.unsaid.Store(true)
		if ctx.Err() == nil {
			t.log.Error(err, "Start not published", "job", j.ID.String(), "topic", t.name)
		}
	}
	publish()
	wait := t.each(t.pingEvery, publish)
	return func() {
		cancel() // a try under way ends, so that the result does not wait for it
		wait()
	}
}

// work calls the handler and publishes its result.
func (t *topic) work(ctx context.Context, j task, one *atWork) outcome {
	if !j.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, j.Deadline)
		defer cancel()
	}
	// Which job of a process ended it is not known here, so the failure is not final.
	if t.limited && j.Delivery > uint64(t.maxDeliveries) {
		text := fmt.Sprintf("delivery %d, at most %d are tried", j.Delivery, t.maxDeliveries)
		return t.answer(ctx, j, one, resultOf(nil, Fail(CodeDeliveredTooOften, text)))
	}
	stop := t.start(ctx, j, one)
	defer stop()
	output, err := t.traced(ctx, j.Job)
	stop() // before the result, which is the last word
	r := t.result(j.Job, output, err)
	if r.Error != nil {
		t.log.V(1).Info("Job failed", "job", j.ID.String(), "topic", t.name, "code", r.Error.Code, "cause", r.Error.Message)
	}
	switch cause := one.cause(ctx); {
	case errors.Is(cause, ErrCancelled), t.late(j):
		return unwanted
	case err != nil && (errors.Is(cause, ErrStopping) || errors.Is(cause, context.DeadlineExceeded)):
		// The second one: the clock was set back meanwhile, and the deadline is still to come.
		return returned
	}
	return t.answer(ctx, j, one, r)
}

// late says whether the deadline of a job has passed that was worked on. It says so aloud, as
// process does: if this clock is wrong, good work is thrown away, and nothing else tells of it.
func (t *topic) late(j task) bool {
	now := t.clock.Now()
	if !j.expired(now) {
		return false
	}
	t.log.Info("Job ended without a result, its deadline has passed by this clock", "job", j.ID.String(), "topic", t.name, "deadline", j.Deadline, "now", now)
	return true
}

// result reads what the handler returned. Error() and MarshalJSON are the handler's own code, too,
// and may panic as it may: nobody else asks a handler's error what it says.
func (t *topic) result(job Job, output any, err error) (r protocol.Result) {
	var panicked error
	defer func() {
		if panicked != nil {
			r = resultOf(nil, panicked)
		}
	}()
	defer t.recovered(job, &output, &panicked)
	return resultOf(output, err)
}

// traced calls the handler within the span that Options.Trace begins.
func (t *topic) traced(ctx context.Context, job Job) (output any, err error) {
	if t.options.Trace == nil {
		return t.call(ctx, job)
	}
	defer t.recovered(job, &output, &err)
	ctx, end := t.options.Trace(ctx, job)
	output, err = t.call(ctx, job)
	end(err)
	return output, err
}

// call turns a panic into an error: one bad job must not end all others of this process.
func (t *topic) call(ctx context.Context, job Job) (output any, err error) {
	defer t.recovered(job, &output, &err)
	return t.handler(ctx, job)
}

func (t *topic) recovered(job Job, output *any, err *error) {
	if p := recover(); p != nil {
		*output, *err = nil, Fail(CodePanic, fmt.Sprint(p))
		t.log.Error(*err, "Handler panicked", "job", job.ID.String(), "topic", t.name, "stack", string(debug.Stack()))
	}
}

// answer publishes the result until the server confirms it, nobody waits for it, or ctx ends; it
// tries once in any case.
func (t *topic) answer(ctx context.Context, j task, one *atWork, r protocol.Result) outcome {
	r = t.fitting(r)
	var large *upload
	if len(r.Output) > protocol.MaxInlineOutputBytes {
		large = t.upload(one, r.Output)
	}
	backoff := publishBackoff
	for {
		err := t.deliver(ctx, j, r, large)
		switch {
		case err == nil:
			return answered
		case tooLarge(err) && large == nil && t.storable(r):
			large = t.upload(one, r.Output) // less than the protocol allows, but more than this server does
			continue
		case tooLarge(err) && r.Status == protocol.StatusSucceeded:
			r, large = resultOf(nil, Final(Fail(CodeTooLarge, err.Error()))), nil
			continue
		}
		t.log.Error(err, "Result not published", "job", j.ID.String(), "topic", t.name)
		t.sleep(ctx, t.jittered(backoff))
		backoff = min(2*backoff, publishCeiling)
		if ctx.Err() != nil {
			return t.unanswered(ctx, j, one)
		}
	}
}

// fitting is r, or what this worker says in its place if it has no object store for the output.
func (t *topic) fitting(r protocol.Result) protocol.Result {
	if !t.options.NoObjectStore || len(r.Output) <= protocol.MaxInlineOutputBytes {
		return r
	}
	text := fmt.Sprintf("the output has %d bytes, without an object store at most %d are possible", len(r.Output), protocol.MaxInlineOutputBytes)
	return resultOf(nil, Final(Fail(CodeTooLarge, text)))
}

// storable says whether the output may go to the object store, however small it is.
func (t *topic) storable(r protocol.Result) bool {
	return len(r.Output) > 0 && !t.options.NoObjectStore
}

// unanswered says what becomes of a job whose context ended before its result was stored.
func (t *topic) unanswered(ctx context.Context, j task, one *atWork) outcome {
	if errors.Is(one.cause(ctx), ErrCancelled) || t.late(j) {
		return unwanted
	}
	return returned
}

// deliver publishes a result once. A large output comes before it: a reference to what is not there
// would fail the attempt.
func (t *topic) deliver(ctx context.Context, j task, r protocol.Result, large *upload) error {
	if large != nil {
		if err := large.store(ctx); err != nil {
			return err
		}
		r.Output, r.OutputRef = nil, &large.ref
	}
	// A result that is there is worth a try, also when ctx has just ended.
	return t.publish(context.WithoutCancel(ctx), j, protocol.ResultMsgID(j.ID, j.token), r)
}

func tooLarge(err error) bool {
	return errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum)
}

// publish sends a result and waits for the server's PubAck, for the time of one request.
func (t *topic) publish(ctx context.Context, j task, msgID string, r protocol.Result) error {
	m, err := message(j, msgID, r)
	if err != nil {
		return err
	}
	ctx, cancel := briefly(ctx)
	defer cancel()
	if _, err := t.js.PublishMsg(ctx, m); err != nil {
		return fmt.Errorf("publish %s: %w", r.Status, err)
	}
	return nil
}

// settle acknowledges the job. A lost acknowledgement is harmless: the job comes again, and its
// result is a duplicate.
func (t *topic) settle(ctx context.Context, msg *nats.Msg, o outcome) {
	switch o {
	case answered:
		ctx, cancel := briefly(context.WithoutCancel(ctx))
		defer cancel()
		t.warn(msg.AckSync(nats.Context(ctx)), "acknowledge")
	case unwanted:
		t.warn(msg.Ack(), "acknowledge") // the operator may have withdrawn the message already: no answer is waited for
	case returned:
		t.giveBack(msg)
	}
}

// joins says whether a job is at work here already, which then ends this message, too.
func (t *topic) joins(msg *nats.Msg) bool {
	j, err := t.parse(msg)
	return err == nil && t.running.joins(j.ID, j.place, msg)
}

func (t *topic) giveBack(msg *nats.Msg) { t.warn(msg.Nak(), "give back") }

// warn logs what cannot be helped here: the server delivers the job again when it hears nothing.
func (t *topic) warn(err error, what string) {
	if err != nil {
		t.log.Error(err, "Server not reached", "to", what, "topic", t.name)
	}
}
