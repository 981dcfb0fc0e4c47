// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// waitingRun is one whose step fetch was dispatched, and is at an attempt.
func waitingRun(name, uid string, attempt int32) *v1alpha1.WorkflowRun {
	run := testRun("team-a", name, uid)
	run.Status = &v1alpha1.WorkflowRunStatus{
		Phase: v1alpha1.RunRunning,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonRunning, Message: "0 of 1 steps are over",
		}},
		Steps: []v1alpha1.StepStatus{{
			Name: "fetch", Phase: v1alpha1.StepDispatched, Attempt: attempt,
			DispatchedAt: &metav1.MicroTime{Time: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)},
		}},
	}
	return run
}

// On a real NATS. A result with a wrong token is put aside, and the step waits on; so is one of an
// attempt that is not there.
//
// mutation: letters of attempts that are over, or no letters of later ones, make this fail.
func TestWhySaysThatAnAnswerWasPutAside(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, waitingRun("report", "uid-1", 2), waitingRun("ahead", "uid-2", 1), waitingRun("past", "uid-3", 2))
	p.nats = natstest.Start(t)
	o := startOperator(t, p.nats)
	o.bury(job("uid-1", 1), "ResultRejected", `{"status":"Done"}`)
	o.bury(job("uid-1", 2), "ResultRejected", `{"status":"Done"}`)
	o.bury(job("uid-2", 7), "Stale", succeeded)
	o.bury(job("uid-3", 1), "ResultRejected", succeeded)
	const put = "step fetch  an answer of attempt "
	for name, want := range map[string]string{
		"report": put + "2 was put aside: dead letter 2, ResultRejected; cause", "ahead": put + "7 was put aside: dead letter 3, Stale", "past": "",
	} {
		got := p.must("why", name)
		if (want == "") == strings.Contains(got, put) || !strings.Contains(got, want) || strings.Contains(got, "\x1b") {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	if got := p.must("why", "report", "-o", "json"); !strings.Contains(got, "dead letter 2") {
		t.Errorf("JSON:\n%s", got)
	}
}

// On a real NATS: a worker that takes a job and hangs. The job is delivered again and again.
//
// mutation: jobs that other workers ended counted as deliveries of this one, or Again taken for
// deliveries, make this fail.
func TestWhySaysHowOftenAJobWasDelivered(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, waitingRun("report", "uid-1", 1))
	p.nats = natstest.Start(t)
	startOperator(t, p.nats) // makes the streams
	w := newWorkers(t, p.nats)
	why := func(want string) {
		t.Helper()
		if got := p.must("why", "report"); !strings.Contains(got, want) {
			t.Errorf("want %q:\n%s", want, got)
		}
	}
	whySoon := func(want string) { // a consumer counts what waits for it shortly after the stream has kept it
		t.Helper()
		bustest.Eventually(t, want, func() bool { return strings.Contains(p.must("why", "report"), want) })
	}
	why("waits for a worker of topic t (attempt 1), since") // NATS has no job yet
	w.dispatch(job("uid-0", 1))
	if err := w.take(1)[0].DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.dispatch(job("uid-1", 1))
	whySoon("waits for a worker of topic t (attempt 1); its job was not delivered to any yet")
	for _, times := range []string{"once", "twice", "2 to 3 times"} {
		hung := w.take(1)[0]
		why("step fetch  waits for an answer from topic t (attempt 1); its job was delivered " + times + " and not answered, since")
		why("The run waits for an answer: fetch (Running)")
		if err := hung.Nak(); err != nil {
			t.Fatal(err)
		}
	}
	w.dispatch(job("uid-2", 1))
	whySoon("whether its job was delivered is not known; jobs of the topic: 1 not delivered, 1 delivered and not answered (1 more than once)")
	w.take(2)
	why("its job was delivered and not answered; jobs of the topic: 2 delivered and not answered (1 more than once)")
}

// On a real NATS.
//
// mutation: why that says nothing of a job that is gone, or says it of another cluster's NATS or of
// one that names none, makes this fail.
func TestWhySaysThatAJobIsGone(t *testing.T) {
	t.Parallel()
	run := waitingRun("report", "uid-1", 1)
	for installation, want := range map[string]bool{"mine": true, "theirs": false, "": false} {
		p := newPlugin(t, run, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "mine"}})
		p.nats = natstest.Start(t)
		conn := bustest.Connect(t, bus.Config{URL: p.nats.URL(), Installation: installation})
		bustest.Eventually(t, "streams", func() bool { return conn.EnsureStreams(t.Context()) == nil })
		const gone = "step fetch  waits for a worker of topic t (attempt 1); its job is not in the stream of jobs: it was answered and the operator has " +
			"not taken that yet, or a worker acknowledged it without an answer, or it is lost; a job of which there is no answer in NATS " +
			"is published again once, within 15 min, by an operator that runs"
		if got := p.must("why", "report"); strings.Contains(got, gone) != want {
			t.Errorf("of %q:\n%s", installation, got)
		}
		newWorkers(t, p.nats).dispatch(job("uid-1", 1))
		if got := p.must("why", "report"); strings.Contains(got, gone) {
			t.Errorf("of %q, with the job:\n%s", installation, got)
		}
	}
}

// mutation: a note where nobody said that there is a NATS, or an error, makes this fail.
func TestWhyIsQuietWithoutNATS(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, waitingRun("report", "uid-1", 1), testRun("team-a", "new", "uid-2"))
	if got := p.must("why", "report"); !strings.Contains(got, "waits for workers: fetch") {
		t.Errorf("not told where NATS is:\n%s", got)
	}
	out, note, err := p.call("why", "report", "--nats-url", "nats://127.0.0.1:1")
	if err != nil || !strings.Contains(out, "waits for workers: fetch") || !strings.HasPrefix(note, "NATS did not answer all: ") || strings.Count(note, "\n") != 1 {
		t.Errorf("NATS is not there: %s, note %q, %v", out, note, err)
	}
	if _, note, err := p.call("why", "new", "--nats-url", "nats://127.0.0.1:1"); err != nil || note != "" {
		t.Errorf("a run with nothing to ask about: note %q, %v", note, err)
	}
}

// workers pull the jobs of topic t, of names, without answering.
type workers struct {
	t        *testing.T
	names    protocol.Names
	js       jetstream.JetStream
	consumer jetstream.Consumer
}

func newWorkers(t *testing.T, s *natstest.Server) *workers {
	t.Helper()
	nc, err := nats.Connect(s.URL(), natstest.Patient())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	w := &workers{t: t, names: protocol.Names{Prefix: protocol.DefaultPrefix}}
	if w.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	w.consumer, err = w.js.CreateConsumer(t.Context(), w.names.JobsStream(), jetstream.ConsumerConfig{
		Durable: protocol.Durable("t"), FilterSubject: w.names.TopicJobs("t"), AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// dispatch publishes the job of an attempt.
func (w *workers) dispatch(id protocol.JobID) {
	w.t.Helper()
	if _, err := w.js.Publish(w.t.Context(), w.names.Job("t", id), []byte("{}")); err != nil {
		w.t.Fatal(err)
	}
}

// take gives so many jobs to a worker.
func (w *workers) take(n int) []jetstream.Msg {
	w.t.Helper()
	batch, err := w.consumer.Fetch(n, jetstream.FetchMaxWait(patience))
	if err != nil {
		w.t.Fatal(err)
	}
	var got []jetstream.Msg
	for m := range batch.Messages() {
		got = append(got, m)
	}
	if batch.Error() != nil || len(got) != n {
		w.t.Fatalf("%d jobs, want %d: %v", len(got), n, batch.Error())
	}
	return got
}
