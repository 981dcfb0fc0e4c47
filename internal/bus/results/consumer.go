// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	defaultNakDelay = 2 * time.Second        // before jitter
	retryDelay      = time.Second            // before jitter
	rebuildDelay    = 250 * time.Millisecond // before jitter
	rebuildsPerLine = 30                     // one in so many is logged
	lookAfter       = time.Second            // before jitter
	stallAfter      = 10 * time.Second
	stallCheck      = 3 * time.Second // no multiple of pullExpiry, or check after check could meet the moment between two pulls
	drainTimeout    = 2 * time.Second

	pullExpiry    = 5 * time.Second
	pullHeartbeat = time.Second
	pullBatch     = 256
	// pullBytes bounds one pull: what it brings may wait in the client's buffer. A larger message
	// would never come.
	pullBytes = 128 << 10
	// pullSlack is what the server counts of a message beside its body and headers: subjects.
	pullSlack = 8 << 10

	workQueue = 16 // results of a partition that wait for the handler

	// maxWhole is how many messages are held whole at a time, headers and all, to be put aside or
	// read once more.
	maxWhole = 8
	// maxPoison is how many of these may be messages that nobody knows to be of the job that they
	// name: whoever sends them could have all places, for as long as dead letters are slow.
	maxPoison = maxWhole - 2
)

// Options of a Consumer. Zero values mean the defaults given.
type Options struct {
	AckWait    time.Duration // default 10 s
	AckPending int           // unsettled results that NATS keeps account of, each partition an equal part; default 8,000,000
	Metrics    *Metrics      // default: unregistered ones
}

func (o Options) withDefaults() Options {
	if o.AckWait == 0 {
		o.AckWait = 10 * time.Second
	}
	if o.AckPending == 0 {
		o.AckPending = 8_000_000
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	return o
}

// partitionShare is how many unsettled results one partition may have. What was given back with a
// delay is among them, so this is no bound of what the operator holds: it is as large as the
// server's bookkeeping may get, some 100 bytes for each.
func (o Options) partitionShare() int { return max(1, o.AckPending/protocol.Partitions) }

// Consumer takes results from their stream. Its methods may be called concurrently.
type Consumer struct {
	conn      *bus.Conn
	keys      *keys.Live
	dead      *deadletters.Writer
	options   Options
	following following
	returns   *returns
	sizes     singleflight.Group // of requests for largestResult
	size      atomic.Pointer[sizeThen]
	whole     chan struct{} // has a place for each message that is held whole
	poison    chan struct{} // has a place for each of them that is not proved to be of its job
}

// NewConsumer makes a Consumer on a connection. It follows no partition yet.
func NewConsumer(conn *bus.Conn, keys *keys.Live, dead *deadletters.Writer, o Options) *Consumer {
	return &Consumer{
		conn: conn, keys: keys, dead: dead, options: o.withDefaults(), following: following{wanted: map[int]bool{}, clock: conn.Clock, anew: map[int]time.Time{}, feeds: map[int]*running{}},
		returns: newReturns(), whole: make(chan struct{}, maxWhole), poison: make(chan struct{}, maxPoison),
	}
}

// ensure makes the consumer of a partition on the server, or takes the existing one.
func (c *Consumer) ensure(ctx context.Context, partition int) (bus.Ensured, error) {
	want := c.config(partition)
	got, err := c.conn.EnsureConsumer(ctx, c.conn.Names.ResultsStream(), want)
	if overlaps(err) {
		if err = c.replaceGroups(ctx); err == nil {
			got, err = c.conn.EnsureConsumer(ctx, c.conn.Names.ResultsStream(), want)
		}
	}
	if err != nil {
		return bus.Ensured{}, err
	}
	if got.Differs {
		got.Consumer = c.raiseBound(ctx, want, got.Consumer)
	}
	if got.Differs && ctx.Err() == nil { // else the partition was left, and the next owner says it
		c.conn.ReportDrift(want, got.CachedInfo().Config)
	}
	return got, nil
}

func (c *Consumer) config(partition int) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       ConsumerName(c.conn.Names, partition),
		FilterSubject: c.conn.Names.PartitionResults(partition),
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       c.options.AckWait,
		MaxDeliver:    -1, // the cap is the operator's: contention must never make a healthy result a dead letter
		MaxAckPending: c.options.partitionShare(),
		// No BackOff: the server adds it to the delay of a NAK.
	}
}

