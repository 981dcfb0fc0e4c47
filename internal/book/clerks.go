// SPDX-License-Identifier: Apache-2.0

package book

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	pullWait    = 2 * time.Second // of one pull; as long the clerks take to stop
	publishWait = 2 * time.Second // for one PubAck
	errorPause  = 100 * time.Millisecond
	quick       = 20 * time.Millisecond // the longest job that is not slow
)

// Clerks are the workers. They keep the protocol as docs/protocol.md has it, write all that
// they publish into the ledger, and are troublesome within the rules: slow, forgetful, and they
// say things twice.
type Clerks struct {
	js        jetstream.JetStream
	names     protocol.Names
	namespace string
	plan      Plan
	byName    map[string]map[string][]Ending
	ledger    *Ledger

	working sync.WaitGroup
	copies  sync.WaitGroup // results that are still to be published once more; only those who work add to it
	goHome  context.CancelFunc
}

// task is one job in the hands of a clerk.
type task struct {
	id                protocol.JobID
	job, reply, token string
	kind              Ending
	again             bool // the server has delivered it before
	rand              *rand.Rand
}

// Hire starts as many clerks as the plan has workers. Close ends their work.
// They do the jobs of runs in one namespace; what is left of others' is acknowledged.
func Hire(ctx context.Context, js jetstream.JetStream, names protocol.Names, namespace string, p Plan, l *Ledger) *Clerks {
	opening, goHome := context.WithCancel(ctx)
	c := &Clerks{js: js, names: names, namespace: namespace, plan: p, byName: p.ByName(), ledger: l, goHome: goHome}
	for range p.size.Workers {
		c.working.Go(func() { c.serve(opening, ctx) })
	}
	return c
}

// Close lets all finish what they are working on, and publish what they still mean
// to publish twice.
func (c *Clerks) Close() {
	c.goHome()
	c.working.Wait()
	c.copies.Wait()
}

// serve takes one job after the other until the first context ends, and works on it under the
// second. Errors are those of a server that is away.
func (c *Clerks) serve(opening, ctx context.Context) {
	for opening.Err() == nil {
		consumer, err := c.js.Consumer(opening, c.names.JobsStream(), protocol.Durable(c.plan.size.Topic))
		for err == nil && opening.Err() == nil {
			err = c.pull(ctx, consumer)
		}
		linger(opening, errorPause)
	}
}

func (c *Clerks) pull(ctx context.Context, consumer jetstream.Consumer) error {
	batch, err := consumer.Fetch(1, jetstream.FetchMaxWait(pullWait))
	if err != nil {
		return err
	}
	for msg := range batch.Messages() {
		c.work(ctx, msg)
	}
	return batch.Error()
}

func (c *Clerks) work(ctx context.Context, msg jetstream.Msg) {
	if !strings.Contains(msg.Headers().Get(protocol.HeaderCESource), "/"+c.namespace+"/") {
		_ = msg.Ack() // a forgotten one of a plan before: its answer is in the books of that
		return
	}
	t, ok := c.read(msg)
	if !ok {
		_ = msg.Term() // what is strange is in the ledger already
		return
	}
	linger(ctx, t.duration(c.plan.size))
	started := fmt.Appendf(nil, `{"status":%q}`, protocol.StatusStarted)
	first := t.rand.IntN(10)
	if first < 4 {
		c.publish(ctx, t, "/started", started, false)
	}
	body := c.compose(ctx, t)
	if !c.publish(ctx, t, "", body, true) {
		return // the test is over
	}
	if first == 9 {
		c.publish(ctx, t, "/started", started, false) // too late: nobody is to fall for it
	}
	c.repeat(ctx, t, body)
	if t.again || t.rand.IntN(50) > 0 { // else it is forgotten, and comes again after AckWait
		_ = msg.Ack() // a lost one means the same
	}
}

// read finds out which job it is and how it is to end.
func (c *Clerks) read(msg jetstream.Msg) (task, bool) {
	h := msg.Headers()
	t := task{job: h.Get(protocol.HeaderMsgID), reply: h.Get(protocol.HeaderReply), token: h.Get(protocol.HeaderToken)}
	id, err := protocol.ParseJobID(t.job)
	meta, noMeta := msg.Metadata()
	endings := c.byName[RunOf(h.Get(protocol.HeaderCESource))][id.Step]
	if err != nil || noMeta != nil || int(id.Attempt) > len(endings) {
		c.ledger.wonder(fmt.Sprintf("job %q of %s, %d attempts planned", t.job, h.Get(protocol.HeaderCESource), len(endings)))
		return t, false
	}
	t.id, t.kind, t.again = id, endings[id.Attempt-1], meta.NumDelivered > 1
	c.ledger.take(t.job, t.kind, meta.Sequence.Stream)
	hash := fnv.New64a()
	_, _ = fmt.Fprint(hash, RunOf(h.Get(protocol.HeaderCESource)), t.job[len(id.RunUID):]) // a hash never fails; UIDs change, what clerks do does not
	t.rand = rand.New(rand.NewPCG(c.plan.seed, hash.Sum64()))
	return t, true
}

