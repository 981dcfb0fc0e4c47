// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// topicPulls is how many pulls of a topic may wait at the server. It takes none beyond, and a
// worker has several. The server's own default is 512. It cannot be changed of a consumer
// that is there.
const topicPulls = 16_384

// maxTopics bounds the memory of known topics. Beyond it everything is asked for again, which is
// slow but right.
const maxTopics = 10_000

// refusalHolds is for how long a topic that was refused is not asked for again: a run may have
// thousands of jobs of it.
const refusalHolds = 5 * time.Second

// defaultBound is how many jobs of a topic may be with workers, unless configured otherwise.
const defaultBound = 10_000

// boundKey is where the metadata of a topic's consumer names the bound that an operator gave it.
const boundKey = "syncopate.dev/max-ack-pending"

// topics makes the consumers that workers bind to, one per topic, and remembers which exist.
type topics struct {
	conn    *bus.Conn
	options Options
	recheck time.Duration // the server drops unused consumers, so knowledge ages

	creating sync.Mutex // held while counting and making a consumer
	kept     sync.Map   // by consumer that may not get the bound of now: the generation of the connection that asked

	mu    sync.Mutex
	known map[string]*topic
}

type topic struct {
	mu         sync.Mutex // held while asking the server: callers of one topic wait for one request
	checkedAt  time.Time
	generation uint64 // of the connection, when it was checked
	refused    error  // why there was no room for it, when it was last asked for
	refusedAt  time.Time
	lookedAt   time.Time // when a look for jobs last found no room for it
}

func newTopics(conn *bus.Conn, o Options) *topics {
	return &topics{conn: conn, options: o, recheck: topicRecheck, known: map[string]*topic{}}
}

// forget makes all topics unknown, so that the next publish asks the server.
func (t *topics) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.known)
}

func (t *topics) get(name string) *topic {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.known[name]; k != nil {
		return k
	}
	if len(t.known) >= maxTopics {
		clear(t.known)
	}
	k := &topic{}
	t.known[name] = k
	return k
}

// isKnown says whether the consumer was there a short time ago, on the connection of now.
func (k *topic) isKnown(t *topics, generation uint64) bool {
	return k.generation == generation && !k.checkedAt.IsZero() && t.conn.Clock.Since(k.checkedAt) < t.recheck
}

// ensure makes sure that the topic's consumer exists. A worker can then bind to it before the first
// job is there.
func (t *topics) ensure(ctx context.Context, name string) error {
	k := t.get(name)
	k.mu.Lock()
	defer k.mu.Unlock()
	generation := t.conn.Generation()
	if k.isKnown(t, generation) {
		return nil
	}
	if k.refused != nil && t.conn.Clock.Since(k.refusedAt) < refusalHolds {
		return k.refused
	}
	k.refused = nil
	if err := t.create(ctx, name); err != nil {
		if errors.Is(err, ErrTooManyTopics) {
			k.refused, k.refusedAt = err, t.conn.Clock.Now()
		}
		return err
	}
	k.checkedAt, k.generation = t.conn.Clock.Now(), generation
	return nil
}

// ensureIfRoom is ensure of a look for jobs: where there is no room for the consumer it only logs
// that, as what is queued and what is gone is known without one. Each run looks for itself, so it
// does not ask again for a while.
func (t *topics) ensureIfRoom(ctx context.Context, name string) error {
	k := t.get(name)
	k.mu.Lock()
	refused := !k.lookedAt.IsZero() && t.conn.Clock.Since(k.lookedAt) < t.recheck
	k.mu.Unlock()
	if refused {
		return nil
	}
	err := t.ensure(ctx, name)
	if !errors.Is(err, ErrTooManyTopics) {
		return err
	}
	k.mu.Lock()
	k.lookedAt = t.conn.Clock.Now()
	k.mu.Unlock()
	t.conn.Log.Info("Workers get no jobs of a topic until there is room for its consumer", "topic", name, "cause", err.Error())
	return nil
}

func (t *topics) create(ctx context.Context, topic string) error {
	err := t.consumer(ctx, topic)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err = t.conn.RepairStreams(ctx); err == nil {
			err = t.consumer(ctx, topic)
		}
	}
	if err == nil {
		return nil
	}
	err = t.conn.Retryable("create consumer of topic "+topic, err)
	if retry, ok := errors.AsType[*bus.RetryError](err); ok && errors.Is(err, ErrTooManyTopics) {
		retry.Delay = t.conn.Jittered(refusalHolds)
	}
	return err
}

