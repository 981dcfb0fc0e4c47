// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// refused is what an admission policy says to a write.
func refused() error {
	return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), "x", errTest)
}

// refusing refuses writes with the result of an attempt in them.
func refusing(step string, attempt int32) func(*v1alpha1.WorkflowRun) error {
	return func(run *v1alpha1.WorkflowRun) error {
		for _, s := range run.Status.Steps {
			if s.Name == step && s.Attempt == attempt && s.Phase == v1alpha1.StepSucceeded {
				return refused()
			}
		}
		return nil
	}
}

// of are the settlements of the results of one step.
func of(step string, list []settled) []settled {
	var own []settled
	for _, s := range list {
		if s.id.Step == step {
			own = append(own, s)
		}
	}
	return own
}

func (w *world) deadLetters(ctx context.Context) []*jetstream.RawStreamMsg {
	GinkgoHelper()
	s, err := w.js.Stream(ctx, w.names.DeadLettersStream())
	Expect(err).NotTo(HaveOccurred())
	var all []*jetstream.RawStreamMsg
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, m)
	}
	return all
}

// Mutations that make specs below fail:
//   - giveback.go GiveBack without the budget, or with > for >=: too many tries.
//   - refused.go unwritten that does not halve: the neighbour fails as often, and is put aside too.
//   - batch.go Bury that does not look at Told: the result is put aside while Redis is away, before
//     status says so.
//   - busresults.CountsAsFailure true for lock_busy: contention makes dead letters.
//   - decide.go input without MaxRetryAfter; act.go record without Granted.
//   - observe.go observe that ignores atOnce: the write with the refused result is tried for ever.
var _ = Describe("a result that the API server refuses", func() {
	var (
		w *world
		r *replica
	)
	budget := func(ctx context.Context, n int32) {
		w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{Delivery: v1alpha1.DeliveryPolicy{MaxDeliveries: n, MaxDelaySeconds: 1}})
	}
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		r = w.newReplica(ctx, "r")
	}, NodeTimeout(patience))

	// mutation: putUnchanged that takes each conflict for a refusal.
	It("by the code of a conflict is put aside as well, and no other is", func(ctx SpecContext) {
		budget(ctx, 3)
		run := w.create(ctx, diamond())
		r.refuse = func(now *v1alpha1.WorkflowRun) error {
			if refusing("a", 1)(now) == nil {
				return nil
			}
			return asConflict(now)
		}
		r.inFlight(ctx, run, 2)
		for _, t := range w.takeAll(ctx, 2) {
			t.succeed(ctx)
		}
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return reason(now, v1alpha1.ConditionDeadLettered) == v1alpha1.ReasonDeliveriesExhausted
		})
		Expect(stepOf(w.get(ctx, run), "b").Phase).To(Equal(v1alpha1.StepSucceeded))
		for _, s := range of("b", w.settledWith(run)) {
			Expect(s.failures).To(BeZero())
		}
	}, NodeTimeout(2*patience))

	It("is tried as often as the policy says, then put aside as it came; nobody else notices, and its step goes on", func(ctx SpecContext) {
		budget(ctx, 3)
		steps := diamond()
		steps[0].StartTimeoutSeconds = 60
		run, other := w.create(ctx, steps), w.create(ctx, diamond())
		r.refuse = func(now *v1alpha1.WorkflowRun) error {
			if now.UID != run.UID {
				return nil
			}
			return refusing("a", 1)(now)
		}
		r.inFlight(ctx, run, 2)
		r.inFlight(ctx, other, 2)
		for _, t := range w.takeAll(ctx, 4) {
			t.succeed(ctx)
		}
		until(ctx, "it is told", func() bool {
			r.turn(ctx, run)
			r.turn(ctx, other)
			return reason(w.get(ctx, run), v1alpha1.ConditionDeadLettered) == v1alpha1.ReasonDeliveriesExhausted
		})
		tries := of("a", w.settledWith(run))
		Expect(tries).To(HaveLen(3))
		for i, s := range tries {
			Expect(s.failures).To(Equal(i))
			Expect(s.err).To(MatchError(ContainSubstring(errTest.Error())))
			_, permanent := errors.AsType[*busresults.PermanentError](s.err)
			Expect(permanent).To(Equal(i == 2))
		}
		id := tries[0].id
		neighbour := of("b", w.settledWith(run))
		Expect(neighbour).To(HaveLen(1))
		Expect(neighbour[0].err).NotTo(HaveOccurred(), "in the same run")
		for _, s := range w.settledWith(other) {
			Expect(s.err).NotTo(HaveOccurred(), "a neighbour in another run")
		}

		letters := w.deadLetters(ctx)
		Expect(letters).To(HaveLen(1))
		Expect(letters[0].Subject).To(Equal(w.names.DeadLetterOf("DeliveriesExhausted", id)))
		Expect(string(letters[0].Data)).To(Equal(succeeded(id)))
		token := testKeys.Sign(id)
		Expect(letters[0].Header.Get(protocol.HeaderToken)).To(Equal(token))
		Expect(letters[0].Header.Get(deadletters.HeaderOriginalPrefix + protocol.HeaderMsgID)).To(HavePrefix(protocol.ResultMsgID(id, token)))
		Expect(letters[0].Header.Get(deadletters.HeaderDeliveries)).To(MatchRegexp("^[3-9]$"), "more, if an answer took longer than AckWait")

		c := meta.FindStatusCondition(w.get(ctx, run).Status.Conditions, v1alpha1.ConditionDeadLettered)
		Expect(c.Status).To(Equal(metav1.ConditionTrue))
		Expect(c.Message).To(And(ContainSubstring("step a, attempt 1"), ContainSubstring("after 3 failed deliveries"), ContainSubstring(errTest.Error())))
		Expect(r.recorder.count("Warning DeliveriesExhausted")).To(Equal(1))
		Expect(r.counter("syncopate_dead_letters_total", "reason", "DeliveriesExhausted")).To(BeEquivalentTo(1))
		Expect(r.counter("syncopate_results_total", "outcome", "dead_lettered")).To(BeEquivalentTo(1))

		w.clock.Step(61 * time.Second)
		end := r.finish(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(end.Status.Steps[0].Attempt).To(BeEquivalentTo(2), "the time-out ended the first attempt, and it was retried")
		Expect(reason(end, v1alpha1.ConditionDeadLettered)).To(Equal(v1alpha1.ReasonDeliveriesExhausted), "it stays told")
		Expect(r.recorder.count("Warning DeliveriesExhausted")).To(Equal(1))
		r.finish(ctx, other)
	}, NodeTimeout(2*patience))

	It("is told of once, also when the write without it is refused as well, and when its answer is lost", func(ctx SpecContext) {
		budget(ctx, 1)
		run := w.create(ctx, diamond())
		r.inFlight(ctx, run, 2)
		w.takeAll(ctx, 2)[0].succeed(ctx)
		told := 0
		r.refuse = func(now *v1alpha1.WorkflowRun) error {
			if reason(now, v1alpha1.ConditionDeadLettered) == v1alpha1.ReasonDeliveriesExhausted {
				if told++; told <= 2 {
					return refused()
				}
				return nil
			}
			return errors.Join(refusing("a", 1)(now), refusing("b", 1)(now))
		}
		r.hook = func(_ context.Context, at string) error {
			if at == "status/after" && told == 3 {
				told++
				return apierrors.NewTimeoutError("the answer is lost", 1)
			}
			return nil
		}
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			w.clock.Step(time.Second) // the second refusal waits longer than a turn
			return reason(now, v1alpha1.ConditionDeadLettered) == v1alpha1.ReasonDeliveriesExhausted && len(r.Batches.Inbox.Waiting(run.UID)) == 0
		})
		written := w.get(ctx, run).ResourceVersion
		for range 5 {
			r.turn(ctx, run)
		}
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(written), "told once")
		Expect(w.deadLetters(ctx)).To(HaveLen(1))
		Expect(r.recorder.count("Warning DeliveriesExhausted")).To(BeNumerically("<=", 1), "as with every event of a write whose answer was lost")
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		r.drive(ctx, run, finished)
	}, NodeTimeout(2*patience))

	It("is told of when Redis is back, if it went away in between", func(ctx SpecContext) {
		budget(ctx, 1)
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		r.refuse = refusing("a", 1)
		r.inFlight(ctx, run, 1)
		w.takeAll(ctx, 1)[0].succeed(ctx)
		until(ctx, "it is given up", func() bool {
			r.turn(ctx, run)
			return slices.ContainsFunc(r.Batches.Inbox.Waiting(run.UID), func(p *results.Pending) bool { return p.Exhausted != nil })
		})
		r.hook = func(_ context.Context, at string) error {
			if at == "acquire/before" {
				return errTest
			}
			return nil
		}
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return reason(now, v1alpha1.ConditionRunLockRenewed) == v1alpha1.ReasonLockStoreUnavailable
		})
		Expect(reason(w.get(ctx, run), v1alpha1.ConditionDeadLettered)).To(Equal(v1alpha1.ReasonNoDeadLetters))
		Expect(w.messages(ctx, w.names.DeadLettersStream())).To(BeZero(), "status says so first")
		r.hook = nil
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return reason(now, v1alpha1.ConditionDeadLettered) == v1alpha1.ReasonDeliveriesExhausted
		})
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		r.drive(ctx, run, finished)
	}, NodeTimeout(2*patience))

	It("stays where it is while the dead letter cannot be stored", func(ctx SpecContext) {
		budget(ctx, 1)
		stream, err := w.js.Stream(ctx, w.names.DeadLettersStream())
		Expect(err).NotTo(HaveOccurred())
		config := stream.CachedInfo().Config
		config.MaxMsgSize = 10
		_, err = w.js.UpdateStream(ctx, config)
		Expect(err).NotTo(HaveOccurred())

		run := w.create(ctx, []v1alpha1.Step{step("a")})
		r.refuse = refusing("a", 1)
		r.inFlight(ctx, run, 1)
		w.takeAll(ctx, 1)[0].succeed(ctx)
		r.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool { return len(w.settledWith(run)) == 2 })
		r.turn(ctx, run)
		Expect(reason(w.get(ctx, run), v1alpha1.ConditionDeadLettered)).To(Equal(v1alpha1.ReasonDeliveriesExhausted))
		Expect(w.messages(ctx, w.names.DeadLettersStream())).To(BeZero())
		Expect(w.messages(ctx, w.names.ResultsStream())).To(Equal(1))

		config.MaxMsgSize = -1
		_, err = w.js.UpdateStream(ctx, config)
		Expect(err).NotTo(HaveOccurred())
		r.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool { return w.messages(ctx, w.names.DeadLettersStream()) == 1 })
		Expect(r.recorder.count("Warning DeliveriesExhausted")).To(Equal(1), "not with each try")
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		r.drive(ctx, run, finished)
	}, NodeTimeout(2*patience))

	It("among a hundred costs them a few writes, and no failure", func(ctx SpecContext) {
		budget(ctx, 100)
		const n = 100
		var steps []v1alpha1.Step
		for i := range n {
			steps = append(steps, step(fmt.Sprintf("s-%d", i)))
		}
		run := w.create(ctx, steps, func(s *v1alpha1.WorkflowRunSpec) { s.MaxParallelSteps = n })
		r.refuse = refusing("s-70", 1)
		r.inFlight(ctx, run, n)
		for _, t := range w.takeAll(ctx, n) {
			t.succeed(ctx)
		}
		r.pumpAll(ctx, n)
		w.clock.Step(time.Second)
		writes := func(outcome string) float64 { return r.counter("syncopate_status_writes_total", "outcome", outcome) }
		before := writes("accepted")
		for len(r.Batches.Inbox.Waiting(run.UID)) > 0 {
			wait := r.mustPass(ctx, run).RequeueAfter
			if len(r.Batches.Inbox.Waiting(run.UID)) > 0 {
				Expect(wait).To(BeNumerically("<=", time.Second), "the others are not left waiting for some wake-up")
			}
			w.clock.Step(wait)
		}
		Expect(w.get(ctx, run).Status.Progress).To(Equal("99/100"))
		Expect(writes("refused")).To(BeNumerically("<=", 8), "the halvings of 100, and one alone")
		Expect(writes("accepted")-before).To(BeNumerically("<=", 10), "and as few that are taken, and twice the status as it is")
		for _, s := range w.settledWith(run) {
			Expect(s.err == nil).To(Equal(s.id.Step != "s-70"), "%v", s)
		}
		r.refuse = nil
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded), "what is refused no more is applied")
	}, NodeTimeout(2*patience))

	// mutation: wrote that leaves the bound where it is makes this fail.
	It("in passing has others tried apart, and all together soon after", func(ctx SpecContext) {
		const n = 30
		var steps []v1alpha1.Step
		for i := range n {
			steps = append(steps, step(fmt.Sprintf("s-%d", i)))
		}
		run := w.create(ctx, steps, func(s *v1alpha1.WorkflowRunSpec) { s.MaxParallelSteps = n })
		r.inFlight(ctx, run, n)
		tasks := w.takeAll(ctx, n)
		for _, t := range tasks[:2] {
			t.succeed(ctx)
		}
		r.pumpOf(ctx, tasks[:2]...)
		r.hook = once("status/before", refused)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		for _, t := range tasks[2:] {
			t.succeed(ctx)
		}
		r.pumpOf(ctx, tasks[2:]...)
		before := r.counter("syncopate_status_writes_total", "outcome", "accepted")
		for len(r.Batches.Inbox.Waiting(run.UID)) > 0 {
			w.clock.Step(time.Second)
			r.mustPass(ctx, run)
		}
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(r.counter("syncopate_status_writes_total", "outcome", "accepted")-before).To(BeNumerically("<=", 4), "two alone, then all")
	}, NodeTimeout(2*patience))
})

