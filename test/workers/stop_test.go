// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// ends has a program end by SIGTERM, and wants exit code 0.
func ends(t *testing.T, p Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ages)
	defer cancel()
	if err := p.Terminate(ctx); err != nil {
		t.Error(err)
	}
}

// waitsForJobs waits until a worker's pulls are open.
func (o *operator) waitsForJobs(t *testing.T) {
	t.Helper()
	if err := o.await(t.Context(), "the worker waits for jobs", func() (bool, error) {
		info, err := o.info(t.Context())
		return err == nil && info.NumWaiting > 0, err
	}); err != nil {
		t.Fatal(err)
	}
}

// mutation of nats.mjs: leave that only drains ends with 1, or never.
func TestTheSampleWorkersEndWellWhileNATSIsAway(t *testing.T) {
	t.Parallel()
	for name, one := range programs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t)
			o := operateAt(t, Config{URL: server.URL()})
			p := runs(t, one.dir, []string{"NATS_URL=" + server.URL()}, one.args...)
			o.waitsForJobs(t)
			server.Stop()
			ends(t, p)
		})
	}
}

// What listens there is no NATS. A worker that has come that far hears of SIGTERM.
//
// mutation of nats.mjs: start that listens for SIGTERM when it is connected is killed by it.
func TestTheSampleWorkersEndWellBeforeNATSIsThere(t *testing.T) {
	t.Parallel()
	for name, one := range programs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, lines := greeting(t, "{}")
			p := runs(t, one.dir, []string{"NATS_URL=nats://" + address}, one.args...)
			said(t, lines)
			ends(t, p)
		})
	}
}

// The first SIGTERM has the job come to its end; the second one changes nothing.
//
// mutations: a thread of traces.py that has begun before signals are blocked, and a once in
// nats.mjs, have the second one kill the worker and its job.
func TestTheSampleWorkersOutliveASecondSIGTERM(t *testing.T) {
	t.Parallel()
	for name, one := range programs(t) {
		if name == "short.mjs" {
			continue // it hears of no cancelling, which ends the job here
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t).URL()
			o := operateAt(t, Config{URL: url, AckWait: time.Hour})
			id := newJob("long")
			if _, err := o.dispatch(t.Context(), id, sleep(time.Hour)); err != nil {
				t.Fatal(err)
			}
			p := runs(t, one.dir, []string{"NATS_URL=" + url, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, one.args...)
			o.has(t, o.names.ResultsStream(), 1)
			o.stops(t, p, 3, func() {
				if err := childOf(t, p).cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				if err := o.nc.Publish(o.names.Control(id.RunUID), []byte(`{"action":"Cancel"}`)); err != nil {
					t.Fatal(err)
				}
			})
			o.has(t, o.names.JobsStream(), 0)
		})
	}
}

// deafInGrace has a job cancelled, then its grace end, then the handler.
const deafInGrace = `
import os, threading, worker

cancelled, over, stop = threading.Event(), threading.Event(), worker.Job.stop

def stops(job, word):
    stop(job, word)
    if word == worker.NAK:
        over.set()

def handle(given, stopped, fences, traceparent):
    stopped.wait()
    cancelled.set()
    over.wait()
    return "late"

worker.GRACE, worker.Job.stop = 0, stops
worker.Worker(worker.NATS(os.environ["NATS_URL"]), "` + DefaultTopic + `", handle).run(cancelled.wait)
`

// deafNode is the same for Node: a timer of a tenth of a second ends after one of a millisecond.
const deafNode = `(input, signal) => new Promise((done) => {
  process.once("SIGTERM", () => setTimeout(done, 100, "late"));
  const says = () => console.error("cancelled");
  signal.aborted ? says() : signal.addEventListener("abort", says);
})`

// A job that is cancelled, or whose deadline has passed, is not wanted any more, also if the grace
// ends before its handler does.
//
// mutation of both: a stop that takes the later word publishes the value, and says NAK of one that
// has none.
func TestTheSampleWorkersKeepTheFirstWordOfAJob(t *testing.T) {
	t.Parallel()
	for name, one := range programs(t) {
		if name == "short.mjs" {
			continue // it has no cancelling
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t).URL()
			o := operateAt(t, Config{URL: url, AckWait: time.Hour})
			id := newJob("deaf")
			if _, err := o.dispatch(t.Context(), id, input{Do: "succeed"}); err != nil {
				t.Fatal(err)
			}
			args := []string{"python3", "-B", "-c", deafInGrace}
			if name == "worker.mjs" {
				args = []string{"node", deafWorker(t, one.dir), DefaultTopic}
			}
			p := runs(t, one.dir, []string{"NATS_URL=" + url}, args...)
			o.has(t, o.names.ResultsStream(), 1)
			words := o.overhear(t, "$JS.ACK.>")
			if err := o.nc.Publish(o.names.Control(id.RunUID), []byte(`{"action":"Cancel"}`)); err != nil {
				t.Fatal(err)
			}
			if name == "worker.mjs" {
				if err := o.await(t.Context(), "the job is cancelled", func() (bool, error) {
					return strings.Contains(p.Output(), "cancelled"), nil
				}); err != nil {
					t.Fatal(err)
				}
				ends(t, p)
			}
			if code := exitCode(t, p); code != 0 {
				t.Errorf("exit code %d", code)
			}
			acksOnly(t, o, id, words)
		})
	}
}

// acksOnly wants that a job was acknowledged without a result.
func acksOnly(t *testing.T, o *operator, id protocol.JobID, words <-chan *nats.Msg) {
	t.Helper()
	if m := heard(t, words); string(m.Data) != "+ACK" {
		t.Errorf("it says %s", m.Data)
	}
	got, err := o.stored(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got {
		if r.Status != protocol.StatusStarted {
			t.Errorf("it answers %+v", r)
		}
	}
}

// deafWorker writes worker.mjs with deafNode and a short grace, and gives its file.
func deafWorker(t *testing.T, dir string) string {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	b, err := root.ReadFile("worker.mjs")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for old, other := range map[string]string{
		"grace = 20_000": "grace = 1",
		`topic === "demo.conformance" ? conformance : echo`: deafNode,
	} {
		if strings.Count(text, old) != 1 {
			t.Fatalf("worker.mjs has no %s, or several", old)
		}
		text = strings.Replace(text, old, other, 1)
	}
	if err := root.WriteFile("deaf.mjs", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "deaf.mjs"
}