// codeOverlap is the server's error for a consumer that is not unique: another consumer of the work
// queue has a subject of the one that is to be made.
const codeOverlap jetstream.ErrorCode = 10100

func overlaps(err error) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && refused.ErrorCode == codeOverlap
}

// forget deletes the consumer of a partition, so that nothing is with anybody.
func (c *Consumer) forget(ctx context.Context, partition int) error {
	ctx, cancel := c.conn.Bounded(ctx)
	defer cancel()
	name := c.config(partition).Durable
	if err := c.conn.JetStream.DeleteConsumer(ctx, c.conn.Names.ResultsStream(), name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("delete consumer %s of a process that is gone: %w", name, err)
	}
	return nil
}

// oldGroups is how many consumers of eight partitions each earlier versions had.
const oldGroups = 8

// replaceGroups deletes the consumers of earlier versions: a work queue has one consumer for each
// subject. What they had delivered and was not settled is delivered again at once.
func (c *Consumer) replaceGroups(ctx context.Context) error {
	ctx, cancel := c.conn.Bounded(ctx)
	defer cancel()
	for n := range oldGroups {
		name := fmt.Sprintf("%s-results-%d", c.conn.Names.Prefix, n)
		err := c.conn.JetStream.DeleteConsumer(ctx, c.conn.Names.ResultsStream(), name)
		switch {
		case err == nil:
			c.conn.Log.Info("Consumer of an earlier version is replaced by one for each partition", "consumer", name)
		case !errors.Is(err, jetstream.ErrConsumerNotFound):
			return fmt.Errorf("delete consumer %s of an earlier version: %w", name, err)
		}
	}
	return nil
}

// raiseBound lets a consumer of results have as much unsettled as Config says, if it may have
// less. Earlier versions made it with a bound that lets one run hold up the others of its
// partition, and that no one was told to change. Where the server refuses, as beyond the limits of
// an account, it works as it is, which the caller reports as drift.
func (c *Consumer) raiseBound(ctx context.Context, want jetstream.ConsumerConfig, got jetstream.Consumer) jetstream.Consumer {
	return bus.RaiseBound(ctx, c.conn, c.conn.Names.ResultsStream(), want, got, "delayed results of one run can hold up those of others")
}

// sizeThen is what largestResult found at a time.
type sizeThen struct {
	bytes int
	at    time.Time
}

// largestResult is how many bytes a message of the stream of results may have: an administrator may
// have changed the stream. Feeds that ask within a few seconds, as all do at the start, ask once.
func (c *Consumer) largestResult(ctx context.Context) (int, error) {
	if s := c.size.Load(); s != nil && c.conn.Clock.Since(s.at) < stallCheck {
		return s.bytes, nil
	}
	asked := c.sizes.DoChan("", func() (any, error) {
		ctx, cancel := c.conn.Bounded(context.WithoutCancel(ctx)) // others wait for it, too
		defer cancel()
		s, err := c.conn.JetStream.Stream(ctx, c.conn.Names.ResultsStream())
		if err != nil {
			return 0, fmt.Errorf("look at the stream of results: %w", err)
		}
		return int(s.CachedInfo().Config.MaxMsgSize), nil
	})
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case answer := <-asked:
		size, _ := answer.Val.(int)
		if answer.Err != nil {
			return 0, answer.Err
		}
		if size <= 0 {
			size = int(c.conn.NATS.MaxPayload())
		}
		c.size.Store(&sizeThen{size, c.conn.Clock.Now()})
		return size, nil
	}
}

// ConsumerName is the name of the consumer of a partition's results.
func ConsumerName(names protocol.Names, partition int) string {
	return fmt.Sprintf("%s-results-p%02d", names.Prefix, partition)
}