var _ = Describe("an outage of the API server", func() {
	It("makes no dead letter, however long", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{Delivery: v1alpha1.DeliveryPolicy{MaxDeliveries: 1, MaxDelaySeconds: 1}})
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.inFlight(ctx, run, 2)
		w.work(ctx)
		r.refuse = func(*v1alpha1.WorkflowRun) error { return apierrors.NewServiceUnavailable("etcd is away") }
		until(ctx, "both were handed back twice", func() bool {
			r.turn(ctx, run)
			w.clock.Step(resultPatience)
			return len(of("a", w.settledWith(run))) >= 2 && len(of("b", w.settledWith(run))) >= 2
		})
		for _, s := range w.settledWith(run) {
			var a *results.RetryError
			Expect(errors.As(s.err, &a)).To(BeTrue())
			Expect(a.Class).To(Equal(bus.ClassStoreUnavailable))
			Expect(s.failures).To(BeZero())
		}
		r.refuse = nil
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(w.messages(ctx, w.names.DeadLettersStream())).To(BeZero())
	}, NodeTimeout(2*patience))
})

var _ = Describe("contention", func() {
	It("makes no dead letter: 1,000 results of one run, each given back more often than the budget has it", func(ctx SpecContext) {
		const steps, each, budget = 200, 5, 2
		w := newWorld(ctx)
		lock := quick()
		lock.Wait = v1alpha1.LockWait{Mode: v1alpha1.WaitModePoll, BudgetMillis: new(int64)}
		lock.BusyRetry = v1alpha1.BusyRetry{Mode: v1alpha1.JitterModeFixed, DelayMillis: 1}
		w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{RunLock: lock, Delivery: v1alpha1.DeliveryPolicy{MaxDeliveries: budget}})
		r := w.newReplica(ctx, "r", func(r *replica) { r.unsettled = 8 * steps * each })
		var list []v1alpha1.Step
		for i := range steps {
			list = append(list, step(fmt.Sprintf("s-%d", i)))
		}
		run := w.create(ctx, list, func(s *v1alpha1.WorkflowRunSpec) { s.MaxParallelSteps = steps })
		r.inFlight(ctx, run, steps)
		w.takeLock(ctx, run)
		for _, t := range w.takeAll(ctx, steps) {
			for k := range each { // one counts, the others are its duplicates
				t.say(ctx, fmt.Sprintf(`{"status":"Succeeded","output":%q}`, strings.Repeat("x", k)))
			}
			Expect(t.msg.Ack()).To(Succeed())
		}
		until(ctx, "each was given back more often than the budget", func() bool {
			r.turn(ctx, run)
			sixth := 0
			for _, s := range w.settledWith(run) {
				if s.deliveries > budget { // a busy machine may lose one to AckWait, so not every number is seen of each
					sixth++
				}
			}
			return sixth >= steps*each
		})
		Expect(w.messages(ctx, w.names.DeadLettersStream())).To(BeZero())
		for _, s := range w.settledWith(run) {
			Expect(s.failures).To(BeZero())
		}
		w.dropLock(ctx, run)
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		r.drained(ctx, run)
		Expect(w.messages(ctx, w.names.DeadLettersStream())).To(BeZero())
	}, matrix, NodeTimeout(3*patience))
})

