// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// raw is a worker of the test topic that keeps the whole protocol but for one flaw. It uses no SDK,
// so that every rule has a place where it can be broken.
type raw struct {
	flaw  flaw
	names protocol.Names
	nc    *nats.Conn
	js    jetstream.JetStream

	life   context.Context //nolint:containedctx // of a whole process
	die    context.CancelFunc
	stop   chan struct{} // closed by Terminate
	lost   atomic.Bool   // the connection was lost
	over   atomic.Bool   // the consumer was, and with it the worker
	slots  sync.WaitGroup
	output buffer

	mu      sync.Mutex
	running map[*task]struct{}
	done    map[string]bool // ids of jobs that were acknowledged
	cutOff  map[string]bool // ids of jobs under way when the connection was lost
}

type task struct {
	id, token, reply string
	job              protocol.JobID
	deadline         time.Time
	fences           map[string]int64
	traceparent      string
	cancel           context.CancelCauseFunc
	again            bool // this process has done it before
}

var errCancelled = errors.New("cancelled")

// rawTimeout of a request: long for a busy machine, short enough to ask again soon when a
// restart swallowed it.
const rawTimeout = 3 * time.Second

// startRaw is a Config.Start.
func startRaw(url string, f flaw) func() (Process, error) {
	return func() (Process, error) {
		w := &raw{
			flaw: f, names: protocol.Names{Prefix: protocol.DefaultPrefix}, stop: make(chan struct{}),
			running: map[*task]struct{}{}, done: map[string]bool{}, cutOff: map[string]bool{},
		}
		var err error
		w.nc, err = nats.Connect(url, nats.Timeout(DefaultPatience), nats.MaxReconnects(-1), nats.ReconnectWait(look),
			nats.DisconnectErrHandler(func(*nats.Conn, error) { w.disconnected() }))
		if err != nil {
			return nil, err
		}
		if w.js, err = jetstream.New(w.nc); err != nil {
			return nil, err
		}
		if _, err := w.nc.Subscribe(w.names.Control("*"), w.control); err != nil {
			return nil, err
		}
		w.life, w.die = context.WithCancel(context.Background())
		n := DefaultConcurrency
		if f == oneAtATime {
			n = 1
		}
		for range n {
			w.slots.Go(w.slot)
		}
		return w, nil
	}
}

func (w *raw) disconnected() {
	w.lost.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.running {
		w.cutOff[t.id] = true
	}
}

func (w *raw) Kill() error {
	w.nc.Close()
	w.die()
	w.slots.Wait()
	return nil
}

func (w *raw) Terminate(context.Context) error {
	if w.flaw == exitsAtOnce {
		return w.Kill()
	}
	close(w.stop)
	w.slots.Wait()
	err := w.nc.FlushTimeout(rawPatience)
	w.nc.Close()
	w.die()
	return err
}

func (w *raw) Output() string { return w.output.String() }

func (w *raw) stopping() bool {
	select {
	case <-w.stop:
		return true
	case <-w.life.Done():
		return true
	default:
		return w.flaw == endsWithItsServer && w.lost.Load() || w.over.Load()
	}
}

func (w *raw) slot() {
	for !w.stopping() {
		err := w.pull()
		if w.flaw == endsWithItsConsumer && (errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound)) {
			w.over.Store(true)
			return
		}
		if err != nil {
			w.pause(look)
		}
	}
}

func (w *raw) pause(d time.Duration) {
	select {
	case <-w.life.Done():
	case <-time.After(d):
	}
}

func (w *raw) pull() error {
	c, err := w.js.Consumer(w.life, w.names.JobsStream(), protocol.Durable(DefaultTopic))
	if err != nil {
		return err
	}
	msgs, err := c.Fetch(1, jetstream.FetchMaxWait(time.Second))
	if err != nil {
		return err
	}
	var jobs sync.WaitGroup
	defer jobs.Wait()
	for m := range msgs.Messages() {
		if w.stopping() {
			_ = m.Nak() // a loss costs an AckWait
			continue
		}
		work := func() { w.process(m, c.CachedInfo().Config.AckWait) }
		if w.flaw == takesTooMany {
			w.slots.Go(work)
		} else {
			jobs.Go(work)
		}
	}
	return msgs.Error()
}

