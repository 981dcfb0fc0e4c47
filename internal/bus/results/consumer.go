package results

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	defaultNakDelay = 2 * time.Second        // before jitter
	retryDelay      = time.Second            // before jitter
	rebuildDelay    = 250 * time.Millisecond // before jitter
	stallAfter      = 10 * time.Second
	stallCheck      = 3 * time.Second // no multiple of pullExpiry, or check after check could meet the moment between two pulls
	drainTimeout    = 2 * time.Second

	pullExpiry    = 5 * time.Second
	pullHeartbeat = time.Second
	pullBatch     = 256
	// pullBytes bounds one pull: of each group, two pulls may wait in the client's buffer. A larger
	// message would never come.
	pullBytes = 1 << 20
	// pullSlack is what the server counts of a message beside its body and headers: subjects.
	pullSlack = 8 << 10

	workQueue = 64 // results of a group that wait for the handler

	groups             = 8
	partitionsPerGroup = protocol.Partitions / groups
)

// Options of a Consumer. Zero values mean the defaults given.
type Options struct {
	AckWait    time.Duration // default 10 s
	AckPending int           // unsettled results that NATS keeps account of, each group an eighth; default 8,000,000
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

// groupShare is how many unsettled results one group may have. What was given back with a delay is
// among them, so this is no bound of what the operator holds: it is as large as the server's
// bookkeeping may get, some 100 bytes for each.
func (o Options) groupShare() int { return max(1, o.AckPending/groups) }

// Consumer takes results from their stream. Its methods may be called concurrently.
type Consumer struct {
	conn    *bus.Conn
	keys    *keys.Live
	dead    *deadletters.Writer
	options Options
	groups  atomic.Pointer[[]*group] // of Consume; nil: it was not called yet
}

// NewConsumer makes a Consumer on a connection.
func NewConsumer(conn *bus.Conn, keys *keys.Live, dead *deadletters.Writer, o Options) *Consumer {
	return &Consumer{conn: conn, keys: keys, dead: dead, options: o.withDefaults()}
}

// ensure makes the consumer of a group on the server, or takes the existing one.
func (c *Consumer) ensure(ctx context.Context, number int) (jetstream.Consumer, error) {
	want := c.config(number)
	got, differs, err := c.conn.EnsureConsumer(ctx, c.conn.Names.ResultsStream(), want)
	if err != nil {
		return nil, err
	}
	if differs {
		got = c.raiseBound(ctx, want, got)
		c.conn.ReportDrift(want, got.CachedInfo().Config)
	}
	return got, nil
}

func (c *Consumer) config(number int) jetstream.ConsumerConfig {
	config := jetstream.ConsumerConfig{
		Durable:       fmt.Sprintf("%s-results-%d", c.conn.Names.Prefix, number),
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       c.options.AckWait,
		MaxDeliver:    -1, // the cap is the operator's: contention must never make a healthy result a dead letter
		MaxAckPending: c.options.groupShare(),
		// No BackOff: the server adds it to the delay of a NAK.
	}
	for p := number * partitionsPerGroup; p < (number+1)*partitionsPerGroup; p++ {
		config.FilterSubjects = append(config.FilterSubjects, c.conn.Names.PartitionResults(p))
	}
	return config
}

// raiseBound lets a consumer of results have as much unsettled as Config says, if it may have
// less. Earlier versions made it with a bound that lets one run hold up the others of its group,
// and that no one was told to change. More is left as it is, and so is everything else. Where
// the server refuses, as beyond the limits of an account, it works as it is, which the caller
// reports as drift.
func (c *Consumer) raiseBound(ctx context.Context, want jetstream.ConsumerConfig, got jetstream.Consumer) jetstream.Consumer {
	raised := got.CachedInfo().Config
	if raised.MaxAckPending < 0 || raised.MaxAckPending >= want.MaxAckPending {
		return got
	}
	was := raised.MaxAckPending
	raised.MaxAckPending = want.MaxAckPending
	updated, err := c.conn.JetStream.UpdateConsumer(ctx, c.conn.Names.ResultsStream(), raised)
	if err != nil {
		c.conn.Log.Error(err, "Consumer keeps its bound: delayed results of one run can hold up those of others", "consumer", raised.Durable, "bound", was)
		return got
	}
	c.conn.Log.Info("Consumer has the bound of this version", "consumer", raised.Durable, "was", was, "is", want.MaxAckPending)
	return updated
}

// largestResult is how many bytes a message of the stream of results may have: an administrator may
// have changed the stream.
func (c *Consumer) largestResult(ctx context.Context) (int, error) {
	ctx, cancel := c.conn.Bounded(ctx)
	defer cancel()
	s, err := c.conn.JetStream.Stream(ctx, c.conn.Names.ResultsStream())
	if err != nil {
		return 0, fmt.Errorf("look at the stream of results: %w", err)
	}
	if n := int(s.CachedInfo().Config.MaxMsgSize); n > 0 {
		return n, nil
	}
	return int(c.conn.NATS.MaxPayload()), nil
}