var _ = Describe("a worker that asks for a retry later", func() {
	It("is granted what the policy allows; status says when, and the metric how long", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{Delivery: v1alpha1.DeliveryPolicy{MaxDelaySeconds: 7}})
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, run, 1)
		for attempt, asked := range []int64{504_000_000, 1500} { // 140 hours first
			t := w.takeAll(ctx, 1)[0]
			t.say(ctx, fmt.Sprintf(`{"status":"Retry","retryAfterMillis":%d}`, asked))
			Expect(t.msg.DoubleAck(ctx)).To(Succeed())
			r.pumpAll(ctx, 1)
			w.clock.Step(time.Second)
			r.mustPass(ctx, run)
			want := min(time.Duration(asked)*time.Millisecond, 7*time.Second)
			a := w.get(ctx, run).Status.Steps[0]
			Expect(a.Phase).To(Equal(v1alpha1.StepBackingOff))
			Expect(a.NextAttemptAt.Time).To(BeTemporally("~", w.clock.Now().Add(want), time.Millisecond))
			Expect(a.Failures).To(BeZero())
			Expect(r.counter("syncopate_retry_delay_seconds", "class", bus.ClassWorkerRequested)).To(BeNumerically("~", []float64{7, 8.5}[attempt], 0.001))
			w.clock.Step(want)
			r.inFlight(ctx, run, 1)
		}
		Expect(lifecycle.Finished(r.finish(ctx, run))).To(BeTrue())
	}, NodeTimeout(2*patience))
})
