// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// checks in the order in which they are done: what needs a restart comes last.
func checks() []check {
	return []check{
		{"reply", "Goes to the subject in `Syncopate-Reply`", nothing, checkReply},
		{"token", "`Syncopate-Token` as it came", nothing, checkToken},
		{"result-id", "`Nats-Msg-Id`, which is `<job id>/<token>`", nothing, checkResultID},
		{"started-id", "for Started `<job id>/<token>/started`", nothing, checkStartedID},
		{"once", "Publish **one** result", nothing, checkOnce},
		{"order", "Only then ack the job.", nothing, checkOrder},
		{"refused", "No PubAck: publish again with the same `Nats-Msg-Id`, with backoff, until the deadline.", nothing, checkRefused},
		{"twice", "a job that comes twice is harmless, because its second result is a duplicate.", nothing, checkTwice},

		{"output", "`{\"status\": \"Succeeded\", \"output\": any}`", nothing, checkOutput},
		{"unicode", "Bodies are JSON in UTF-8", nothing, checkUnicode},
		{"failed", "`{\"status\": \"Failed\", \"error\": {\"code\", \"message\"}}`", nothing, checkFailed},
		{"final", "the same with `\"final\": true`", nothing, checkFinal},
		{"long-message", "A failure stays what it is, however long its message", nothing, checkLongMessage},
		{"retry", "`{\"status\": \"Retry\", \"retryAfterMillis\": 1500}`", nothing, checkRetry},
		{"lock-fences", "Give all of them to the handler, by lock", nothing, checkLockFences},
		{"trace", "A span of the worker is a child of it", nothing, checkTrace},
		{"large-output", "The stream takes no result above 96 KiB", nothing, checkLargeOutput},
		{"too-large", "so do not publish the same again", nothing, checkTooLarge},
		{"claim-check", "An output whose JSON text is over 64 KiB goes to the object store", nothing, checkClaimCheck},
		{"stored-first", "Publish the result only when the store has confirmed the whole object.", nothing, checkStoredFirst},
		{"over-limit", "an output above 8 MiB is a final failure with the code `TooLarge`.", nothing, checkOverLimit},

		{"unknown", "Ignore unknown members and headers.", nothing, checkUnknown},
		{"forged", "A message that is no job is terminated", nothing, checkForged},
		{"not-json", "A body that is no JSON object is a final failure", nothing, checkNotJSON},
		{"deadline-passed", "If the deadline has passed, ack and stop here.", nothing, checkDeadlinePassed},
		{"deadline-passes", "Cancelled, or deadline passed: ack without a result.", nothing, checkDeadlinePasses},
		{"cancel", "`{\"action\": \"Cancel\"}` stops all jobs of the run in the subject", nothing, checkCancel},
		{"cancel-others", "with `\"jobs\": [job ids]` only those", nothing, checkCancelOthers},

		{"started", "A worker that does not say Started must answer within the step's `startTimeoutSeconds`; one whose work takes long says it.", nothing, checkStarted},
		{"in-progress", "Send InProgress (`+WPI`) every third of AckWait", nothing, checkInProgress},
		{"pull-bound", "Pull no more jobs than you can work on now", nothing, checkPullBound},
		{"overlap", "A worker does several jobs at the same time", several, checkOverlap},

		{"killed", "A job may be delivered more than once, so work must bear repetition", process, checkKilled},
		{"shutdown", "Shutting down in the middle: NAK, and another worker gets the job.", process, checkShutdown},
		{"half-done", "Work that is broken off there is not done: what there is of it is no output.", shortGrace, checkHalfDone},
		{"consumer-gone", "until it is there, a worker waits and looks again every few seconds", nothing, checkConsumerGone},
		{"restart-working", "A restart of NATS while a job is under way", restart, checkRestartWorking},
		{"restart-idle", "A worker outlives its server", restart, checkRestartIdle},
		{"secret", "Do not log it", process, checkSecret},
	}
}

// longMessage is somewhat more bytes than the stream of results takes.
const longMessage = 100 << 10

var quick = input{Do: "succeed", Value: json.RawMessage(`{"a":[1,"x"]}`)}

