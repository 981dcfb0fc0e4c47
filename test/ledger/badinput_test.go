// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/book"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	badTopic = "ledger.bad"
	// maxTries is after how many deliveries at the latest bad input is put aside.
	maxTries = 3
	patience = 2 * time.Minute
)

// fate is what becomes of a message.
type fate struct {
	reason string // of its dead letter; "": there is none
	// refused says which error its sender gets instead of a PubAck; nil: it is stored.
	refused error
	// costs says that the attempt has failed by it: whoever sent it had the token. The step
	// is tried again.
	costs bool
}

// TestBadInputIsPutAsideWithAReasonAndDelaysNobody publishes one bad message for each of many runs,
// all at once, and right behind them a good one for another step of each run, which is on the same
// path through NATS and the operator.
//
// mutation: a bus that NAKs what it cannot read for ever, or one that acknowledges it (buryPoison),
// makes this fail.
func TestBadInputIsPutAsideWithAReasonAndDelaysNobody(t *testing.T) {
	ctx := t.Context()
	w := newWorld(ctx, t)
	w.policy(ctx, v1alpha1.LockPolicySpec{Delivery: v1alpha1.DeliveryPolicy{MaxDeliveries: maxTries}})
	o := w.startOperator(ctx, "operator")
	d := w.openDesk(ctx, badTopic)
	cases := badMessages(t, w.keys(ctx))
	names := sortedKeys(cases)
	w.create(ctx, numbered("case", len(cases), parallelSteps(badTopic, 2)))
	jobs := d.pairs(ctx, t, len(cases))

	storedBefore, deliveredBefore := w.counts(ctx)
	begin := time.Now()
	sent := map[string]string{} // the case of a message, by its sequence
	for i, name := range names {
		if sequence := w.send(ctx, t, name, cases[name].make(jobs[i].bad), cases[name].fate); sequence > 0 {
			sent[strconv.FormatUint(sequence, 10)] = name
		}
	}
	for i := range names {
		w.publish(ctx, jobs[i].good.message(book.Success()))
	}
	w.awaitSteps(ctx, book.StepName(1), len(cases))
	neighbours := time.Since(begin)

	letters := w.awaitLetters(ctx, t, sent)
	storedAfter, deliveredAfter := w.counts(ctx)
	for i, name := range names {
		t.Run(name, func(t *testing.T) { expectLetter(t, jobs[i].bad, cases[name], letters[name]) })
	}
	if t.Failed() {
		return // what follows would wait in vain
	}
	// By the consumers' own count: every message once, and again at most twice the few that may yet
	// turn out to be good.
	if again, most := (deliveredAfter-deliveredBefore)-(storedAfter-storedBefore), uint64((maxTries-1)*waiting(cases)); again > most {
		t.Errorf("%d redeliveries, at most %d are right", again, most)
	}
	w.finishCases(ctx, d, names, cases, jobs)
	t.Logf("%d bad messages; their neighbours were done after %s; %d redeliveries; stale: %.0f", len(cases), neighbours.Round(time.Millisecond),
		(deliveredAfter-deliveredBefore)-(storedAfter-storedBefore), o.counter(ctx, "syncopate_results_total", results.OutcomeStale))
	if neighbours > tolerance*leastBound {
		t.Errorf("good results beside the bad ones took %s", neighbours)
	}
}

