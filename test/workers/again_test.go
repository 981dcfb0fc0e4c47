// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

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

// The server hands a job out once more while it is at work, as after an outage of NATS; here it was
// told to. What the worker says of the first delivery still counts.
//
// mutation of both: a worker that takes the second delivery says Started once more.
func TestTheSampleWorkersDoNoJobBesideItself(t *testing.T) {
	t.Parallel()
	samples(t, func(t *testing.T, o *operator, run func() Process) {
		t.Helper()
		said, starts := make(chan *nats.Msg, 1000), make(chan *nats.Msg, 1000)
		for subject, all := range map[string]chan *nats.Msg{"$JS.ACK.>": said, o.names.Prefix + ".results.>": starts} {
			if _, err := o.nc.ChanSubscribe(subject, all); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := o.dispatch(t.Context(), newJob("long"), sleep(time.Hour)); err != nil {
			t.Fatal(err)
		}
		run()
		first := <-said
		if err := o.nc.Publish(first.Subject, []byte("-NAK")); err != nil {
			t.Fatal(err)
		}
		if err := o.await(t.Context(), "the job is delivered again", func() (bool, error) {
			info, err := o.info(t.Context())
			return err == nil && info.Delivered.Consumer > 1, err
		}); err != nil {
			t.Fatal(err)
		}
		for range 3 { // one of them is the NAK, and one may have been under way
			if m := <-said; m.Subject != first.Subject {
				t.Errorf("of another delivery the worker said %s", m.Data)
			}
		}
		if n := len(starts); n != 1 {
			t.Errorf("said Started %d times", n)
		}
	})
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
