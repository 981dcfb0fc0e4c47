// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func jetstreamJobs(n protocol.Names) jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: n.JobsStream(), Subjects: []string{"syncopate.jobs.>"}, Retention: jetstream.WorkQueuePolicy, AllowMsgTTL: true}
}

func jetstreamResults(n protocol.Names) jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: n.ResultsStream(), Subjects: []string{"syncopate.results.>"}, Discard: jetstream.DiscardNew}
}

// Whoever reads the log of a new worker has to learn that its Secret is wrong, and
// not the operator.
// mutation: bind that says what it waits for whatever the connection says makes this fail.
func TestAWorkerThatNATSRefusesSaysSo(t *testing.T) {
	o := newOperator(t)
	o.options.Port = o.down()
	o.options.Username, o.options.Password = "somebody", "right"
	o.serve(o.options)
	nc, err := Connect(strings.Replace(o.server.ClientURL(), "://", "://somebody:secret-word@", 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	w := New(nc, Options{BindInterval: 20 * time.Millisecond, Log: funcr.New(o.logs.add, funcr.Options{})})
	w.Handle("a", func(context.Context, Job) (any, error) { return nil, nil })
	o.start(w)
	o.eventually("it says that it is refused", func() bool {
		return strings.Contains(strings.Join(o.logs.all(), "\n"), "Authorization Violation")
	})
	for _, line := range o.logs.all() {
		if strings.Contains(line, "operator") || strings.Contains(line, "secret-word") {
			t.Errorf("it says %s", line)
		}
	}
}

// mutation: bind that says why it waits once and for all makes the last part fail; a pull that
// takes silence for an answer, the first.
func TestAnIdleWorkerSaysThatNATSIsAwayAndWhatItWaitsForThen(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { return nil, nil })
	o.start(w)
	says := func(what string) func() bool {
		return func() bool { return strings.Contains(strings.Join(o.logs.all(), "\n"), what) }
	}
	o.eventually("it takes jobs", says("Taking jobs"))
	port := o.down()
	o.eventually("it says that NATS is away", says("NATS is not reached"))
	o.options.StoreDir = t.TempDir() // and with it all consumers
	o.up(port)
	o.eventually("it says that the operator is to make the consumer", says("Waiting for the operator"))
}

// mutation: listen that passes the library's error on makes this fail.
func TestAConnectionThatIsClosedAlreadyEndsRun(t *testing.T) {
	o := newOperator(t)
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { return nil, nil })
	w.nc.Close()
	if err := w.Run(t.Context()); !errors.Is(err, ErrConnectionClosed) {
		t.Errorf("Run: %v", err)
	}
}

// mutation: pull that asks for more than the free slots makes ack pending exceed the bound,
// and this fails.
func TestNoMoreJobsAreTakenThanCanBeWorkedOn(t *testing.T) {
	const bound, jobs = 3, 12
	o := newOperator(t)
	o.topic("a")
	for i := range jobs {
		o.publish("a", job(fmt.Sprint("s", i)), `{}`)
	}
	var now, most atomic.Int32
	full, release := make(chan struct{}), make(chan struct{})
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == bound {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		<-release
		return nil, nil
	}, Concurrency(bound))
	o.start(w)
	within(t, "all slots are in use", full)
	// The server counts a message as pending a moment after it has confirmed it.
	o.eventually("the others wait", func() bool { return o.state("a").NumPending == jobs-bound })
	if info := o.state("a"); info.NumAckPending != bound {
		t.Errorf("%d taken, %d left", info.NumAckPending, info.NumPending)
	}
	close(release)
	o.results(2 * jobs)
	if n := most.Load(); n != bound {
		t.Errorf("%d at the same time", n)
	}
	o.eventually("all are acknowledged", func() bool { return o.jobs() == 0 })
}

// mutation: a filter or durable name that does not tell the topics apart fails this; so does
// binding "a.b" as "a".
func TestTopicsOfWhichOneStartsWithTheOtherAreKeptApart(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	o.topic("a.b")
	w := o.worker()
	for _, name := range []string{"a", "a.b"} {
		w.Handle(name, func(_ context.Context, j Job) (any, error) { return name + " got " + j.ID.Step, nil })
	}
	o.start(w)
	o.publish("a", job("for-a"), `{}`)
	o.publish("a.b", job("for-ab"), `{}`)
	got := map[string]string{}
	for _, r := range o.results(4) {
		if r.Result.Status == protocol.StatusSucceeded {
			got[string(r.Result.Output)] = ""
		}
	}
	for _, want := range []string{`"a got for-a"`, `"a.b got for-ab"`} {
		if _, ok := got[want]; !ok {
			t.Errorf("%s is missing in %v", want, got)
		}
	}
}

