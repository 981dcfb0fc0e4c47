package bus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Bus is one connection to NATS and what Syncopate does with it. All its methods may be called concurrently.
type Bus struct {
	config  Config
	names   protocol.Names
	clock   clock.WithTicker
	log     logr.Logger
	metrics *Metrics

	nc     *nats.Conn
	js     jetstream.JetStream
	owner  owner
	topics *topics
	losses *losses
	pulse  *pulse
	keys   *liveKeys
	groups atomic.Pointer[[]*group] // of Consume; nil: it was not called yet
	closed chan struct{}            // closed when the connection is
}

// Connect makes a Bus. It does not need NATS to be there: the connection is made, and made again, in the background for as
// long as it takes. The only errors are a done ctx and an unusable configuration (ErrConfig, or unreadable files).
func Connect(ctx context.Context, c Config) (*Bus, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Bus{config: c, names: c.Names, clock: c.Clock, log: c.Log, metrics: c.Metrics, closed: make(chan struct{})}
	b.keys = newLiveKeys(c)
	b.topics, b.losses, b.pulse = newTopics(b), newLosses(b), newPulse()
	if b.nc, err = nats.Connect(c.URL, append(c.connectOptions(), b.observers()...)...); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	if b.js, err = jetstream.New(b.nc); err != nil {
		b.nc.Close()
		return nil, fmt.Errorf("JetStream context: %w", err)
	}
	return b, nil
}

func (b *Bus) observers() []nats.Option {
	return []nats.Option{
		nats.ConnectHandler(func(nc *nats.Conn) { b.log.Info("Connected to NATS", "server", nc.ConnectedServerName()) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil: by our own Close
				b.log.Info("Lost the connection to NATS", "cause", err.Error())
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			b.topics.forget() // the server may have come back without its data
			b.losses.look()
			b.log.Info("Reconnected to NATS", "server", nc.ConnectedServerName())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { b.log.Error(err, "NATS error") }),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
	}
}

// Ready tells whether the bus can work: connected, and the streams of jobs and results are there, and not another installation's.
func (b *Bus) Ready(ctx context.Context) error {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	if !b.reachable() {
		return b.retryable("bus not ready", ErrUnreachable)
	}
	for _, name := range []string{b.names.JobsStream(), b.names.ResultsStream()} {
		s, err := b.js.Stream(ctx, name)
		if err == nil {
			err = b.check(s.CachedInfo().Config)
		}
		if err != nil {
			return b.retryable("stream "+name, err)
		}
	}
	return nil
}

// Close sends what is buffered and closes the connection. Calls under way fail. Wait for Consume to return before.
func (b *Bus) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if b.connected() {
		if err := b.nc.FlushWithContext(ctx); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			b.log.Error(err, "Flush before close")
		}
	}
	b.nc.Close()
	select {
	case <-b.closed:
	case <-ctx.Done():
	}
}

// Connected says whether there is a connection to NATS on which it answers, and nobody else's streams, as far as is known: it is not asked.
func (b *Bus) Connected() bool {
	return b.owner.get().foreign == nil && b.reachable()
}

// reachable does not ask the connection during an outage: what hangs on a full socket may hold its lock.
func (b *Bus) reachable() bool { return !b.pulse.known() && b.connected() }

func (b *Bus) connected() bool { return b.nc.Status() == nats.CONNECTED }

// bounded limits one call to NATS: requests to a server that went away get no answer at all. It ends when an outage is noticed.
func (b *Bus) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	leave := b.pulse.join(cancel)
	return ctx, func() {
		leave()
		cancel()
	}
}

// jittered is uniform in d +- 20 %, so that what failed together does not come back together.
func (b *Bus) jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*b.config.Rand()))
}

// wait returns false if ctx ended before d was over.
func (b *Bus) wait(ctx context.Context, d time.Duration) bool {
	t := b.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-ctx.Done():
		return false
	}
}
