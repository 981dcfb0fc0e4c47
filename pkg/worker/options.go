// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/natsdial"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Options of a Worker; the zero value is good.
type Options struct {
	// Prefix is the first token of all subjects. Default protocol.DefaultPrefix.
	Prefix string
	// GracePeriod is how long handlers may go on after Run's context ended, before theirs is
	// cancelled. Then they have to return, and Run tells NATS: that takes up to 15 s while it is
	// silent, else an instant, or as long as a large output takes. So give the pod a
	// terminationGracePeriodSeconds that is 15 s longer. Default 20 s, of the 30 s that a pod has
	// by default. Negative: no grace.
	GracePeriod time.Duration
	// BindInterval is how long the worker waits, give or take a half, before it looks again for the
	// consumer of a topic, which the operator makes when it dispatches the first job of that topic.
	// While there is none the wait is doubled, up to 5 s. Default 2 s.
	BindInterval time.Duration
	// Log gets what the worker has to say; never a token, an input or an output. Failures of jobs
	// are at level 1, which slog has below Info. Default: slog's default handler, as it is when New
	// is called. logr.FromSlogHandler(slog.DiscardHandler) is for a worker that is to be silent;
	// logr.Discard() is the zero Logger, and so the default.
	Log logr.Logger
	// NoObjectStore is for a worker whose user of NATS has no right to the object store, as a
	// confined one: NATS does not answer it there, as while the store is away, so it would wait for
	// the store until the job's deadline. An output that a result cannot carry is then a final
	// failure with CodeTooLarge, and Job.Payload one with CodeNoObjectStore.
	NoObjectStore bool
	// Trace begins a span for a job: it gives the context that the handler gets, and what ends the
	// span with the handler's error. The place of the job is in job.TraceParent, which a propagator
	// of OpenTelemetry reads as the header traceparent.
	//
	// Default: no span. The SDK needs no module for it.
	Trace func(ctx context.Context, job Job) (context.Context, func(err error))
}

const (
	defaultGrace = 20 * time.Second
	defaultBind  = 2 * time.Second
	bindCeiling  = 5 * time.Second // a new topic's first job waits for as long

	defaultPull = 2 * time.Second
	pullSlack   = time.Second // after which the server's word that a pull is over is late

	refreshInterval = time.Minute // at which the consumer's AckWait is read again, and at the latest a job is pinged

	pingInterval   = 5 * time.Second        // as the operator's; a connection is made anew when two of them had no answer
	requestTimeout = 5 * time.Second        // of one publish, acknowledgement or look-up; each chunk of an output is one
	publishBackoff = 100 * time.Millisecond // before the second try to publish a result, doubled up to
	publishCeiling = 5 * time.Second
	defaultAckWait = 30 * time.Second // the server's, where a consumer does not say
	maxConcurrency = 10_000
	maxTopicLength = 100
)

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = protocol.DefaultPrefix
	}
	if o.GracePeriod == 0 {
		o.GracePeriod = defaultGrace
	}
	if o.BindInterval <= 0 {
		o.BindInterval = defaultBind
	}
	if o.Log.GetSink() == nil {
		o.Log = defaultLog()
	}
	return o
}

// HandleOption tunes one topic.
type HandleOption func(*topic)

// Concurrency is how many jobs of the topic this process works on at the same time, 1 to
// 10,000. Default 1.
func Concurrency(n int) HandleOption {
	return func(t *topic) { t.concurrency = n }
}

// MaxDeliveries fails an attempt, with CodeDeliveredTooOften and without a call of the handler,
// when the server hands its job out for more than the nth time. That is for jobs that end the
// process of their worker, and with it the work on others: else they come again until their
// time-out. The count of the next attempt begins anew, for jobs that were only beside such a one: a
// job ends at most n processes in each of the attempts that its step allows.
// Take 10 or more: jobs that a worker gives back when it stops were handed out, too.
// Default: no limit.
func MaxDeliveries(n int) HandleOption {
	return func(t *topic) { t.limited, t.maxDeliveries = true, n }
}

var topicPattern = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*$`)

func (t *topic) check() error {
	switch {
	case len(t.name) > maxTopicLength || !topicPattern.MatchString(t.name):
		return fmt.Errorf("%w: topic %q: want words of a-z, 0-9 and dashes, joined by dots, at most %d characters", ErrConfig, t.name, maxTopicLength)
	case t.handler == nil:
		return fmt.Errorf("%w: topic %q has no handler", ErrConfig, t.name)
	case t.concurrency < 1 || t.concurrency > maxConcurrency:
		return fmt.Errorf("%w: topic %q: concurrency %d is not in 1 to %d", ErrConfig, t.name, t.concurrency, maxConcurrency)
	case t.limited && t.maxDeliveries < 1:
		return fmt.Errorf("%w: topic %q: at most %d deliveries let no job be done", ErrConfig, t.name, t.maxDeliveries)
	}
	return nil
}

// Connect connects to NATS as a worker should: it goes on trying for ever, also if no server is
// there yet. opts come last. An address that cannot be read is ErrConfig.
//
// That the connection ended, and some of the tries that fail, go to slog's default handler. For
// another place of the end give nats.DisconnectErrHandler, and of tries that reach no server
// nats.ReconnectErrHandler. Of a server that is reached and refuses the login or TLS, or ends the
// connection, the library of NATS tells no handler: that always goes to slog.
func Connect(address string, opts ...nats.Option) (*nats.Conn, error) {
	return connect(address, &dials{clock: clock.RealClock{}}, opts...)
}

// connect is Connect, with what tells of its tries.
func connect(address string, tries *dials, opts ...nats.Option) (*nats.Conn, error) {
	if address == "" {
		address = nats.DefaultURL
	}
	all := append([]nats.Option{
		nats.Name("syncopate-worker"),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(time.Second),
		nats.IgnoreAuthErrorAbort(), // credentials rotate; giving up for good would need a restart
		// Nothing else tells that a connection went silent. With the library's two minutes the jobs
		// of this worker are with others for long when it notices, and it does none meanwhile.
		nats.PingInterval(pingInterval),
		nats.FlusherTimeout(natsdial.WriteTimeout),
		nats.ReconnectErrHandler(tries.unreachable),
		nats.DisconnectErrHandler(tries.ended),
	}, opts...)
	all = append(all, natsdial.EndOnFailedWrite)
	nc, err := nats.Connect(address, all...)
	if _, unreadable := errors.AsType[*url.Error](err); unreadable {
		// The library's words quote the address, and so its password.
		return nil, fmt.Errorf("%w: the address of NATS cannot be read: in a user or password write what URLs use as %%XX", ErrConfig)
	}
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	go tries.watch(nc) // ends with nc
	return nc, nil
}