func checkReply(ctx context.Context, k *kit) error {
	id := newJob("reply")
	id.Item, id.Attempt = "3", 2
	j, err := k.dispatch(ctx, id, quick)
	if err != nil {
		return err
	}
	es, err := k.finish(ctx, j)
	if err != nil {
		return err
	}
	for _, e := range es {
		if (e.kind == answer || e.kind == started) && e.subject != k.names.Result(id) {
			return &Failure{Expected: k.names.Result(id), Saw: e.subject}
		}
	}
	return nil
}

func checkToken(ctx context.Context, k *kit) error {
	return k.headers(ctx, protocol.HeaderToken, func(job, event) string { return "" })
}

func checkResultID(ctx context.Context, k *kit) error {
	return k.headers(ctx, protocol.HeaderMsgID, func(j job, e event) string {
		if e.kind == started {
			return e.header.Get(protocol.HeaderMsgID) // another check's
		}
		return protocol.ResultMsgID(j.id, k.keys.Sign(j.id))
	})
}

func checkStartedID(ctx context.Context, k *kit) error {
	return k.headers(ctx, protocol.HeaderMsgID, func(j job, e event) string {
		if e.kind == answer {
			return e.header.Get(protocol.HeaderMsgID)
		}
		return protocol.StartedMsgID(j.id, k.keys.Sign(j.id))
	})
}

// headers compares a header of all results of a job; want "" stands for the job's token.
func (k *kit) headers(ctx context.Context, name string, want func(job, event) string) error {
	j, es, err := k.do(ctx, "headers", quick)
	if err != nil {
		return err
	}
	for _, e := range es {
		if e.kind != answer && e.kind != started {
			continue
		}
		expected := want(j, e)
		if expected == "" {
			expected = k.keys.Sign(j.id)
		}
		if got := e.header.Values(name); len(got) != 1 || got[0] != expected {
			return &Failure{Expected: fmt.Sprintf("%s: %s", name, expected), Saw: fmt.Sprintf("%q with %s", got, e)}
		}
	}
	return nil
}

func checkOnce(ctx context.Context, k *kit) error {
	j, _, err := k.do(ctx, "once", quick)
	if err != nil {
		return err
	}
	if _, _, err := k.do(ctx, "after", quick); err != nil { // a second answer has come by then
		return err
	}
	if count(k.tap.of(j), answer) != 1 {
		return k.saw(j, "one answer")
	}
	return nil
}

func checkOrder(ctx context.Context, k *kit) error {
	j, es, err := k.do(ctx, "order", quick)
	if err != nil {
		return err
	}
	if first(es, acked) < first(es, answer) {
		return k.saw(j, "the ack after the answer")
	}
	return nil
}

func checkOutput(ctx context.Context, k *kit) error {
	for _, value := range []string{`{"a":[1,"x",null,true,-0.5]}`, `"text"`, `17`, `[]`} {
		if err := k.output1(ctx, "output", json.RawMessage(value)); err != nil {
			return err
		}
	}
	return k.wholeNumber(ctx)
}

// wholeNumber sends one that no double is. A worker that has doubles only says so.
func (k *kit) wholeNumber(ctx context.Context) error {
	const value = "9007199254740993"
	got, output, err := k.gives(ctx, "whole", json.RawMessage(value))
	if err != nil {
		return err
	}
	r := got.result
	if kept, refused := r.Status == protocol.StatusSucceeded && string(output) == value, r.Status == protocol.StatusFailed && r.Final; kept || refused {
		return nil
	}
	return &Failure{Expected: "Succeeded with the output " + value + ", or a final failure", Saw: got.String()}
}

func checkUnicode(ctx context.Context, k *kit) error {
	const escapes = `"\u0000\u001f\u2028\ud83c\udfb7\"\\\/"`
	if err := k.output1(ctx, "escapes", json.RawMessage(escapes)); err != nil {
		return err
	}
	return k.output1(ctx, "unicode", json.RawMessage(`{"größe":"日本語, עברית, e\u0301, 🎷, a\tb"}`))
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && cmp.Equal(x, y)
}

func checkFailed(ctx context.Context, k *kit) error {
	return k.result(ctx, input{Do: "fail", Code: "Teapot", Message: "short & stout"},
		protocol.Result{Status: protocol.StatusFailed, Error: &protocol.ResultError{Code: "Teapot", Message: "short & stout"}})
}

