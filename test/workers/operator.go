// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// scratchTopic is where the bus is asked for a job and a consumer, to see what they look like.
	scratchTopic = "conformance-scratch"
	// jobWindow is the least window of Msg-Ids that the server allows: after it a job can be stored
	// a second time.
	jobWindow = 100 * time.Millisecond
	look      = 20 * time.Millisecond // between two looks at what does not tell of itself
	// ownTimeout of what the kit asks the server. It says nothing about the worker, so there is
	// much of it.
	ownTimeout = 30 * time.Second
)

// operator is the operator's side of the protocol.
type operator struct {
	config Config
	names  protocol.Names
	keys   keys.Keyring
	bus    *bus.Conn
	jobs   *jobs.Queue
	nc     *nats.Conn
	js     jetstream.JetStream

	sample   *jetstream.RawStreamMsg  // a job as the bus writes it
	sampleID protocol.JobID           // of that job
	consumer jetstream.ConsumerConfig // of the topic, as the bus makes it but for AckWait
	tokens   []string                 // all that were handed out
}

// job is a job that the kit dispatched.
type job struct {
	id  protocol.JobID
	seq uint64 // in JOBS
}

func connect(ctx context.Context, c Config) (*operator, error) {
	o := &operator{config: c, names: protocol.Names{Prefix: c.Prefix}}
	o.keys.Current = keys.Key{ID: "kit", Secret: []byte(rand.Text())}
	signing, err := keys.New(o.keys, nil, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	if o.bus, err = bus.Connect(ctx, bus.Config{URL: c.URL, Names: o.names, Log: c.Log}); err != nil {
		return nil, err
	}
	o.jobs = jobs.New(o.bus, signing, results.NewReader(o.bus, signing), jobs.Options{})
	o.nc, err = nats.Connect(c.URL, nats.Name("worker-conformance"), nats.Timeout(ownTimeout), nats.MaxReconnects(-1), nats.ReconnectWait(look))
	if err != nil {
		o.bus.Close(ctx)
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	if o.js, err = jetstream.New(o.nc, jetstream.WithDefaultTimeout(ownTimeout)); err != nil {
		return nil, fmt.Errorf("JetStream context: %w", err)
	}
	return o, o.await(ctx, "the operator is connected", func() (bool, error) { return o.bus.Connected(), nil })
}

func (o *operator) close(ctx context.Context) {
	o.bus.Close(ctx)
	o.nc.Close()
}

// prepare makes the streams and the topic's consumer.
func (o *operator) prepare(ctx context.Context) error {
	if err := o.clear(ctx, o.config.Reset); err != nil {
		return err
	}
	if err := o.await(ctx, "the streams are made", func() (bool, error) {
		err := o.bus.EnsureStreams(ctx)
		return err == nil, err
	}); err != nil {
		return err
	}
	// Before the first message: a server that has begun to count down the old window may go
	// on with it.
	jobs, err := o.js.Stream(ctx, o.names.JobsStream())
	if err != nil {
		return fmt.Errorf("stream of jobs: %w", err)
	}
	config := jobs.CachedInfo().Config
	config.Duplicates = jobWindow
	if _, err := o.js.UpdateStream(ctx, config); err != nil {
		return fmt.Errorf("update stream of jobs: %w", err)
	}
	if err := o.copyFromBus(ctx); err != nil {
		return err
	}
	return o.makeConsumer(ctx)
}

// clear deletes all streams of the prefix, or says that there are some.
func (o *operator) clear(ctx context.Context, allowed bool) error {
	for _, name := range []string{
		o.names.JobsStream(), o.names.ResultsStream(), o.names.DeadLettersStream(), o.names.ControlStream(), o.names.PayloadsStream(),
	} {
		_, err := o.js.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			continue
		case err == nil && !allowed:
			return fmt.Errorf("%w: %s", ErrStreamsExist, name)
		case err == nil:
			err = o.js.DeleteStream(ctx, name)
		}
		if err != nil {
			return fmt.Errorf("delete stream %s: %w", name, err)
		}
	}
	return nil
}

// copyFromBus lets the bus dispatch a job of a topic of its own, and takes from it what a job and a
// consumer look like.
func (o *operator) copyFromBus(ctx context.Context) error {
	o.sampleID = newJob("sample")
	if err := o.jobs.Publish(ctx, jobs.Job{ID: o.sampleID, Topic: scratchTopic, Fence: 17, Source: "/namespaces/kit/workflowruns/conformance"}); err != nil {
		return err
	}
	jobs, err := o.js.Stream(ctx, o.names.JobsStream())
	if err != nil {
		return fmt.Errorf("stream of jobs: %w", err)
	}
	if o.sample, err = jobs.GetLastMsgForSubject(ctx, o.names.Job(scratchTopic, o.sampleID)); err != nil {
		return fmt.Errorf("read sample job: %w", err)
	}
	if err := o.jobs.Withdraw(ctx, scratchTopic, o.sampleID); err != nil {
		return err
	}
	c, err := jobs.Consumer(ctx, protocol.Durable(scratchTopic))
	if err != nil {
		return fmt.Errorf("read sample consumer: %w", err)
	}
	o.consumer = c.CachedInfo().Config
	o.consumer.Name, o.consumer.Durable = protocol.Durable(o.config.Topic), protocol.Durable(o.config.Topic)
	o.consumer.FilterSubject, o.consumer.AckWait = o.names.TopicJobs(o.config.Topic), o.config.AckWait
	if err := jobs.DeleteConsumer(ctx, protocol.Durable(scratchTopic)); err != nil {
		return fmt.Errorf("delete sample consumer: %w", err)
	}
	return nil
}

func (o *operator) makeConsumer(ctx context.Context) error {
	if _, err := o.js.CreateConsumer(ctx, o.names.JobsStream(), o.consumer); err != nil {
		return fmt.Errorf("create consumer: %w", err)
	}
	return nil
}

func newJob(step string) protocol.JobID {
	return protocol.JobID{RunUID: uuid.NewString(), Step: step, Item: protocol.NoItem, Attempt: 1}
}

// input of the test topic, see docs/workers.md.
type input struct {
	Do      string          `json:"do"`
	Millis  int64           `json:"millis,omitempty"`
	Bytes   int             `json:"bytes,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"`
	Code    string          `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
}

func (in input) bytes() []byte {
	b, err := json.Marshal(in)
	if err != nil {
		return []byte(err.Error()) // no JSON: the check that uses it fails
	}
	return b
}

func sleep(d time.Duration) input { return input{Do: "sleep", Millis: d.Milliseconds()} }

// dispatch publishes a job as the operator does.
func (o *operator) dispatch(ctx context.Context, id protocol.JobID, in input) (job, error) {
	o.tokens = append(o.tokens, o.keys.Sign(id))
	if err := o.jobs.Publish(ctx, jobs.Job{ID: id, Topic: o.config.Topic, Input: in.bytes(), Fence: 17, Source: "/namespaces/kit/workflowruns/conformance"}); err != nil {
		return job{}, err
	}
	jobs, err := o.js.Stream(ctx, o.names.JobsStream())
	if err != nil {
		return job{}, fmt.Errorf("stream of jobs: %w", err)
	}
	return job{id: id, seq: jobs.CachedInfo().State.LastSeq}, nil // nobody else writes to this stream
}

// forge publishes what the bus never would: a job as the bus writes it, but for what edit
// does to it.
func (o *operator) forge(ctx context.Context, id protocol.JobID, body []byte, edit func(*nats.Msg)) (job, error) {
	token := o.keys.Sign(id)
	o.tokens = append(o.tokens, token)
	m := nats.NewMsg(o.names.Job(o.config.Topic, id))
	m.Data = body
	for name, values := range o.sample.Header {
		if strings.HasPrefix(name, "Nats-") && name != protocol.HeaderMsgID {
			continue // conditions of its publication
		}
		for _, v := range values {
			m.Header.Add(name, strings.ReplaceAll(v, o.sampleID.String(), id.String()))
		}
	}
	m.Header.Set(protocol.HeaderReply, o.names.Result(id))
	m.Header.Set(protocol.HeaderToken, token)
	edit(m)
	j := job{id: id}
	return j, o.await(ctx, "the job is stored", func() (bool, error) {
		ack, err := o.js.PublishMsg(ctx, m)
		if err != nil || ack.Duplicate {
			return false, err
		}
		j.seq = ack.Sequence
		return true, nil
	})
}

// withdraw empties the queue.
func (o *operator) withdraw(ctx context.Context) error {
	jobs, err := o.js.Stream(ctx, o.names.JobsStream())
	if err != nil {
		return fmt.Errorf("stream of jobs: %w", err)
	}
	if err := jobs.Purge(ctx); err != nil {
		return fmt.Errorf("purge jobs: %w", err)
	}
	return nil
}

// stored reads the results in the stream that are answers to a job: not Started.
func (o *operator) stored(ctx context.Context, id protocol.JobID) ([]protocol.Result, error) {
	s, err := o.js.Stream(ctx, o.names.ResultsStream())
	if err != nil {
		return nil, fmt.Errorf("stream of results: %w", err)
	}
	// In whatever partition: that it is the right one is a check of its own.
	subject := o.names.Prefix + ".results.*." + strings.ReplaceAll(id.String(), "/", ".")
	var all []protocol.Result
	for next := uint64(1); ; {
		m, err := s.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read results: %w", err)
		}
		next = m.Sequence + 1
		if r, err := protocol.DecodeResult(m.Data); err != nil || r.Status != protocol.StatusStarted {
			all = append(all, r)
		}
	}
}

// info is the state of the topic's consumer.
func (o *operator) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	c, err := o.js.Consumer(ctx, o.names.JobsStream(), o.consumer.Durable)
	if err != nil {
		return nil, fmt.Errorf("state of the consumer: %w", err)
	}
	return c.CachedInfo(), nil
}

// errNever is returned when patience ends.
var errNever = errors.New("never")

// await looks until done or an error. Errors of a server that is away are no errors here.
func (o *operator) await(ctx context.Context, what string, done func() (bool, error)) error {
	return o.awaitFor(ctx, o.config.Patience, what, done)
}

func (o *operator) awaitFor(ctx context.Context, patience time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w within %s: %s", errNever, patience, what))
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok {
			return nil
		}
		if failure := (*Failure)(nil); errors.As(err, &failure) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