func (w *raw) process(m jetstream.Msg, ackWait time.Duration) {
	t, err := w.read(m)
	if err != nil {
		_ = m.TermWithReason(err.Error())
		return
	}
	if meta, err := m.Metadata(); err == nil && meta.NumDelivered > 1 && w.flaw == dropsRedelivered {
		_ = m.Ack()
		return
	}
	if !t.deadline.IsZero() && time.Now().After(t.deadline) && w.flaw != worksExpired {
		_ = m.Ack()
		return
	}
	ctx, end := w.begin(t)
	defer end()
	if w.flaw != neverPings {
		go w.ping(ctx, m, ackWait/3)
	}
	if w.flaw != neverStarts {
		w.started(t)
	}
	first := w.flaw == acksFirst && !strings.Contains(string(m.Data()), "sleep") // else it would lose jobs, too
	if first {
		_ = m.Ack()
	}
	result, nak := w.handle(ctx, t, m.Data())
	switch {
	case nak:
		_ = m.NakWithDelay(look)
	case ctx.Err() != nil, w.flaw == forgetsWhatWasCutOff && w.wasCutOff(t):
		_ = m.Ack()
	case w.answer(t, result) && !first:
		w.acknowledge(t, m)
	}
}

// wasCutOff says whether the connection was lost during the job, in this or in an earlier delivery:
// the ack may have been lost, too.
func (w *raw) wasCutOff(t *task) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cutOff[t.id]
}

func (w *raw) acknowledge(t *task, m jetstream.Msg) {
	w.mu.Lock()
	w.done[t.id] = true
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(w.life, rawTimeout)
	defer cancel()
	_ = m.DoubleAck(ctx)
}

// fences are those of locks. That of the operator is for others, but one that is none
// spoils the job.
func (w *raw) fences(h nats.Header) (map[string]int64, error) {
	if s := h.Get(protocol.HeaderFence); s != "" && w.flaw != takesAnyFence {
		if _, err := strconv.ParseInt(s, 10, 64); err != nil {
			return nil, err
		}
	}
	values := h.Values(protocol.HeaderLockFence)
	if w.flaw == oneFence {
		values = values[:min(1, len(values))]
	}
	return protocol.ParseLockFences(values)
}

func (w *raw) read(m jetstream.Msg) (*task, error) {
	h := m.Headers()
	t := &task{id: h.Get(protocol.HeaderMsgID), token: h.Get(protocol.HeaderToken), reply: h.Get(protocol.HeaderReply)}
	var err error
	if t.job, err = protocol.ParseJobID(t.id); err != nil {
		return nil, err
	}
	if w.flaw != trustsHeaders && (m.Subject() != w.names.Job(DefaultTopic, t.job) || t.reply != w.names.Result(t.job)) {
		return nil, errors.New("forged")
	}
	if s := h.Get(protocol.HeaderDeadline); s != "" {
		t.deadline, err = time.Parse(time.RFC3339Nano, s)
	}
	if err == nil {
		t.fences, err = w.fences(h)
	}
	if w.flaw != losesTrace {
		t.traceparent = h.Get(protocol.HeaderTraceParent)
	}
	if w.flaw == logsToken {
		fmt.Fprintln(&w.output, "job", t.id, t.token)
	}
	return t, err
}

// begin makes a task's context, which ends when the job is cancelled, late, or done.
func (w *raw) begin(t *task) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(w.life)
	t.cancel = cancel
	stop := func() {}
	if !t.deadline.IsZero() && w.flaw != answersLate {
		ctx, stop = context.WithDeadline(ctx, t.deadline)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t.again = w.done[t.id]
	w.running[t] = struct{}{}
	return ctx, func() {
		stop()
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.running, t)
	}
}

func (w *raw) control(m *nats.Msg) {
	uid, ok := w.names.ParseControl(m.Subject)
	var c protocol.Control
	err := json.Unmarshal(m.Data, &c)
	known := ok && err == nil && c.Action == protocol.ActionCancel
	if w.flaw == ignoresControl || !known && w.flaw != obeysAnything {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.running {
		if t.job.RunUID == uid && (len(c.Jobs) == 0 || slices.Contains(c.Jobs, t.id) || w.flaw == cancelsSiblings) {
			t.cancel(errCancelled)
		}
	}
}

func (w *raw) ping(ctx context.Context, m jetstream.Msg, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = m.InProgress()
		}
	}
}