func checkFinal(ctx context.Context, k *kit) error {
	return k.result(ctx, input{Do: "final", Code: "Teapot", Message: "no coffee"},
		protocol.Result{Status: protocol.StatusFailed, Final: true, Error: &protocol.ResultError{Code: "Teapot", Message: "no coffee"}})
}

// checkLongMessage has a failure whose message is more than the stream takes: what counts is what
// the stream has in the end. How much of the message is left is the worker's to say, and the code
// is a check of its own.
func checkLongMessage(ctx context.Context, k *kit) error {
	const words = "short & stout "
	j, _, err := k.do(ctx, "long-message", input{Do: "fail", Code: "Teapot", Message: strings.Repeat(words, longMessage/len(words))})
	if err != nil {
		return err
	}
	stored, err := k.stored(ctx, j.id)
	if err != nil {
		return err
	}
	for _, r := range stored {
		if r.Status == protocol.StatusFailed && !r.Final && r.Error != nil && r.Error.Code != "TooLarge" {
			return nil
		}
	}
	return k.saw(j, "Failed, not final, with the beginning of the message")
}

func checkRetry(ctx context.Context, k *kit) error {
	_, es, err := k.do(ctx, "retry", input{Do: "retry", Millis: 1500})
	if err != nil {
		return err
	}
	got := es[first(es, answer)]
	if got.result.Status != protocol.StatusRetry || got.result.RetryAfterMillis != 1500 {
		return &Failure{Expected: "Retry with retryAfterMillis 1500", Saw: got.String()}
	}
	return nil
}

func (k *kit) result(ctx context.Context, in input, want protocol.Result) error {
	_, es, err := k.do(ctx, in.Do, in)
	if err != nil {
		return err
	}
	got := es[first(es, answer)]
	if !cmp.Equal(want, got.result) {
		body, err := json.Marshal(want)
		if err != nil {
			return fmt.Errorf("encode result: %w", err)
		}
		return &Failure{Expected: string(body), Saw: got.String()}
	}
	return nil
}

// checkRefused lets the stream of results be full for a while: until the worker has tried twice, or
// let go of the job.
func checkRefused(ctx context.Context, k *kit) error {
	undo, err := k.limit(ctx, k.names.ResultsStream(), full)
	if err != nil {
		return err
	}
	j, err := k.dispatch(ctx, newJob("refused"), quick)
	if err != nil {
		return errors.Join(err, undo())
	}
	var es []event
	var enough time.Time // one that does not try again does the job again after AckWait
	waited := k.await(ctx, "the answer is refused", func() (bool, error) {
		if es = k.tap.of(j); enough.IsZero() && count(es, answer) > 0 {
			enough = time.Now().Add(3 * k.config.AckWait)
		}
		return count(es, answer) > 1 || count(afterAnswer(es), acked, returned, ended) > 0 || !enough.IsZero() && time.Now().After(enough), nil
	})
	if err := undo(); err != nil {
		return err
	}
	if waited == nil && count(afterAnswer(es), acked, ended) > 0 {
		return k.saw(j, "no ack of a job whose answer was refused")
	}
	if err := k.survived(ctx, j); err != nil {
		return err
	}
	_, err = k.finish(ctx, j)
	return err
}

// afterAnswer is what was said after the first try to answer.
func afterAnswer(es []event) []event {
	if at := first(es, answer); at >= 0 {
		return es[at:]
	}
	return nil
}

// checkTwice delivers a job again that was done: as after an ack that got lost.
func checkTwice(ctx context.Context, k *kit) error {
	j, _, err := k.do(ctx, "twice", quick)
	if err != nil {
		return err
	}
	again, err := k.forge(ctx, j.id, quick.bytes(), unchanged)
	if err != nil {
		return err
	}
	if _, err := k.settled(ctx, again); err != nil {
		return err
	}
	stored, err := k.stored(ctx, j.id)
	if err == nil && len(stored) != 1 {
		return k.saw(again, fmt.Sprintf("one answer in the stream and not %d", len(stored)))
	}
	return err
}
