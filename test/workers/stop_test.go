// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/traces/otlptest"
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

// The end of a job that is at work meanwhile is in its span.
//
// mutation: leave of nats.mjs that does not call last makes this fail.
func TestTheSampleWorkersSendTheirLastSpansWhileNATSIsAway(t *testing.T) {
	t.Parallel()
	for name, one := range programs(t) {
		if name == "short.mjs" {
			continue // it has no spans
		}
		hasty := hasty(t, name, one, false)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, collector := start(t), otlptest.Start(t)
			o := operateAt(t, Config{URL: server.URL(), AckWait: time.Hour})
			id := newJob("long")
			if _, err := o.forge(t.Context(), id, sleep(time.Hour).bytes(), func(m *nats.Msg) {
				m.Header.Set(protocol.HeaderTraceParent, "00-"+aTrace+"-"+aParent+"-01")
			}); err != nil {
				t.Fatal(err)
			}
			p := runs(t, hasty.dir, []string{"NATS_URL=" + server.URL(), "OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL}, hasty.args...)
			o.has(t, o.names.ResultsStream(), 1)
			server.Stop()
			ends(t, p)
			if got := spansOf(collector); len(got) != 1 || !strings.HasPrefix(got[0], id.String()+" below "+aParent) {
				t.Errorf("spans %q\n%s", got, p.Output())
			}
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

// noGrace is the Python worker without a grace period. It has a place for a handler.
const noGrace = `
import os, signal, threading, worker
%s
signals = {signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
worker.GRACE = 0
worker.Worker(worker.NATS(os.environ["NATS_URL"]), "` + DefaultTopic + `", handle).run(lambda: signal.sigwait(signals))
`

// deafPython has a job end when it was cancelled and its grace has ended, in whatever order.
const deafPython = `
ends, stop = {worker.ACK: threading.Event(), worker.NAK: threading.Event()}, worker.Job.stop

def stops(job, word):
    stop(job, word)
    ends[word].set()
    worker.log("cancelled" if word == worker.ACK else "grace is over")

def handle(given, stopped, fences, traceparent):
    worker.log("listens")
    for end in ends.values():
        end.wait()
    return "late"

worker.Job.stop = stops
`

// deafNode is the same for Node. deafStop tells it of words.
const (
	stopNode = "job.stop = (word) => {"
	deafStop = stopNode + ` setImmediate(() => process.emit("said " + word));`
	deafNode = `() => new Promise((done) => {
  let left = 2;
  for (const [word, text] of [["ack", "cancelled"], ["nak", "grace is over"]])
    process.once("said " + word, () => { console.error(text); if (--left === 0) done("late"); });
  console.error("listens");
})`
)

// hasty is a worker without a grace period, whose spans go out at its end; deaf, with a handler
// that hears of nothing.
func hasty(t *testing.T, name string, one program, deaf bool) program {
	t.Helper()
	if name == "worker.py" {
		handler := "handle = worker.conformance"
		if deaf {
			handler = deafPython
		}
		return program{one.dir, []string{"python3", "-B", "-c", fmt.Sprintf(noGrace, handler)}}
	}
	edits := map[string]string{"grace = 1_000 * Number(seconds)": "grace = 1", "./traces.mjs": "./late.mjs"}
	edited(t, one.dir, "traces.mjs", "late.mjs", map[string]string{"scheduledDelayMillis: 1_000": "scheduledDelayMillis: 3_600_000"})
	if deaf {
		edits[`topic === "demo.conformance" ? conformance : echo`], edits[stopNode] = deafNode, deafStop
	}
	edited(t, one.dir, "worker.mjs", "hasty.mjs", edits)
	return program{one.dir, []string{"node", "hasty.mjs", DefaultTopic}}
}

// GRACE_SECONDS goes with the pod's terminationGracePeriodSeconds. Without a grace period the job
// goes back at once; in the default one it would come to its end.
//
// mutation: a worker that does not read the variable says +ACK.
func TestTheNodeWorkerHasTheGracePeriodOfTheEnvironment(t *testing.T) {
	t.Parallel()
	url := start(t).URL()
	o := operateAt(t, Config{URL: url, AckWait: time.Hour})
	if _, err := o.dispatch(t.Context(), newJob("long"), sleep(15*time.Second)); err != nil {
		t.Fatal(err)
	}
	words := o.overhear(t, "$JS.ACK.>")
	p := runs(t, installNode(t), []string{"NATS_URL=" + url, "GRACE_SECONDS=0"}, "node", "worker.mjs", DefaultTopic)
	o.has(t, o.names.ResultsStream(), 1) // Started
	ends(t, p)
	if m := heard(t, words); string(m.Data) != "-NAK" {
		t.Errorf("it says %s", m.Data)
	}
}

// mutation: a worker that does not read the variable says 20.
func TestThePythonWorkerHasTheGracePeriodOfTheEnvironment(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	for text, want := range map[string]string{"": "20", "0": "0", "45": "45", "999999": "999999"} {
		p := runs(t, filepath.Join(examples, "worker-python"), []string{"GRACE_SECONDS=" + text}, "python3", "-B", "-c", "import worker; worker.log(worker.GRACE)")
		if code := exitCode(t, p); code != 0 || strings.TrimSpace(p.Output()) != want {
			t.Errorf("%q: %s", text, p.Output())
		}
	}
}

// mutations of both: a value that nobody checks has the worker run on, or end at once at SIGTERM.
func TestTheSampleWorkersRefuseAGracePeriodThatIsNone(t *testing.T) {
	t.Parallel()
	for name, one := range programs(t) {
		if name == "short.mjs" {
			continue // it has none
		}
		for _, text := range []string{"45s", "-1", "1.5", "1e3", " 45", "45\n", "1000000"} {
			t.Run(fmt.Sprintf("%s %q", name, text), func(t *testing.T) {
				t.Parallel()
				one.refuses(t, "GRACE_SECONDS", text, "a whole number of seconds, 0 to 999999")
			})
		}
	}
}

// mutations of both: a value that nobody checks has the worker run on, with no slot for 0.
func TestTheSampleWorkersRefuseANumberOfJobsThatIsNone(t *testing.T) {
	t.Parallel()
	for name, one := range programs(t) {
		if name == "short.mjs" {
			continue // it does one
		}
		for _, text := range []string{"0", "-1", "1.5", "four", "1000", "4\n"} {
			t.Run(fmt.Sprintf("%s %q", name, text), func(t *testing.T) {
				t.Parallel()
				one.refuses(t, "CONCURRENCY", text, "a whole number, 1 to 999")
			})
		}
	}
}

// refuses wants that a program ends when it is started with a variable.
func (one program) refuses(t *testing.T, variable, text, want string) {
	t.Helper()
	p := runs(t, one.dir, []string{"NATS_URL=nats://127.0.0.1:1", variable + "=" + text}, one.args...)
	if code := exitCode(t, p); code != 2 || strings.TrimSpace(p.Output()) != variable+": want "+want {
		t.Errorf("exit code %d: %s", code, p.Output())
	}
}

// mutation of both: a worker that does not read the variable begins four.
func TestTheSampleWorkersDoAsManyJobsAsTheEnvironmentSays(t *testing.T) {
	t.Parallel()
	const many = DefaultConcurrency + 1
	for name, one := range programs(t) {
		if name == "short.mjs" {
			continue // it does one
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t).URL()
			o := operateAt(t, Config{URL: url, AckWait: time.Hour})
			for range many {
				if _, err := o.dispatch(t.Context(), newJob("long"), sleep(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			runs(t, one.dir, []string{"NATS_URL=" + url, fmt.Sprint("CONCURRENCY=", many)}, one.args...)
			o.has(t, o.names.ResultsStream(), many) // Started
		})
	}
}

// A worker whose clock is ahead throws good work away, and nothing else tells of it.
//
// mutation of both: an end by the deadline that says nothing makes this fail.
func TestTheSampleWorkersSayThatADeadlinePassed(t *testing.T) {
	t.Parallel()
	for name, one := range programs(t) {
		if name == "short.mjs" {
			continue // it does not look at the deadline of what it does
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t).URL()
			o := operateAt(t, Config{URL: url, AckWait: time.Hour})
			p := runs(t, one.dir, []string{"NATS_URL=" + url}, one.args...)
			o.waitsForJobs(t)
			id := newJob("long")
			if _, err := o.forge(t.Context(), id, sleep(time.Hour).bytes(), func(m *nats.Msg) {
				m.Header.Set(protocol.HeaderDeadline, time.Now().Add(3*time.Second).UTC().Format(time.RFC3339Nano))
			}); err != nil {
				t.Fatal(err)
			}
			o.has(t, o.names.JobsStream(), 0)
			if said := p.Output(); !strings.Contains(said, id.String()+": stopped, its deadline was ") || !strings.Contains(said, " and it is ") {
				t.Error(said)
			}
		})
	}
}

// A job that is cancelled, or whose deadline has passed, is not wanted any more, also if the grace
// ends before its handler does: before the cancel, or after it.
//
// mutations of both: a stop that takes the first word, or the last one, publishes the value in one
// of the two orders.
func TestTheSampleWorkersGiveBackNoJobThatIsNotWanted(t *testing.T) {
	t.Parallel()
	for name, one := range programs(t) {
		if name == "short.mjs" {
			continue // it has no cancelling
		}
		deaf := hasty(t, name, one, true)
		for _, order := range [][]string{{"cancelled", "grace is over"}, {"grace is over", "cancelled"}} {
			t.Run(name+" "+order[0], func(t *testing.T) {
				t.Parallel()
				url := start(t).URL()
				o := operateAt(t, Config{URL: url, AckWait: time.Hour})
				id := newJob("deaf")
				if _, err := o.dispatch(t.Context(), id, input{Do: "succeed"}); err != nil {
					t.Fatal(err)
				}
				p := runs(t, deaf.dir, []string{"NATS_URL=" + url}, deaf.args...)
				says := func(what string) {
					if err := o.await(t.Context(), what, func() (bool, error) { return strings.Contains(p.Output(), what), nil }); err != nil {
						t.Fatal(err)
					}
				}
				says("listens") // else the handler may come after the word
				words := o.overhear(t, "$JS.ACK.>")
				for _, what := range order {
					if what == "cancelled" {
						if err := o.nc.Publish(o.names.Control(id.RunUID), []byte(`{"action":"Cancel"}`)); err != nil {
							t.Fatal(err)
						}
					} else if err := childOf(t, p).cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Fatal(err)
					}
					says(what)
				}
				if code := exitCode(t, p); code != 0 {
					t.Errorf("exit code %d", code)
				}
				acksOnly(t, o, id, words)
			})
		}
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

// edited writes a file again as another one, with other texts in the place of some.
func edited(t *testing.T, dir, from, to string, edits map[string]string) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	b, err := root.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for old, other := range edits {
		if strings.Count(text, old) != 1 {
			t.Fatalf("%s has no %s, or several", from, old)
		}
		text = strings.Replace(text, old, other, 1)
	}
	if err := root.WriteFile(to, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
