package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// maxTopics bounds the memory of known topics. Beyond it everything is asked for again, which is slow but right.
const maxTopics = 10_000

// topics makes the consumers that workers bind to, one per topic, and remembers which exist.
type topics struct {
	bus     *Bus
	recheck time.Duration // the server drops unused consumers, so knowledge ages

	creating sync.Mutex // held while counting and making a consumer

	mu    sync.Mutex
	known map[string]*topic
}

type topic struct {
	mu        sync.Mutex // held while asking the server: callers of one topic wait for one request
	checkedAt time.Time
}

func newTopics(b *Bus) *topics {
	return &topics{bus: b, recheck: topicRecheck, known: map[string]*topic{}}
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

// ensure makes sure that the topic's consumer exists. A worker can then bind to it before the first job is there.
func (t *topics) ensure(ctx context.Context, name string) error {
	k := t.get(name)
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := t.bus.clock.Now(); !k.checkedAt.IsZero() && now.Sub(k.checkedAt) < t.recheck {
		return nil
	}
	if err := t.bus.ensureJobConsumer(ctx, name); err != nil {
		return err
	}
	k.checkedAt = t.bus.clock.Now()
	return nil
}

func (b *Bus) ensureJobConsumer(ctx context.Context, topic string) error {
	err := b.topicConsumer(ctx, topic)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err = b.repairStreams(ctx); err == nil {
			err = b.topicConsumer(ctx, topic)
		}
	}
	if err != nil {
		return b.retryable("create consumer of topic "+topic, err)
	}
	return nil
}

// topicConsumer makes the consumer of a topic if there is none, and not too many: each costs the server memory, files, and in a cluster
// a Raft group, and whoever may write a step may name a topic.
func (b *Bus) topicConsumer(ctx context.Context, topic string) error {
	want := b.jobConsumerConfig(topic)
	known, err := b.consumerExists(ctx, want.Durable)
	if err != nil {
		return err
	}
	if !known { // one at a time, or all that count at the same moment find room
		b.topics.creating.Lock()
		defer b.topics.creating.Unlock()
		if err := b.roomForTopic(ctx); err != nil {
			return err
		}
	}
	_, err = b.ensureConsumer(ctx, b.names.JobsStream(), want)
	return err
}

func (b *Bus) consumerExists(ctx context.Context, durable string) (bool, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	_, err := b.js.Consumer(ctx, b.names.JobsStream(), durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return false, nil
	}
	return err == nil, err
}

// roomForTopic is ErrTooManyTopics if another consumer would be one too many.
func (b *Bus) roomForTopic(ctx context.Context) error {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, b.names.JobsStream())
	if err != nil {
		return err
	}
	if n := s.CachedInfo().State.Consumers; n >= b.config.MaxTopics {
		b.metrics.topicsRefused.Inc()
		return fmt.Errorf("%w: %d, at most %d", ErrTooManyTopics, n, b.config.MaxTopics)
	}
	return nil
}

// ensureConsumer creates a consumer or takes the existing one. One with other settings is logged and used as it is.
func (b *Bus) ensureConsumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	c, refused := b.js.CreateConsumer(ctx, stream, want)
	if refused == nil {
		return c, nil
	}
	// It exists, with other settings; or an account may have no new one with these, and the old one works.
	c, err := b.js.Consumer(ctx, stream, want.Durable)
	if err != nil {
		if errors.Is(refused, jetstream.ErrConsumerExists) {
			return nil, err
		}
		return nil, refused
	}
	c = b.raiseBound(ctx, stream, want, c)
	for _, d := range consumerDrift(want, c.CachedInfo().Config) {
		b.log.Info("Consumer differs from the configuration", "consumer", d.Object, "field", d.Field, "want", d.Want, "got", d.Got)
	}
	return c, nil
}

// raiseBound lets a consumer of results have as much unsettled as Config says, if it may have less. Earlier versions made it with a
// bound that lets one run hold up the others of its group, and that nobody was told to change. More is left as it is, and so is
// everything else. Where the server refuses, as beyond the limits of an account, it works as it is, which the caller reports as drift.
func (b *Bus) raiseBound(ctx context.Context, stream string, want jetstream.ConsumerConfig, c jetstream.Consumer) jetstream.Consumer {
	raised := c.CachedInfo().Config
	if stream != b.names.ResultsStream() || raised.MaxAckPending < 0 || raised.MaxAckPending >= want.MaxAckPending {
		return c
	}
	was := raised.MaxAckPending
	raised.MaxAckPending = want.MaxAckPending
	updated, err := b.js.UpdateConsumer(ctx, stream, raised)
	if err != nil {
		b.log.Error(err, "Consumer keeps its bound: delayed results of one run can hold up those of others", "consumer", raised.Durable, "bound", was)
		return c
	}
	b.log.Info("Consumer has the bound of this version", "consumer", raised.Durable, "was", was, "is", want.MaxAckPending)
	return updated
}

func (b *Bus) jobConsumerConfig(topic string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:           protocol.Durable(topic),
		FilterSubject:     b.names.TopicJobs(topic),
		DeliverPolicy:     jetstream.DeliverAllPolicy,
		AckPolicy:         jetstream.AckExplicitPolicy,
		AckWait:           jobAckWait,
		MaxDeliver:        -1, // attempts are counted by the operator; a cap here would strand the job in the queue
		MaxAckPending:     b.config.MaxAckPending,
		InactiveThreshold: b.config.TopicInactivity,
	}
}

func consumerDrift(want, got jetstream.ConsumerConfig) []Drift {
	return drift(want.Durable, []setting{
		{"filter_subject", want.FilterSubject, got.FilterSubject},
		{"filter_subjects", want.FilterSubjects, got.FilterSubjects},
		{"deliver_policy", want.DeliverPolicy, got.DeliverPolicy},
		{"ack_policy", want.AckPolicy, got.AckPolicy},
		{"ack_wait", want.AckWait, got.AckWait},
		{"max_deliver", want.MaxDeliver, got.MaxDeliver},
		{"max_ack_pending", want.MaxAckPending, got.MaxAckPending},
		{"backoff", want.BackOff, got.BackOff},
		{"inactive_threshold", want.InactiveThreshold, got.InactiveThreshold},
	})
}