// finishCases shows that no bad message made a good result vanish: each job is answered now, as if
// nothing had been.
func (w *world) finishCases(ctx context.Context, d *desk, names []string, cases map[string]badCase, jobs []pair) {
	w.tb.Helper()
	costly := 0
	for i, name := range names {
		if cases[name].fate.costs {
			costly++
			continue
		}
		w.publish(ctx, jobs[i].bad.message(book.Success()))
	}
	for _, j := range d.take(ctx, w.tb, patience, costly) {
		w.publish(ctx, j.message(book.Success()))
	}
	w.awaitSteps(ctx, book.StepName(0), len(cases))
	w.expectSettled(ctx, patience)
	for _, run := range w.runs(ctx) {
		i, err := strconv.Atoi(run.Name[len("case-"):])
		if err != nil {
			w.tb.Fatal(err)
		}
		name, condition := names[i], meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionDeadLettered)
		want := v1alpha1.ReasonNoDeadLetters
		if is := cases[name].fate; is.reason == deadletters.ReasonResultRejected || is.reason == deadletters.ReasonDeliveriesExhausted {
			want = is.reason
		}
		if run.Status.Phase != v1alpha1.RunSucceeded || condition == nil || condition.Reason != want {
			w.tb.Errorf("%s: the run is %s, DeadLettered: %+v, want %s", name, run.Status.Phase, condition, want)
		}
	}
}

// expectLetter compares what was put aside with what was sent.
func expectLetter(t *testing.T, j deskJob, c badCase, letters []*jetstream.RawStreamMsg) {
	t.Helper()
	if c.fate.reason == "" {
		if len(letters) != 0 {
			t.Errorf("dead letter %v", letters[0].Header)
		}
		return
	}
	if len(letters) != 1 {
		t.Fatalf("%d dead letters", len(letters))
	}
	h, sent := letters[0].Header, c.make(j)
	tries, err := strconv.Atoi(h.Get(deadletters.HeaderDeliveries))
	if err != nil || tries < 1 || tries > maxTries {
		t.Errorf("%s deliveries", h.Get(deadletters.HeaderDeliveries))
	}
	body := sent.Data
	if size := h.Get(deadletters.HeaderSize); size == strconv.Itoa(len(body)) {
		body = body[:min(len(body), len(letters[0].Data))] // what can never be applied keeps the beginning
	}
	if diff := cmp.Diff([]string{c.fate.reason, sent.Subject, string(body)}, []string{
		h.Get(deadletters.HeaderReason), h.Get(deadletters.HeaderSubject), string(letters[0].Data),
	}); diff != "" || h.Get(deadletters.HeaderError) == "" {
		t.Errorf("dead letter (-want +got):\n%s%v", diff, h)
	}
	t.Logf("%s after %d deliveries: %s", c.fate.reason, tries, h.Get(deadletters.HeaderError))
}

// pair are the two jobs of a run.
type pair struct{ bad, good deskJob }

func (d *desk) pairs(ctx context.Context, tb testing.TB, n int) []pair {
	tb.Helper()
	all := make([]pair, n)
	for _, j := range d.take(ctx, tb, patience, 2*n) {
		i, err := strconv.Atoi(j.run[len("case-"):])
		switch {
		case err != nil:
			tb.Fatal(err)
		case j.id.Step == book.StepName(0):
			all[i].bad = j
		default:
			all[i].good = j
		}
	}
	return all
}

// send publishes a message of a case, holds the server's answer against its fate, and gives the
// message's sequence; 0: it was refused.
func (w *world) send(ctx context.Context, t *testing.T, name string, m *nats.Msg, is fate) uint64 {
	t.Helper()
	ack, err := w.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(1))
	if !errors.Is(err, is.refused) {
		t.Errorf("%s: published with %v, want %v", name, err, is.refused)
	}
	if err != nil {
		return 0
	}
	return ack.Sequence
}

// counts are the messages that the stream of results ever stored, and how often its
// consumers delivered one.
func (w *world) counts(ctx context.Context) (stored, delivered uint64) {
	w.tb.Helper()
	state, err := w.stream(ctx, w.names.ResultsStream())
	if err != nil {
		w.tb.Fatal(err)
	}
	if delivered, err = w.deliveries(ctx); err != nil {
		w.tb.Fatal(err)
	}
	return state.LastSeq, delivered
}