// consumer makes the consumer of a topic if there is none, and not too many: each costs the server
// memory, files, and in a cluster a Raft group, and whoever may write a step may name a topic.
func (t *topics) consumer(ctx context.Context, topic string) error {
	want := t.config(topic)
	known, err := t.exists(ctx, want.Durable)
	if err != nil {
		return err
	}
	if !known { // one at a time, or all that count at the same moment find room
		t.creating.Lock()
		defer t.creating.Unlock()
		if err := t.keepFences(ctx); err != nil {
			return err
		}
		if err := t.room(ctx); err != nil {
			return err
		}
	}
	got, err := t.conn.EnsureConsumer(ctx, t.conn.Names.JobsStream(), want)
	if errors.Is(err, jetstream.ErrMaximumConsumersLimit) { // of the stream, the account or the server
		t.options.Metrics.topicsRefused.Inc()
		return fmt.Errorf("%w: %w", ErrTooManyTopics, err)
	}
	if got.Differs {
		t.conn.ReportDrift(want, t.raised(ctx, want, got.Consumer).CachedInfo().Config)
	}
	return err
}

// raised is a consumer that was made with a lower bound, with the bound of now. One that somebody
// else chose stays: what the workers of a topic need may break under more. What was refused is not
// asked for again on this connection: a refusal may take all the time of a call.
func (t *topics) raised(ctx context.Context, want jetstream.ConsumerConfig, got jetstream.Consumer) jetstream.Consumer {
	if !boundByOperator(got.CachedInfo().Config) {
		return got
	}
	generation := t.conn.Generation()
	if kept, ok := t.kept.Load(want.Durable); ok && kept == generation {
		return got
	}
	got = bus.RaiseBound(ctx, t.conn, t.conn.Names.JobsStream(), want, got, "jobs of its topic wait though workers are idle")
	if has := got.CachedInfo().Config.MaxAckPending; 0 <= has && has < want.MaxAckPending && ctx.Err() == nil {
		t.kept.Store(want.Durable, generation)
	}
	return got
}

// boundByOperator says whether a consumer has the bound that an operator gave it. Those of earlier
// versions do not tell: of them it is the default alone.
func boundByOperator(got jetstream.ConsumerConfig) bool {
	given, marked := got.Metadata[boundKey]
	if !marked {
		return got.MaxAckPending == defaultBound
	}
	return given == strconv.Itoa(got.MaxAckPending)
}

func (t *topics) exists(ctx context.Context, durable string) (bool, error) {
	ctx, cancel := t.conn.Bounded(ctx)
	defer cancel()
	_, err := t.conn.JetStream.Consumer(ctx, t.conn.Names.JobsStream(), durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return false, nil
	}
	return err == nil, err
}

// room is ErrTooManyTopics if another consumer would be one too many. That of fences is no topic's.
func (t *topics) room(ctx context.Context) error {
	ctx, cancel := t.conn.Bounded(ctx)
	defer cancel()
	s, err := t.conn.JetStream.Stream(ctx, t.conn.Names.JobsStream())
	if err != nil {
		return err
	}
	if n := s.CachedInfo().State.Consumers - 1; n >= t.options.MaxTopics {
		t.options.Metrics.topicsRefused.Inc()
		return fmt.Errorf("%w: %d, at most %d", ErrTooManyTopics, n, t.options.MaxTopics)
	}
	return nil
}

func (t *topics) config(topic string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:           protocol.Durable(topic),
		FilterSubject:     t.conn.Names.TopicJobs(topic),
		DeliverPolicy:     jetstream.DeliverAllPolicy,
		AckPolicy:         jetstream.AckExplicitPolicy,
		AckWait:           jobAckWait,
		MaxDeliver:        -1, // attempts are counted by the operator; a cap here would strand the job in the queue
		MaxAckPending:     t.options.MaxAckPending,
		MaxWaiting:        topicPulls,
		InactiveThreshold: t.options.TopicInactivity,
		Metadata:          map[string]string{boundKey: strconv.Itoa(t.options.MaxAckPending)},
	}
}
