// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/liveness"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Workers asks the server about the workers of a topic, at most for as long as ctx lasts. That
// there is no consumer, or no stream, is an answer. Errors: bus.ErrInvalidJob, *RetryError; the
// latter says nothing of the workers.
func (q *Queue) Workers(ctx context.Context, topic string) (liveness.Workers, error) {
	if err := checkTopic(topic); err != nil {
		return liveness.Workers{}, err
	}
	if err := q.conn.Usable(ctx); err != nil {
		return liveness.Workers{}, q.conn.Retryable("ask about workers of "+topic, err)
	}
	ctx, cancel := q.conn.Bounded(ctx)
	defer cancel()
	c, err := q.conn.JetStream.Consumer(ctx, q.conn.Names.JobsStream(), protocol.Durable(topic))
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return liveness.Workers{}, nil
	case err != nil:
		return liveness.Workers{}, q.conn.Retryable("ask about workers of "+topic, err)
	}
	return workersOf(c.CachedInfo()), nil
}

func workersOf(info *jetstream.ConsumerInfo) liveness.Workers {
	w := liveness.Workers{
		Exists:     true,
		Pulling:    info.NumWaiting,
		Queued:     int(min(info.NumPending, math.MaxInt32)),
		Busy:       info.NumAckPending,
		MaxBusy:    max(0, info.Config.MaxAckPending),
		Deliveries: info.Delivered.Consumer,
		LastSign:   instant(info.Delivered.Last),
		LastAck:    instant(info.AckFloor.Last),
		AckWait:    info.Config.AckWait,
		At:         info.TimeStamp,
	}
	if w.Deliveries > 0 { // before the first delivery the server's place may be that of other topics' jobs
		w.Reached = info.Delivered.Stream
	}
	return w
}

func instant(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