// mutation: bind that gives up, or run that does not bind again, makes this time out.
func TestAConsumerThatComesLateOrGoesIsWaitedFor(t *testing.T) {
	o := newOperator(t)
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { return nil, nil })
	o.start(w)
	waits := func() int { return strings.Count(strings.Join(o.logs.all(), "\n"), "Waiting for the operator") }
	o.eventually("the worker waits", func() bool { return waits() > 0 })
	o.topic("a")
	o.publish("a", job("first"), `{}`)
	o.results(2)
	if n := waits(); n != 1 {
		t.Errorf("said %d times", n)
	}
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
	if err := o.js.DeleteConsumer(t.Context(), o.names.JobsStream(), "a"); err != nil {
		t.Fatal(err)
	}
	o.eventually("the worker waits again", func() bool { return waits() > 1 })
	o.topic("a")
	o.publish("a", job("second"), `{}`)
	o.results(4)
}

// mutation: finish that cancels at once fails "in peace"; settle without NAK fails the
// redelivery within AckWait.
func TestStopLetsHandlersFinishThenGivesTheirJobsBack(t *testing.T) {
	o := newOperator(t)
	o.topicOf("quick", time.Hour)
	o.topicOf("stubborn", time.Hour)
	began := make(chan struct{}, 2)
	w := o.worker(func(x *Options) { x.GracePeriod = 3 * time.Second })
	w.Handle("quick", func(ctx context.Context, _ Job) (any, error) {
		began <- struct{}{}
		select {
		case <-time.After(100 * time.Millisecond):
			return "in peace", nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	causes := make(chan error, 1)
	w.Handle("stubborn", func(ctx context.Context, _ Job) (any, error) {
		began <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	stop := o.start(w)
	o.publish("quick", job("q"), `{}`)
	o.publish("stubborn", job("s"), `{}`)
	<-began
	<-began
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if cause := <-causes; !errors.Is(cause, ErrStopping) {
		t.Errorf("cause %v", cause)
	}
	if got := o.results(3); string(got[2].Result.Output) != `"in peace"` {
		t.Errorf("got %+v", got[2].Result)
	}
	if n := o.jobs(); n != 1 {
		t.Fatalf("%d jobs left, want the stubborn one", n)
	}
	// Given back, it comes at once and not after AckWait: the server has no outstanding delivery,
	// or has one for redelivery.
	c, err := o.js.Consumer(t.Context(), o.names.JobsStream(), "stubborn")
	if err != nil {
		t.Fatal(err)
	}
	batch, err := c.Fetch(1, jetstream.FetchMaxWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	if m := <-batch.Messages(); m == nil {
		t.Error("the job was not given back")
	}
}

// mutation: answer that is not tried once when ctx has ended fails this.
func TestAValueThatComesAfterTheGracePeriodIsPublished(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	began := make(chan struct{})
	w := o.worker(func(x *Options) { x.GracePeriod = -1 })
	w.Handle("a", func(ctx context.Context, _ Job) (any, error) { close(began); <-ctx.Done(); return "saved", nil })
	stop := o.start(w)
	o.publish("a", job("a"), `{}`)
	<-began
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := o.results(2); string(got[1].Result.Output) != `"saved"` {
		t.Errorf("got %+v", got[1].Result)
	}
	if n := o.jobs(); n != 0 {
		t.Errorf("%d jobs left", n)
	}
}

// A context keeps its first cause, so it does not tell of a cancel that comes after
// the grace period.
//
// mutations: work that goes by the context alone gives the jobs back that fail after "grace is
// over", and publishes the values of the others.
func TestAJobThatIsCancelledIsNotGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		graceFirst bool
		err        error
	}{
		"cancelled, grace is over, an error": {false, errors.New("no")},
		"cancelled, grace is over, a value":  {false, nil},
		"grace is over, cancelled, an error": {true, errors.New("no")},
		"grace is over, cancelled, a value":  {true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOperator(t)
			o.topicOf("a", time.Hour)
			began, ended, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
			w := o.worker(func(x *Options) { x.GracePeriod = -1 })
			w.Handle("a", func(ctx context.Context, _ Job) (any, error) {
				close(began)
				<-ctx.Done()
				close(ended)
				<-release
				return "late", c.err
			})
			stop := o.start(w)
			defer close(release)
			says := func(what string) {
				o.eventually(what, func() bool { return strings.Contains(strings.Join(o.logs.all(), "\n"), what) })
			}
			graceOver := func() { go func() { _ = stop() }(); says("Grace period over") }
			cancelled := func() { o.cancel("8b0e", protocol.Control{Action: protocol.ActionCancel}); says("Jobs cancelled") }
			first, second := cancelled, graceOver
			if c.graceFirst {
				first, second = graceOver, cancelled
			}
			o.publish("a", job("a"), `{}`)
			within(t, "the job begins", began)
			first()
			within(t, "the handler is told", ended)
			second()
			release <- struct{}{}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			s, err := o.js.Stream(t.Context(), o.names.ResultsStream())
			if err != nil || s.CachedInfo().State.Msgs != 1 {
				t.Errorf("more than Started was published, or %v", err)
			}
			o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
		})
	}
}

// mutation: unanswered that goes by the context alone gives the job back.
func TestAJobThatIsCancelledWhileItsResultIsNotStoredIsNotGivenBack(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	stop(ErrStopping)
	w := &topic{Worker: newOperator(t).worker()}
	for cancelled, want := range map[bool]outcome{true: unwanted, false: returned} {
		one := &atWork{}
		one.cancelled.Store(cancelled)
		if got := w.unanswered(ctx, task{}, one); got != want {
			t.Errorf("cancelled %t: got %v, want %v", cancelled, got, want)
		}
	}
}

func TestMistakesAreReportedByRun(t *testing.T) {
	o := newOperator(t)
	h := func(context.Context, Job) (any, error) { return nil, nil }
	for name, set := range map[string]func(w *Worker){
		"no handlers":             func(*Worker) {},
		"a topic with capitals":   func(w *Worker) { w.Handle("A", h) },
		"an empty topic":          func(w *Worker) { w.Handle("", h) },
		"a topic with a wildcard": func(w *Worker) { w.Handle("a.*", h) },
		"two handlers":            func(w *Worker) { w.Handle("a", h); w.Handle("a", h) },
		"no handler":              func(w *Worker) { w.Handle("a", nil) },
		"no concurrency":          func(w *Worker) { w.Handle("a", h, Concurrency(0)) },
		"no deliveries":           func(w *Worker) { w.Handle("a", h, MaxDeliveries(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := o.worker()
			set(w)
			if err := w.Run(t.Context()); !errors.Is(err, ErrConfig) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAClosedConnectionEndsRun(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { return nil, nil })
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	o.eventually("the worker takes jobs", func() bool { return o.state("a").NumWaiting == 1 })
	w.nc.Close()
	if err := <-done; !errors.Is(err, ErrConnectionClosed) {
		t.Errorf("got %v", err)
	}
}

// A connection that the user made may give up for good, by its own options.
//
// mutation: Run that does not listen for the end of its connection waits for the handler, and this
// times out.
func TestAClosedConnectionEndsRunThoughAllSlotsAreBusy(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	o.publish("a", job("a"), `{}`)
	began := make(chan struct{})
	w := o.worker(func(x *Options) { x.GracePeriod = -1 })
	w.Handle("a", func(ctx context.Context, _ Job) (any, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	within(t, "the job begins", began)
	w.nc.Close()
	select {
	case err := <-done:
		if !errors.Is(err, ErrConnectionClosed) {
			t.Errorf("got %v", err)
		}
	case <-time.After(patience):
		t.Error("Run goes on without a connection")
	}
}

// mutations: Connect without IgnoreAuthErrorAbort ends the connection at the second refused login
// in a row; without PingInterval, or with one in minutes, nobody notices one that went silent.
func TestConnectNeverGivesUpAndNoticesSilence(t *testing.T) {
	o := newOperator(t)
	got := o.connect().Opts
	if !got.IgnoreAuthErrorAbort || !got.RetryOnFailedConnect || got.MaxReconnect >= 0 {
		t.Errorf("gives up: %+v", got)
	}
	if silence := got.PingInterval * time.Duration(got.MaxPingsOut+1); silence > defaultAckWait {
		t.Errorf("notices silence after %s, when the server has given the jobs to others", silence)
	}
}

func TestAWorkerOutlivesItsServer(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { return nil, nil })
	o.start(w)
	o.eventually("the worker takes jobs", func() bool { return o.state("a").NumWaiting == 1 })
	o.restart()
	o.publish("a", job("a"), `{}`)
	o.results(2)
}

// The server comes back with nothing while the worker has a job; the operator makes its streams
// anew and publishes the job again.
//
// mutation: answer that gives up at its first failure makes this time out.
func TestAWorkerOutlivesTheDataOfItsServer(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	began, end := make(chan string, 2), make(chan struct{})
	w := o.worker()
	w.Handle("a", func(_ context.Context, j Job) (any, error) {
		began <- j.ID.String()
		<-end
		return nil, nil
	}, Concurrency(2))
	o.start(w)
	o.publish("a", job("a"), `{}`)
	<-began
	o.results(1)
	o.restartEmpty()
	close(end)
	o.eventually("the worker cannot tell its result", func() bool {
		return strings.Contains(strings.Join(o.logs.all(), "\n"), "Result not published")
	})
	o.makeStreams()
	o.results(1)
	// Until then the job is at work, and its acknowledgement would be that of the message that
	// comes: the new stream counts from 1, too.
	o.eventually("the worker is done with the job", func() bool {
		return strings.Contains(strings.Join(o.logs.all(), "\n"), `"to"="acknowledge"`)
	})
	o.topic("a")
	o.publish("a", job("a"), `{}`)
	<-began
	o.results(2) // the second one of the job is a duplicate
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
}

// The table of docs/protocol.md, on a server that refuses everything else.
//
// mutation: a table without any one of its lines makes this fail.
func TestAWorkerNeedsNoMorePermissionsThanDocumented(t *testing.T) {
	allowed := &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			"syncopate.results.>", "$JS.API.CONSUMER.INFO.SYNCOPATE_JOBS.a_b", "$JS.API.CONSUMER.MSG.NEXT.SYNCOPATE_JOBS.a_b", "$JS.ACK.SYNCOPATE_JOBS.a_b.>",
			"$O.syncopate-payloads.>", "$JS.API.STREAM.INFO.OBJ_syncopate-payloads", "$JS.API.DIRECT.GET.OBJ_syncopate-payloads",
			"$JS.API.DIRECT.GET.OBJ_syncopate-payloads.>",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{"syncopate.control.*", "_INBOX.>"}},
	}
	o := newOperator(t, func(s *server.Options) {
		s.NoAuthUser = "operator"
		s.Users = []*server.User{{Username: "operator", Password: "o"}, {Username: "worker", Password: "w", Permissions: allowed}}
	})
	o.topic("a.b")
	nc, err := Connect(o.server.ClientURL(), nats.UserInfo("worker", "w"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	w := New(nc, Options{BindInterval: 20 * time.Millisecond})
	w.pullWait = 200 * time.Millisecond
	w.Handle("a.b", func(ctx context.Context, j Job) (any, error) {
		switch j.ID.Step {
		case "wait":
			<-ctx.Done() // until it is cancelled
		case "large":
			return strings.Repeat("x", protocol.MaxInlineOutputBytes), nil
		case "read":
			var ref protocol.OutputRef
			if err := j.Decode(&ref); err != nil {
				return nil, err
			}
			data, err := j.Payload(ctx, ref)
			return len(data), err
		}
		return nil, nil
	})
	o.start(w)
	o.publish("a.b", job("quick"), `{}`)
	o.results(2)
	o.publish("a.b", job("large"), `{}`)
	ref := o.results(4)[3].Result.OutputRef
	if ref == nil {
		t.Fatal("no reference")
	}
	o.publish("a.b", job("read"), encoded(t, ref))
	if got := string(o.results(6)[5].Result.Output); got != strconv.FormatInt(ref.Size, 10) {
		t.Errorf("read %s of %d bytes", got, ref.Size)
	}
	o.publish("a.b", job("wait"), `{}`)
	o.results(7)
	o.cancel("8b0e", protocol.Control{Action: protocol.ActionCancel})
	o.eventually("all are acknowledged", func() bool { return o.jobs() == 0 })
}