// duration is how long a job takes: one in a hundred is slow.
func (t task) duration(s Size) time.Duration {
	if t.rand.IntN(100) == 0 {
		return time.Duration(t.rand.Int64N(int64(s.Slow)))
	}
	return time.Duration(t.rand.Int64N(int64(cmp.Or(s.Quick, quick))))
}

// compose makes a result, as planned, with a value of its own, and notes it. Some outputs are too
// large for status, and some of these too large for a result: they go to the object store first.
func (c *Clerks) compose(ctx context.Context, t task) []byte {
	value := c.ledger.value(t.job)
	padding := 0
	if t.kind == Succeeds {
		padding = [...]int{8_000, 8_000, 80_000}[t.rand.IntN(3)] * (t.rand.IntN(20) / 19)
	}
	if padding == 0 {
		c.ledger.offer(t.job, value)
		return t.kind.Body(value, t.wait())
	}
	data := output(value, padding)
	ref := protocol.NewOutputRef(t.id, data)
	c.ledger.offer(t.job, ref.Name)
	if len(data) <= protocol.MaxInlineOutputBytes {
		return encode(protocol.Result{Status: protocol.StatusSucceeded, Output: data})
	}
	c.upload(ctx, t, ref, data)
	return encode(protocol.Result{Status: protocol.StatusSucceeded, OutputRef: &ref})
}

// upload goes on until the object store has the output: first its bytes, then the entry that names
// them. It does so by hand: the library's way leaves a goroutine behind when the server goes away,
// which may end the process later.
func (c *Clerks) upload(ctx context.Context, t task, ref protocol.OutputRef, data []byte) {
	nuid := protocol.PayloadNUID(t.id.RunUID, uuid.NewString())
	entry, err := json.Marshal(c.names.NewPayloadEntry(ref, nuid, 1))
	if err != nil {
		c.ledger.wonder(err.Error())
		return
	}
	parts := []*nats.Msg{
		{Subject: c.names.PayloadChunks(nuid), Data: data},
		{Subject: c.names.PayloadEntry(ref.Name), Data: entry, Header: nats.Header{protocol.HeaderRollup: {protocol.RollupSubject}}},
	}
	for _, m := range parts {
		// A part that is stored twice would spoil the object; the server knows it by its id.
		if m.Header == nil {
			m.Header = nats.Header{}
		}
		m.Header.Set(protocol.HeaderMsgID, uuid.NewString())
		if _, ok := c.persist(ctx, m); !ok {
			return
		}
	}
	c.ledger.uploaded()
}

// wait is what a Retry asks for.
func (t task) wait() time.Duration { return time.Duration(t.rand.IntN(300)) * time.Millisecond }

// repeat publishes copies of the result just published: at once and late, with the same Msg-Id and
// with others, with the same body and with others, as workers do whose job came twice.
func (c *Clerks) repeat(ctx context.Context, t task, body []byte) {
	late := time.Duration(t.rand.Int64N(int64(c.plan.size.Late)))
	switch t.rand.IntN(12) {
	case 0:
		c.publish(ctx, t, "", body, true)
	case 1:
		c.publish(ctx, t, "", c.compose(ctx, t), true)
	case 2:
		c.publish(ctx, t, "/again", c.compose(ctx, t), true)
	case 3:
		c.copies.Go(func() {
			linger(ctx, late)
			c.publish(ctx, t, "", body, true)
		})
	case 4, 5:
		other := c.compose(ctx, t)
		c.copies.Go(func() {
			linger(ctx, late)
			c.publish(ctx, t, "/late", other, true)
		})
	}
}

// publish goes on until the server confirms that it has the message; false: the test ended before.
func (c *Clerks) publish(ctx context.Context, t task, suffix string, body []byte, result bool) bool {
	m := nats.NewMsg(t.reply)
	m.Data = body
	m.Header.Set(protocol.HeaderMsgID, t.job+"/"+t.token+suffix)
	m.Header.Set(protocol.HeaderToken, t.token)
	ack, ok := c.persist(ctx, m)
	if ok && result {
		c.ledger.confirm(t.job, ack.Duplicate)
	}
	return ok
}

// persist publishes a message until the server confirms it; false: the test ended before.
func (c *Clerks) persist(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, bool) {
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, publishWait)
		ack, err := c.js.PublishMsg(bounded, m)
		cancel()
		if err == nil {
			return ack, true
		}
		linger(ctx, errorPause)
	}
	return nil, false
}

// linger is a part of the work: a handler that takes its time.
func linger(ctx context.Context, d time.Duration) {
	t := clock.RealClock{}.NewTimer(d) // servers have no other
	defer t.Stop()
	select {
	case <-t.C():
	case <-ctx.Done():
	}
}
