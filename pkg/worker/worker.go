// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Handler does a job. Its value becomes the step's output; nil means none. ctx ends at the job's
// deadline, with the cause ErrCancelled when the run does not want the result any more, and with
// ErrStopping when the worker's grace period is over. A handler that has not done all of its work
// then returns an error, as a value without an error is the output of a job that succeeded.
type Handler func(ctx context.Context, job Job) (any, error)

// Worker takes jobs of one or more topics. It has no method for use while Run runs.
type Worker struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	names   protocol.Names
	options Options
	log     logr.Logger
	clock   clock.WithTicker
	rand    func() float64
	topics  map[string]*topic
	running running
	wrong   []error

	pullWait time.Duration // how long one pull waits at the server; an idle worker takes as long to stop
}

// New makes a worker that uses nc, which stays the caller's to close. Options of nc
// matter: see Connect.
func New(nc *nats.Conn, options Options) *Worker {
	options = options.withDefaults()
	w := &Worker{
		nc: nc, names: protocol.Names{Prefix: options.Prefix}, options: options, log: options.Log,
		clock: clock.RealClock{}, rand: rand.Float64, topics: map[string]*topic{}, pullWait: defaultPull,
	}
	js, err := jetstream.New(nc)
	if err != nil {
		w.wrong = append(w.wrong, fmt.Errorf("%w: %w", ErrConfig, err))
	}
	w.js = js
	return w
}

// Handle makes h do the jobs of a topic, each in its own goroutine. Mistakes are reported by Run.
func (w *Worker) Handle(name string, h Handler, opts ...HandleOption) {
	t := &topic{Worker: w, name: name, handler: h, concurrency: 1}
	for _, o := range opts {
		o(t)
	}
	if w.topics[name] != nil {
		w.wrong = append(w.wrong, fmt.Errorf("%w: topic %q has two handlers", ErrConfig, name))
	}
	w.topics[name] = t
}

// Run takes jobs until ctx ends. Then it takes no more, gives handlers the grace period, cancels
// those that remain and gives their jobs back, and returns nil. It returns an error early: one that
// wraps ErrConfig, or ErrConnectionClosed, the latter with the same grace period for handlers.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.check(); err != nil {
		return err
	}
	// A connection of the caller's own may give up for good while every slot is busy: no pull would
	// notice before a job ends.
	closed := w.nc.StatusChanged(nats.CLOSED)
	defer w.nc.RemoveStatusListener(closed)
	control, err := w.listen()
	if err != nil {
		return err
	}
	pulls, stopPulls := context.WithCancelCause(ctx)
	defer stopPulls(nil)
	work, stopWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWork(nil)

	var all sync.WaitGroup
	for _, t := range w.topics {
		all.Go(func() {
			if err := t.run(pulls, work); err != nil {
				stopPulls(err)
			}
		})
	}
	select {
	case <-pulls.Done():
	case <-closed:
		stopPulls(ErrConnectionClosed)
	}
	w.finish(&all, stopWork)
	return errors.Join(w.fatal(pulls), w.leave(control))
}

func (w *Worker) check() error {
	wrong := w.wrong
	if len(w.topics) == 0 {
		wrong = append(wrong, fmt.Errorf("%w: no handlers", ErrConfig))
	}
	for _, t := range w.topics {
		if err := t.check(); err != nil {
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}

// finish waits for all jobs, for the grace period in peace.
func (w *Worker) finish(all *sync.WaitGroup, stopWork context.CancelCauseFunc) {
	done := make(chan struct{})
	go func() { // ends with the last handler
		all.Wait()
		close(done)
	}()
	grace := w.clock.NewTimer(max(0, w.options.GracePeriod))
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C():
		w.log.Info("Grace period over, cancelling jobs")
		stopWork(ErrStopping)
		<-done
	}
}

// fatal is the error that ended pulls, unless it was the caller.
func (w *Worker) fatal(pulls context.Context) error {
	if cause := context.Cause(pulls); errors.Is(cause, ErrConnectionClosed) {
		return cause
	}
	return nil
}

// leave unsubscribes, and waits until the server has what was sent: a caller may exit
// right after Run.
func (w *Worker) leave(control *nats.Subscription) error {
	if w.nc.IsClosed() {
		return nil
	}
	if err := control.Unsubscribe(); err != nil {
		return fmt.Errorf("unsubscribe from control messages: %w", err)
	}
	if err := w.nc.FlushTimeout(requestTimeout); err != nil {
		w.log.Error(err, "Last acknowledgements may be lost, their jobs are delivered again")
	}
	return nil
}

// sleep waits for d, or until ctx ends.
func (w *Worker) sleep(ctx context.Context, d time.Duration) {
	timer := w.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}

// jittered is d give or take a half.
func (w *Worker) jittered(d time.Duration) time.Duration {
	return d/2 + time.Duration(w.rand()*float64(d))
}