// awaitSteps waits until a step has succeeded in so many runs.
func (w *world) awaitSteps(ctx context.Context, step string, n int) {
	w.tb.Helper()
	await(ctx, w.tb, patience, fmt.Sprintf("%s succeeds in %d runs", step, n), func() string {
		done := 0
		var missing string
		for _, run := range w.runs(ctx) {
			if !run.Unwritten() && slices.ContainsFunc(run.Status.Steps, func(s v1alpha1.StepStatus) bool {
				return s.Name == step && s.Phase == v1alpha1.StepSucceeded
			}) {
				done++
			} else {
				missing = run.Name
			}
		}
		if done < n {
			return fmt.Sprintf("in %d, not in %s", done, missing)
		}
		return ""
	})
}

// awaitLetters waits until all bad messages are settled, and returns the dead letters by case.
func (w *world) awaitLetters(ctx context.Context, t *testing.T, sent map[string]string) map[string][]*jetstream.RawStreamMsg {
	t.Helper()
	w.expectSettled(ctx, patience)
	s, err := w.js.Stream(ctx, w.names.DeadLettersStream())
	if err != nil {
		t.Fatal(err)
	}
	byCase := map[string][]*jetstream.RawStreamMsg{}
	for sequence := uint64(1); sequence <= s.CachedInfo().State.LastSeq; sequence++ {
		m, err := s.GetMsg(ctx, sequence)
		if err != nil {
			t.Fatal(err)
		}
		name, known := sent[m.Header.Get(deadletters.HeaderSequence)]
		if !known {
			t.Errorf("dead letter of no case: %v", m.Header)
		}
		byCase[name] = append(byCase[name], m)
	}
	return byCase
}

// waiting are the cases whose message is delivered more than once.
func waiting(cases map[string]badCase) int {
	n := 0
	for _, c := range cases {
		if c.fate.reason == deadletters.ReasonDeliveriesExhausted {
			n++
		}
	}
	return n
}

// keys are those by which the operators sign tokens: the worst of forgers has them.
func (w *world) keys(ctx context.Context) keys.Keyring {
	w.tb.Helper()
	secret := &corev1.Secret{}
	if err := site.k8s.Get(ctx, client.ObjectKey{Namespace: devenv.OperatorNamespace, Name: "syncopate-result-keys"}, secret); err != nil {
		w.tb.Fatal(err)
	}
	return keys.Keyring{Current: keys.Key{ID: string(secret.Data["current-id"]), Secret: secret.Data["current"]}}
}

// forged is a message about another job, with a good token for it.
func forged(keys keys.Keyring, names protocol.Names, id protocol.JobID) *nats.Msg {
	token := keys.Sign(id)
	return deskJob{id: id, reply: names.Result(id), token: token}.message(book.Success())
}

// TestAnOutputOf10MBEndsItsStepWithAReason shows what a worker of the SDK makes of a refusal:
// nobody waits for a result that cannot come.
//
// mutation: a worker that publishes the same again after a refusal, or gives the job back,
// makes this fail.
func TestAnOutputOf10MBEndsItsStepWithAReason(t *testing.T) {
	ctx := t.Context()
	w := newWorld(ctx, t)
	h := w.follow(ctx, func(_, _ *v1alpha1.WorkflowRun, _ time.Time) {})
	w.startOperator(ctx, "operator")
	wk := worker.New(w.dial(), worker.Options{Prefix: w.names.Prefix, BindInterval: look})
	wk.Handle(badTopic, func(context.Context, worker.Job) (any, error) { return strings.Repeat("x", 10_000_000), nil })
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- wk.Run(running) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	w.create(ctx, numbered("large", 1, parallelSteps(badTopic, 1)))
	awaitFinished(ctx, t, h, patience, 1)
	step := w.runs(ctx)[0].Status.Steps[0]
	if step.Phase != v1alpha1.StepFailed || step.Attempt != 1 || step.Error == nil || step.Error.Code != worker.CodeTooLarge || step.Error.Message == "" {
		t.Errorf("step %+v, error %+v", step, step.Error)
	}
	w.expectSettled(ctx, patience)
	w.expectDeadLetters(ctx, 0)
}