// handle does what the test topic has to; nak says that the flaw gives the job back.
func (w *raw) handle(ctx context.Context, t *task, body []byte) (r protocol.Result, nak bool) {
	var in input
	if err := json.Unmarshal(body, &in); err != nil {
		return failed("InvalidInput", err.Error(), true), w.flaw == returnsNonsense
	}
	r = protocol.Result{Status: protocol.StatusSucceeded, Output: w.spoil(in.Value)}
	switch in.Do {
	case "succeed":
	case "fences":
		r.Output, _ = json.Marshal(t.fences)
		if t.fences == nil {
			r.Output = json.RawMessage("{}")
		}
	case "trace":
		r.Output, _ = json.Marshal(t.traceparent)
	case "large":
		r.Output = json.RawMessage(`"` + strings.Repeat("x", in.Bytes) + `"`)
	case "sleep":
		w.sleep(ctx, time.Duration(in.Millis)*time.Millisecond)
	case "fail":
		if r = failed(in.Code, w.cut(in.Message), false); w.flaw == losesCode {
			r.Error.Code = "Error"
		}
	case "final":
		r = failed(in.Code, in.Message, w.flaw != losesFinal)
	case "retry":
		if r = (protocol.Result{Status: protocol.StatusRetry, RetryAfterMillis: in.Millis}); w.flaw == failsForRetry {
			r = failed("Retry", "later", false)
		}
	default:
		r = failed("InvalidInput", "do", true)
	}
	return r, false
}

// sleep has no grace period: what is under way comes to its end.
func (w *raw) sleep(ctx context.Context, d time.Duration) {
	var stop <-chan struct{}
	if w.flaw == answersHalf {
		stop = w.stop
	}
	select {
	case <-ctx.Done():
	case <-stop:
	case <-time.After(d):
	}
}

// cut keeps the beginning of a message: a result has to fit.
func (w *raw) cut(message string) string {
	if w.flaw == neverCutsMessages {
		return message
	}
	return message[:min(len(message), 2000)]
}

func failed(code, message string, final bool) protocol.Result {
	return protocol.Result{Status: protocol.StatusFailed, Final: final, Error: &protocol.ResultError{Code: code, Message: message}}
}

// spoil has the flaws of outputs.
func (w *raw) spoil(output json.RawMessage) json.RawMessage {
	switch {
	case w.flaw == numbersAsText && string(output) == "17":
		return json.RawMessage(`"17"`)
	case w.flaw == roundsNumbers && string(output) == "9007199254740993":
		return json.RawMessage("9007199254740992")
	case w.flaw == cutsOutputs && len(output) > 32<<10 && len(output) <= protocol.MaxInlineOutputBytes:
		return json.RawMessage(`"cut"`)
	case w.flaw == onlyASCII:
		return json.RawMessage(strings.Map(func(r rune) rune {
			if r > 127 {
				return '?'
			}
			return r
		}, string(output)))
	}
	return output
}

func (w *raw) started(t *task) {
	id := protocol.StartedMsgID(t.job, t.token)
	if w.flaw == startedIDWithoutToken {
		id = t.id + "/started"
	}
	ctx, cancel := context.WithTimeout(w.life, rawTimeout)
	defer cancel()
	_, _ = w.js.PublishMsg(ctx, w.message(t, id, protocol.Result{Status: protocol.StatusStarted}))
}

// answer publishes until the server has it; false if the process ends before.
func (w *raw) answer(t *task, r protocol.Result) bool {
	id := protocol.ResultMsgID(t.job, t.token)
	switch {
	case w.flaw == resultIDWithoutToken:
		id = t.id
	case w.flaw == newIDForRedelivery && t.again:
		id += "/again"
	}
	r, ok := w.offload(t, r)
	if !ok {
		return false
	}
	for w.life.Err() == nil {
		ctx, cancel := context.WithTimeout(w.life, rawTimeout)
		_, err := w.js.PublishMsg(ctx, w.message(t, id, r))
		if err == nil && w.flaw == answersTwice {
			_, err = w.js.PublishMsg(ctx, w.message(t, id, r))
		}
		cancel()
		refused := (*jetstream.APIError)(nil)
		switch {
		case err == nil:
			return true
		case errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
			if w.flaw != repeatsTooLarge {
				r = failed("TooLarge", err.Error(), true)
			}
		case errors.As(err, &refused) && w.flaw == ignoresPubAck:
			return true
		}
		w.pause(look)
	}
	return false
}

func (w *raw) message(t *task, msgID string, r protocol.Result) *nats.Msg {
	m := nats.NewMsg(t.reply)
	if w.flaw == otherPartition {
		m.Subject = strings.Replace(t.reply, fmt.Sprintf(".%02d.", protocol.Partition(t.job.RunUID)), fmt.Sprintf(".%02d.", (protocol.Partition(t.job.RunUID)+1)%protocol.Partitions), 1)
	}
	m.Data, _ = json.Marshal(r) // of own making
	m.Header.Set(protocol.HeaderMsgID, msgID)
	if w.flaw != noToken {
		m.Header.Set(protocol.HeaderToken, t.token)
	}
	return m
}
