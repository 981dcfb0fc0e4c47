// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/bus/losses"
	"github.com/syncopate-dev/syncopate/internal/natsdial"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Conn is one connection to NATS and the streams on it. All its methods may be called concurrently.
// The exported fields are for the packages that use the streams; they do not change.
type Conn struct {
	Names     protocol.Names
	Clock     clock.WithTicker
	Log       logr.Logger
	NATS      *nats.Conn
	JetStream jetstream.JetStream

	config      Config
	pulse       *pulse
	owner       owner
	raises      raises
	losses      *losses.Watch   // of the streams that are watched
	looking     sync.Mutex      // held while asking about a stream: answers are judged in the order in which they were given
	otherLosses *losses.Watch   // of the others; asked by WatchStreams alone
	unseen      map[string]bool // of the others: those that could not be looked at; of WatchStreams alone
	removals    removals
	recheck     chan struct{} // asks for a look at the streams now
	generation  atomic.Uint64
	jobs        atomic.Pointer[StreamBytes] // of the stream of jobs, as last seen; nil: it was not
	open        atomic.Bool                 // as the handlers of the library tell, see connected
	opened      chan struct{}               // closed when there is a connection for the first time
	closed      chan struct{}               // closed when the connection is for good
}

// Connect makes a Conn. It does not need NATS to be there: the connection is made, and made again,
// in the background for as long as it takes. The only errors are a done ctx and an unusable
// configuration (ErrConfig, or unreadable files).
func Connect(ctx context.Context, config Config) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return connect(newConn(config))
}

// connect connects a Conn. Tests have options of their own.
func connect(c *Conn, tests ...nats.Option) (*Conn, error) {
	var err error
	options := append(slices.Concat(c.config.connectOptions(), c.observers(), tests), natsdial.EndOnFailedWrite)
	if c.NATS, err = nats.Connect(c.config.URL, options...); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	if c.NATS.IsConnected() {
		<-c.opened // its handler runs beside this
	}
	if c.JetStream, err = jetstream.New(c.NATS); err != nil {
		c.NATS.Close()
		return nil, fmt.Errorf("JetStream context: %w", err)
	}
	return c, nil
}

func newConn(config Config) *Conn {
	c := &Conn{
		Names: config.Names, Clock: config.Clock, Log: config.Log,
		config: config, pulse: newPulse(), unseen: map[string]bool{}, recheck: make(chan struct{}, 1),
		opened: make(chan struct{}), closed: make(chan struct{}),
	}
	c.losses = losses.New(c.lost, c.watched()...)
	c.otherLosses = losses.New(c.lostOther, others(c.Names)...)
	return c
}

func (c *Conn) observers() []nats.Option {
	return []nats.Option{
		nats.ConnectHandler(func(nc *nats.Conn) { // the first time
			c.removals.on(nc.ConnectedServerId())
			c.open.Store(true)
			close(c.opened)
			c.Log.Info("Connected to NATS", "server", nc.ConnectedServerName())
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			c.open.Store(false)
			if err != nil { // nil: by our own Close
				c.Log.Info("Lost the connection to NATS", "cause", err.Error())
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			c.open.Store(true)
			c.removals.on(nc.ConnectedServerId())
			c.generation.Add(1) // the server may have come back without its data
			c.look()
			c.Log.Info("Reconnected to NATS", "server", nc.ConnectedServerName())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.Log.Error(err, "NATS error") }),
		nats.ClosedHandler(func(*nats.Conn) {
			c.open.Store(false)
			close(c.closed)
		}),
	}
}

// Close sends what is buffered and closes the connection. Calls under way fail. Wait for consumers
// to end before.
func (c *Conn) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := c.Flush(ctx); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, ErrUnreachable) {
		c.Log.Error(err, "Flush before close")
	}
	c.NATS.Close()
	select {
	case <-c.closed:
	case <-ctx.Done():
	}
}

// Flush waits until what was sent is with the server, for 2 s at most. During an outage that is
// ErrUnreachable at once, and so it is without a connection: what was sent just before may be lost.
func (c *Conn) Flush(ctx context.Context) error {
	if !c.Reachable() {
		return ErrUnreachable
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return c.NATS.FlushWithContext(ctx)
}

// Connected says whether there is a connection to NATS on which it answers, and no other
// installation's streams, as far as is known: it is not asked.
func (c *Conn) Connected() bool {
	return c.owner.get().foreign == nil && c.Reachable()
}

// Generation grows when streams and consumers may not be those that they were: after a
// reconnect, and when a loss is noticed. What was remembered of them in another generation is to
// be looked up again.
func (c *Conn) Generation() uint64 { return c.generation.Load() }
