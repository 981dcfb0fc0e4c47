// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// samples calls test with each of the sample workers that are no Go.
func samples(t *testing.T, test func(t *testing.T, o *operator, run func() Process)) {
	t.Helper()
	needs(t, "python3")
	for name, args := range map[string][]string{
		filepath.Join(examples, "worker-python"): {"python3", "-B", "worker.py", DefaultTopic},
		installNode(t):                           {"node", "worker.mjs", DefaultTopic},
	} {
		t.Run(args[0], func(t *testing.T) {
			url := start(t).URL()
			test(t, operateAt(t, Config{URL: url, AckWait: childAckWait}), func() Process {
				return runs(t, name, []string{"NATS_URL=" + url}, args...)
			})
		})
	}
}

// mutation of both: a Started that is tried once makes this time out.
func TestTheSampleWorkersSayThatTheyStartedUntilItIsStored(t *testing.T) {
	t.Parallel()
	samples(t, func(t *testing.T, o *operator, run func() Process) {
		t.Helper()
		s, err := o.js.Stream(t.Context(), o.names.ResultsStream())
		if err != nil {
			t.Fatal(err)
		}
		if err := o.js.DeleteStream(t.Context(), o.names.ResultsStream()); err != nil {
			t.Fatal(err)
		}
		if _, err := o.dispatch(t.Context(), newJob("long"), sleep(time.Hour)); err != nil {
			t.Fatal(err)
		}
		p := run()
		if err := o.await(t.Context(), "the start is not published", func() (bool, error) {
			return strings.Contains(p.Output(), "Started not published"), nil
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := o.js.CreateStream(t.Context(), s.CachedInfo().Config); err != nil {
			t.Fatal(err)
		}
		if err := o.await(t.Context(), "the start is stored", func() (bool, error) {
			s, err := o.js.Stream(t.Context(), o.names.ResultsStream())
			return err == nil && s.CachedInfo().State.Msgs == 1, err
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// overhear gives what is said on a subject.
func (o *operator) overhear(t *testing.T, subject string) <-chan *nats.Msg {
	t.Helper()
	all := make(chan *nats.Msg, 1000)
	if _, err := o.nc.ChanSubscribe(subject, all); err != nil {
		t.Fatal(err)
	}
	return all
}

func heard(t *testing.T, all <-chan *nats.Msg) *nats.Msg {
	t.Helper()
	select {
	case m := <-all:
		return m
	case <-time.After(DefaultPatience):
		t.Fatal("nothing is said")
		return nil
	}
}

// The server hands a job out once more while it is at work, as after an outage of NATS; here it was
// told to. From then on the worker speaks by the second delivery: a consumer that was made anew
// takes no NAK of the first one.
//
// mutations of both: a worker that keeps the first delivery makes this time out; one that begins
// the second one says Started once more.
func TestTheSampleWorkersDoNoJobBesideItself(t *testing.T) {
	t.Parallel()
	samples(t, func(t *testing.T, o *operator, run func() Process) {
		t.Helper()
		said, starts := o.overhear(t, "$JS.ACK.>"), o.overhear(t, o.names.Prefix+".results.>")
		if _, err := o.dispatch(t.Context(), newJob("long"), sleep(time.Hour)); err != nil {
			t.Fatal(err)
		}
		run()
		first := heard(t, said)
		if err := o.nc.Publish(first.Subject, []byte("-NAK")); err != nil {
			t.Fatal(err)
		}
		if err := o.await(t.Context(), "the job is delivered again", func() (bool, error) {
			info, err := o.info(t.Context())
			return err == nil && info.Delivered.Consumer > 1, err
		}); err != nil {
			t.Fatal(err)
		}
		const deliveries = 4 // the token of a word
		o.awaitWord(t, said, deliveries, "2")
		if n := len(starts); n != 1 {
			t.Errorf("said Started %d times", n)
		}
	})
}

// The operator published a job anew while it was at work, since its Msg-Id was forgotten; so were
// the results. The server hears nothing of that message if only the first one is pinged.
//
// mutations of both: a message of its own that is ignored is not pinged; a Started that is not said
// again is not stored; an end of the first message only leaves one.
func TestTheSampleWorkersEndAMessageOfItsOwnWithTheJobAtWork(t *testing.T) {
	t.Parallel()
	samples(t, func(t *testing.T, o *operator, run func() Process) {
		t.Helper()
		has := func(stream string, want uint64) { t.Helper(); o.has(t, stream, want) }
		id := newJob("long")
		if _, err := o.dispatch(t.Context(), id, sleep(time.Hour)); err != nil {
			t.Fatal(err)
		}
		run()
		has(o.names.ResultsStream(), 1)
		results := o.stream(t, o.names.ResultsStream())
		if err := o.js.DeleteStream(t.Context(), o.names.ResultsStream()); err != nil {
			t.Fatal(err)
		}
		if _, err := o.js.CreateStream(t.Context(), results.CachedInfo().Config); err != nil {
			t.Fatal(err)
		}
		pings := o.overhear(t, "$JS.ACK.>")
		second, err := o.forge(t.Context(), id, sleep(time.Hour).bytes(), func(*nats.Msg) {})
		if err != nil {
			t.Fatal(err)
		}
		o.awaitWord(t, pings, 5, strconv.FormatUint(second.seq, 10))
		has(o.names.ResultsStream(), 1)
		if err := o.nc.Publish(o.names.Control(id.RunUID), []byte(`{"action":"Cancel"}`)); err != nil {
			t.Fatal(err)
		}
		has(o.names.JobsStream(), 0)
	})
}

// has waits until a stream has as many messages.
func (o *operator) has(t *testing.T, stream string, want uint64) {
	t.Helper()
	if err := o.await(t.Context(), "the stream has as many messages", func() (bool, error) {
		s, err := o.js.Stream(t.Context(), stream)
		return err == nil && s.CachedInfo().State.Msgs == want, err
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitWord waits for one of $JS.ACK.> whose subject has that token.
func (o *operator) awaitWord(t *testing.T, said <-chan *nats.Msg, at int, token string) {
	t.Helper()
	if err := o.await(t.Context(), "a word of "+token, func() (bool, error) {
		select {
		case m := <-said:
			return strings.Split(m.Subject, ".")[at] == token, nil
		default:
			return false, nil
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// NATS has lost its data, and in the new stream the job is in the place that it had, or before it.
// What is said of the message that is gone would count for the one that has its place then.
//
// mutation of both: a worker that keeps the message of before makes this fail.
func TestTheSampleWorkersSayNothingOfAMessageThatIsGone(t *testing.T) {
	t.Parallel()
	samples(t, func(t *testing.T, o *operator, run func() Process) {
		t.Helper()
		const when = 7 // the token of a word
		said := o.overhear(t, "$JS.ACK.>")
		id := newJob("long")
		if _, err := o.dispatch(t.Context(), id, sleep(time.Hour)); err != nil {
			t.Fatal(err)
		}
		p := run()
		gone := strings.Split(heard(t, said).Subject, ".")[when]
		jobs := o.stream(t, o.names.JobsStream()).CachedInfo().Config
		if err := o.js.DeleteStream(t.Context(), jobs.Name); err != nil {
			t.Fatal(err)
		}
		if _, err := o.js.CreateStream(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		if _, err := o.js.CreateConsumer(t.Context(), jobs.Name, o.consumer); err != nil {
			t.Fatal(err)
		}
		second, err := o.forge(t.Context(), id, sleep(time.Hour).bytes(), func(*nats.Msg) {})
		if err != nil {
			t.Fatal(err)
		}
		m, err := o.stream(t, jobs.Name).GetMsg(t.Context(), second.seq)
		if err != nil {
			t.Fatal(err)
		}
		o.awaitWord(t, said, when, strconv.FormatInt(m.Time.UnixNano(), 10))
		if err := o.nc.Publish(o.names.Control(id.RunUID), []byte(`{"action":"Cancel"}`)); err != nil {
			t.Fatal(err)
		}
		o.has(t, jobs.Name, 0)
		if err := p.Terminate(t.Context()); err != nil {
			t.Error(err)
		}
		if err := o.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		for len(said) > 0 {
			if m := <-said; strings.Split(m.Subject, ".")[when] == gone {
				t.Errorf("%s of the message that is gone", m.Data)
			}
		}
	})
}

// stops ends a worker whose pulls are open, calls meanwhile when it has noted that, and waits
// for its end.
func (o *operator) stops(t *testing.T, p Process, pulls int, meanwhile func()) {
	t.Helper()
	if err := o.await(t.Context(), "the worker waits for jobs", func() (bool, error) {
		info, err := o.info(t.Context())
		return err == nil && info.NumWaiting == pulls, err
	}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Terminate(t.Context()) }()
	if err := o.await(t.Context(), "the worker stops", func() (bool, error) { return strings.Contains(p.Output(), "stopping"), nil }); err != nil {
		t.Fatal(err)
	}
	meanwhile()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// In a stopping worker pulls are still open: what goes back at once comes to the next one.
//
// mutation of both: a worker that gives back while another pull is open makes this fail.
func TestTheSampleWorkersDoNotUseUpTheDeliveriesOfAJobAsTheyStop(t *testing.T) {
	t.Parallel()
	samples(t, func(t *testing.T, o *operator, run func() Process) {
		t.Helper()
		patient := o.consumer
		patient.AckWait = time.Hour
		if _, err := o.js.UpdateConsumer(t.Context(), o.names.JobsStream(), patient); err != nil {
			t.Fatal(err)
		}
		o.stops(t, run(), 4, func() {
			if _, err := o.dispatch(t.Context(), newJob("late"), input{Do: "succeed"}); err != nil {
				t.Fatal(err)
			}
		})
		c, err := o.js.Consumer(t.Context(), o.names.JobsStream(), o.consumer.Durable)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := c.Fetch(1, jetstream.FetchMaxWait(DefaultPatience))
		if err != nil {
			t.Fatal(err)
		}
		m := <-batch.Messages()
		if m == nil {
			t.Fatal("the job was not given back")
		}
		if meta, err := m.Metadata(); err != nil || meta.NumDelivered > 2 {
			t.Errorf("%v; got %+v", err, meta)
		}
	})
}

// While a worker stops, a job that it pings comes to it again.
//
// mutation of both: a worker that looks first whether it stops gives the job back.
func TestTheSampleWorkersDoNotGiveAJobBackThatIsAtWork(t *testing.T) {
	t.Parallel()
	samples(t, func(t *testing.T, o *operator, run func() Process) {
		t.Helper()
		said := o.overhear(t, "$JS.ACK.>")
		id := newJob("long")
		if _, err := o.dispatch(t.Context(), id, sleep(time.Hour)); err != nil {
			t.Fatal(err)
		}
		p := run()
		first := heard(t, said)
		o.stops(t, p, 3, func() {
			if err := o.nc.Publish(first.Subject, []byte("-NAK")); err != nil {
				t.Fatal(err)
			}
			if err := o.await(t.Context(), "no pull is open", func() (bool, error) {
				info, err := o.info(t.Context())
				return err == nil && info.NumWaiting == 0, err
			}); err != nil {
				t.Fatal(err)
			}
			if err := o.nc.Publish(o.names.Control(id.RunUID), []byte(`{"action":"Cancel"}`)); err != nil {
				t.Fatal(err)
			}
		})
		if err := o.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		naks := 0
		for len(said) > 0 {
			if m := <-said; string(m.Data) == "-NAK" {
				naks++
			}
		}
		if naks != 1 {
			t.Errorf("%d NAKs, want that of the test", naks)
		}
	})
}

// Where nobody answers a Started, each try takes five seconds.
//
// mutation: a worker that tries again in the thread that pings loses the job to another one.
func TestThePythonWorkerPingsWhileNobodyAnswersItsStart(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	o := operateAt(t, Config{URL: start(t).URL(), AckWait: 6 * time.Second})
	if err := o.js.DeleteStream(t.Context(), o.names.ResultsStream()); err != nil {
		t.Fatal(err)
	}
	o.overhear(t, o.names.Prefix+".results.>")
	said := o.overhear(t, "$JS.ACK.>")
	if _, err := o.dispatch(t.Context(), newJob("long"), sleep(time.Hour)); err != nil {
		t.Fatal(err)
	}
	runs(t, filepath.Join(examples, "worker-python"), []string{"NATS_URL=" + o.config.URL}, "python3", "-B", "worker.py", DefaultTopic)
	for range 5 {
		heard(t, said)
	}
	if info, err := o.info(t.Context()); err != nil || info.Delivered.Consumer != 1 {
		t.Errorf("%v; delivered: %+v", err, info)
	}
}

// patientHandler takes longer than what is a minute here.
const patientHandler = `
import os, threading, worker

worker.REFRESH = 0.05
handle = lambda *job: threading.Event().wait(1)
worker.Worker(worker.NATS(os.environ["NATS_URL"]), "` + DefaultTopic + `", handle).run(threading.Event().wait)
`

// An AckWait that is lowered counts at the server before a worker has read it.
//
// mutation: a third of AckWait alone makes this fail.
func TestThePythonWorkerPingsHoweverLongAckWaitIs(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	o := operateAt(t, Config{URL: start(t).URL(), AckWait: time.Hour})
	said := o.overhear(t, "$JS.ACK.>")
	if _, err := o.dispatch(t.Context(), newJob("long"), input{Do: "succeed"}); err != nil {
		t.Fatal(err)
	}
	python(t, o.config.URL, patientHandler)
	if m := heard(t, said); string(m.Data) != "+WPI" {
		t.Errorf("the worker said %s before it pinged", m.Data)
	}
}

// deafHandler does not hear that nobody wants its value.
const deafHandler = `
import os, threading, worker

def handle(*job):
    threading.Event().wait()

worker.Worker(worker.NATS(os.environ["NATS_URL"]), "` + DefaultTopic + `", handle).run(threading.Event().wait)
`

// The deadline passes while the job is at work, so it is pinged no more and comes again.
//
// mutation: a worker that looks first whether the job is at work leaves it in the stream.
func TestThePythonWorkerEndsAJobPastItsDeadlineThoughItIsAtWork(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	o := operateAt(t, Config{URL: start(t).URL(), AckWait: childAckWait})
	python(t, o.config.URL, deafHandler)
	o.waitsForJobs(t)
	if _, err := o.forge(t.Context(), newJob("long"), sleep(0).bytes(), func(m *nats.Msg) {
		m.Header.Set(protocol.HeaderDeadline, time.Now().Add(3*time.Second).UTC().Format(time.RFC3339Nano))
	}); err != nil {
		t.Fatal(err)
	}
	if err := o.await(t.Context(), "the job is acknowledged", func() (bool, error) {
		return o.stream(t, o.names.JobsStream()).CachedInfo().State.Msgs == 0, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// lateHandler has a value when nobody waits for it any more.
const lateHandler = `
import os, threading, worker

began = threading.Event()

def handle(given, stopped, fences, traceparent):
    began.set()
    stopped.wait()
    return "saved"

worker.GRACE = 0
worker.Worker(worker.NATS(os.environ["NATS_URL"]), "` + DefaultTopic + `", handle).run(began.wait)
`

// mutation: work without its last try gives the job back, and this times out.
func TestAValueThatThePythonWorkerHasAfterItsGraceIsPublished(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	o := operateAt(t, Config{URL: start(t).URL(), AckWait: time.Hour})
	id := newJob("late")
	if _, err := o.dispatch(t.Context(), id, input{Do: "succeed"}); err != nil {
		t.Fatal(err)
	}
	python(t, o.config.URL, lateHandler)
	var got []protocol.Result
	if err := o.await(t.Context(), "the value is stored", func() (done bool, err error) {
		got, err = o.stored(t.Context(), id)
		return len(got) > 0, err
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]protocol.Result{{Status: protocol.StatusSucceeded, Output: []byte(`"saved"`)}}, got); diff != "" {
		t.Error(diff)
	}
}

// lockedHandler has a look at who writes what another thread reads.
const lockedHandler = `
import os, threading, worker

nats = worker.NATS(os.environ["NATS_URL"])

class Watched(dict):
    def __setitem__(self, key, value):
        print("locked" if nats.lock.locked() else "unlocked", flush=True)
        super().__setitem__(key, value)

nats.asked = Watched()
worker.Worker(nats, "` + DefaultTopic + `", worker.echo).run(threading.Event().wait)
`

// mutation: request that notes its subject without the lock makes this fail.
func TestThePythonWorkerNotesRequestsUnderItsLock(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	o := operateAt(t, Config{URL: start(t).URL(), AckWait: time.Hour})
	p := python(t, o.config.URL, lockedHandler)
	if err := o.await(t.Context(), "a request", func() (bool, error) { return strings.Contains(p.Output(), "locked"), nil }); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(p.Output(), "unlocked") {
		t.Error("noted without the lock")
	}
}
