// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Mutations that make specs below fail:
//   - decide.go input that passes one result at a time: a hundred writes.
//   - pacing.go BatchReadyAt that is always zero: Started gets a write of its own.
//   - pacing.go Next that returns the zero time: writes follow each other without a pause.
//   - pacing.go pause that does not ask noneToCome: the last few wait like the many.
//   - decide.go tooEarly whose news are never patient: four chains of one namespace
//     have all places.
//   - pacing.go noneToCome that counts results: one that came again passes for the last one.
//   - decide.go decideFirst that returns its first decision: each costly step is written by itself;
//     one that does not look whether more is known goes round in circles where costly steps fail;
//     Early of the pass's own context has a write under the lock end with the operator;
//     passUnder without From has large runs keep the places for passes, without its look whether
//     the run is in line, it is written as its quick decision says;
//     passUnder without Until keeps a hand-over waiting for a desk, and passOver that takes its
//     end for an error fails;
//     decide without Pause does not rest while it evaluates;
//     mayGoOn without Hopeful evaluates for a lock that is busy, and without another of its
//     conditions makes an entry of the table fail.
var _ = Describe("batching", func() {
	const started = `{"status":"Started"}`

	It("applies a hundred results that wait in one write, under one take of the lock", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		steps := make([]v1alpha1.Step, 100)
		for i := range steps {
			steps[i] = step(fmt.Sprintf("s%d", i))
		}
		run := w.create(ctx, steps, func(s *v1alpha1.WorkflowRunSpec) { s.MaxParallelSteps = 100 })
		r.inFlight(ctx, run, 100)
		Expect(r.counter("syncopate_status_writes_total")).To(BeEquivalentTo(1))
		Expect(r.counter("syncopate_run_lock_acquisitions_total")).To(BeEquivalentTo(1))
		for _, t := range w.takeAll(ctx, 100) {
			t.succeed(ctx)
		}
		r.pumpAll(ctx, 100)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(r.counter("syncopate_status_writes_total")).To(BeEquivalentTo(2))
		Expect(r.counter("syncopate_run_lock_acquisitions_total")).To(BeNumerically("<=", 2), "1 if the lease still lingered")
		Expect(r.counter("syncopate_results_per_write")).To(BeEquivalentTo(100))
		Expect(r.counter("syncopate_results_total", "outcome", "applied")).To(BeEquivalentTo(100))
		Expect(w.settledWith(run)).To(HaveLen(100))
		Expect(w.jobsStored(ctx)).To(Equal(100))
	}, NodeTimeout(2*patience))

	Describe("of a run with costly steps", func() {
		const n, costly = 6, "inputs.l.all(a, inputs.l.all(b, a + b >= 0))"
		var (
			w *world
			r *replica
		)
		create := func(ctx SpecContext, when string) *v1alpha1.WorkflowRun {
			GinkgoHelper()
			w = newWorld(ctx)
			w.policy(ctx, brief())
			r = w.newReplica(ctx, "r")
			steps := make([]v1alpha1.Step, n)
			for i := range steps {
				steps[i] = step(fmt.Sprintf("s%d", i))
				steps[i].When, steps[i].OnFailure = when, v1alpha1.FailureContinue
			}
			list, err := json.Marshal(map[string]any{"l": make([]int, 120)})
			Expect(err).NotTo(HaveOccurred())
			return w.create(ctx, steps, func(s *v1alpha1.WorkflowRunSpec) {
				s.MaxParallelSteps, s.Inputs = n, &runtime.RawExtension{Raw: list}
			})
		}

		It("begins all with one write, though one decision evaluates only some of them", func(ctx SpecContext) {
			run := create(ctx, costly)
			r.inFlight(ctx, run, n)
			Expect(r.counter("syncopate_status_writes_total")).To(BeEquivalentTo(1))
			Expect(w.jobsStored(ctx)).To(Equal(n))
		}, NodeTimeout(2*patience))

		DescribeTable("goes on before it takes the lock, unless", func(ctx SpecContext, adjust func(p *pass), want bool) {
			run := create(ctx, costly)
			p, err := r.observe(ctx, run)
			Expect(err).NotTo(HaveOccurred())
			Expect(p.desk.SitDown(ctx)).To(BeTrue())
			defer p.desk.StandUp()
			early, cancel := r.Driven.Early(ctx, run.UID)
			defer cancel()
			p.desk.Until(early)
			adjust(p)
			Expect(mayGoOn(ctx, p)).To(Equal(want))
		},
			Entry("nothing is in its way", func(*pass) {}, true, NodeTimeout(patience)),
			Entry("it has no desk", func(p *pass) { p.desk.StandUp() }, false, NodeTimeout(patience)),
			Entry("it has locks", func(p *pass) { p.run.Spec.Locks = []v1alpha1.LockRequest{{Mutex: "m"}} }, false, NodeTimeout(patience)),
			Entry("it is ahead of its status", func(p *pass) { p.ahead.Keep(&v1alpha1.WorkflowRunStatus{}, 0) }, false, NodeTimeout(patience)),
			Entry("its partition is handed over", func(p *pass) {
				p.r.Driven.End(context.Background(), protocol.AllPartitions(), func([]int) {})
			}, false, NodeTimeout(patience)),
		)

		It("rests while it evaluates", func(ctx SpecContext) {
			run := create(ctx, costly)
			p, err := r.observe(ctx, run)
			Expect(err).NotTo(HaveOccurred())
			Expect(p.desk.SitDown(ctx)).To(BeTrue())
			defer p.desk.StandUp()
			r.Turns.See("others", w.clock.Now())
			w.clock.Step(100 * time.Millisecond)
			before, decided := w.clock.Waiters(), make(chan struct{})
			go func() {
				defer close(decided)
				p.decide(ctx, p.lock.Tentative(p.run))
			}()
			Eventually(w.clock.Waiters).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(BeNumerically(">", before))
			Expect(decided).NotTo(BeClosed())
			Eventually(func() <-chan struct{} {
				w.clock.Step(100 * time.Millisecond)
				return decided
			}).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(BeClosed())
		}, NodeTimeout(2*patience))

		DescribeTable("does not keep a hand-over waiting while it waits for a desk", func(ctx SpecContext, when string, bytes int) {
			run := create(ctx, when)
			r.memories.of(client.ObjectKeyFromObject(run), run.UID).lastWriteBytes = bytes
			r.Desks = shares.NewDesks(shares.Room{Desks: 1, Rest: 1}, r.Turns, r.Clock, shares.NewMetrics(r.registry).Of("desk"))
			other := r.Desks.For("others")
			Expect(other.SitDown(ctx)).To(BeTrue())
			defer other.StandUp()
			passed := make(chan error, 1)
			go func() {
				_, err := r.pass(ctx, run)
				passed <- err
			}()
			Eventually(func() float64 { return r.counter("syncopate_places_waiting", "kind", "desk") }).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(BeEquivalentTo(1))
			Expect(r.Driven.End(ctx, protocol.AllPartitions(), func([]int) {})).To(BeEmpty())
			Eventually(passed).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(Receive(Succeed()))
		},
			Entry("to evaluate", costly, 0, NodeTimeout(2*patience)),
			Entry("to write a large object", "true", 1<<20, NodeTimeout(2*patience)),
		)

		It("leaves its place to others while it waits for a desk, or its run is in line for one", func(ctx SpecContext) {
			run := create(ctx, costly)
			q := r.awake()
			r.Turns = shares.NewTurns(1, shares.KindMetrics{}, r.Waker.Wake).WithAside(1, shares.KindMetrics{})
			r.Desks = shares.NewDesks(shares.Room{Desks: 1, Rest: 1}, r.Turns, r.Clock, shares.NewMetrics(r.registry).Of("desk"))
			other := r.Desks.For("others")
			Expect(other.SitDown(ctx)).To(BeTrue())
			passed := make(chan error, 1)
			go func() {
				_, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(run)})
				passed <- err
			}()
			Eventually(func() float64 { return r.counter("syncopate_places_waiting", "kind", "desk") }).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(BeEquivalentTo(1))
			small := w.create(ctx, []v1alpha1.Step{step("a")})
			r.inFlight(ctx, small, 1)
			second := w.create(ctx, run.Spec.Steps, func(s *v1alpha1.WorkflowRunSpec) { *s = run.Spec })
			for range 2 { // whoever wakes it meanwhile
				Expect(r.mustPass(ctx, second)).To(Equal(reconcile.Result{}))
			}
			Expect(w.get(ctx, second).Unwritten()).To(BeTrue())
			r.inFlight(ctx, small, 1)
			Expect(q.Len()).To(BeZero())
			other.StandUp()
			Eventually(passed).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(Receive(Succeed()))
			Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunRunning))
			r.woken(ctx, q, "the run that was in line goes on", func() bool { return len(lifecycle.InFlight(w.get(ctx, second))) == n })
		}, NodeTimeout(3*patience))

		It("writes a large run under its lock when its operator stops, though it waits for a desk", func(ctx SpecContext) {
			w = newWorld(ctx)
			r = w.newReplica(ctx, "r")
			large := &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("x", 40<<10))}
			a := step("a")
			a.Job.Input = large
			run := w.create(ctx, []v1alpha1.Step{a}, func(s *v1alpha1.WorkflowRunSpec) { s.Inputs = large })
			r.Desks = shares.NewDesks(shares.Room{Desks: 1, Rest: 1}, r.Turns, r.Clock, shares.NewMetrics(r.registry).Of("desk"))
			r.Writes = shares.New(1, false, shares.KindMetrics{})
			r.inFlight(ctx, run, 1)
			r.Turns = shares.NewTurns(16, shares.KindMetrics{}, r.Waker.Wake).WithAside(0, shares.KindMetrics{}) // so it stays where it is
			r.memories.of(client.ObjectKeyFromObject(run), run.UID).lastWriteBytes = 1                           // it has grown since
			w.takeAll(ctx, 1)[0].succeed(ctx)
			r.pumpAll(ctx, 1)
			w.clock.Step(time.Second)
			other := r.Desks.For("others")
			Expect(other.SitDown(ctx)).To(BeTrue())
			stopping, stop := context.WithCancel(ctx)
			passed := make(chan struct{})
			go func() {
				defer close(passed)
				_, _ = r.pass(stopping, run) // what it says is of no use to anybody
			}()
			Eventually(func() float64 { return r.counter("syncopate_places_waiting", "kind", "desk") }).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(BeEquivalentTo(1))
			stop()
			Consistently(passed).WithTimeout(5 * polling).WithPolling(polling).ShouldNot(BeClosed())
			other.StandUp()
			Eventually(passed).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(BeClosed())
			Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		}, NodeTimeout(2*patience))

		It("goes on while they fail", func(ctx SpecContext) {
			run := create(ctx, costly+" && inputs.l[inputs.l.size()] == 0")
			end := r.drive(ctx, run, finished)
			for _, s := range end.Status.Steps {
				Expect(s.Phase).To(Equal(v1alpha1.StepFailed))
			}
		}, NodeTimeout(2*patience))

		It("evaluates less for a lock that is busy", func(ctx SpecContext) {
			run := create(ctx, costly)
			w.takeLock(ctx, run)
			r.mustPass(ctx, run)
			w.clock.Step(time.Second)
			p, err := r.observe(ctx, w.get(ctx, run))
			Expect(err).NotTo(HaveOccurred())
			decideFirst(ctx, p)
			p.desk.StandUp()
			Expect(len(p.evaluated.Values)).To(And(BeNumerically(">", 0), BeNumerically("<", n)))
			w.dropLock(ctx, run)
			r.inFlight(ctx, run, n)
		}, NodeTimeout(2*patience))
	})

	It("lets news that jobs were started wait for company, but not longer than 100 ms", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.inFlight(ctx, run, 2)
		tasks := w.takeAll(ctx, 2)
		tasks[0].say(ctx, started)
		r.pumpAll(ctx, 1)
		w.clock.Step(pacing.StartedPatience / 2) // longer than the pause between writes
		wait := r.mustPass(ctx, run).RequeueAfter
		Expect(wait).To(Equal(pacing.StartedPatience / 2))
		Expect(r.counter("syncopate_status_writes_total")).To(BeEquivalentTo(1))
		w.clock.Step(wait)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Steps[stepIndex(tasks[0])].Phase).To(Equal(v1alpha1.StepRunning))

		tasks[1].say(ctx, started)
		tasks[0].succeed(ctx)
		r.pumpAll(ctx, 2)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(r.counter("syncopate_status_writes_total")).To(BeEquivalentTo(3), "both in one write")
		Expect(w.settledWith(run)).To(HaveLen(3))
	}, NodeTimeout(2*patience))

	It("pauses between two writes of a run, so that results can pile up", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.mustPass(ctx, run)
		tasks := w.takeAll(ctx, 2)
		tasks[0].succeed(ctx)
		r.pumpAll(ctx, 1)
		wait := r.mustPass(ctx, run).RequeueAfter
		Expect(wait).To(And(BeNumerically(">", 0), BeNumerically("<=", pacing.MinPause)))
		tasks[1].succeed(ctx)
		r.pumpAll(ctx, 1)
		w.clock.Step(wait)
		r.mustPass(ctx, run)
		Expect(r.counter("syncopate_status_writes_total")).To(BeEquivalentTo(2))
		Expect(w.get(ctx, run).Status.Steps[2].Phase).To(Equal(v1alpha1.StepDispatched))
	}, NodeTimeout(2*patience))

	It("pauses for longer after a write of many results, but not for the last few of them", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		const took = 20 * time.Millisecond
		r.hook = func(_ context.Context, at string) error {
			if at == "status/before" {
				w.clock.Step(took)
			}
			return nil
		}
		steps := make([]v1alpha1.Step, 18)
		for i := range steps {
			steps[i] = step(fmt.Sprintf("s%d", i))
		}
		run := w.create(ctx, steps, func(s *v1alpha1.WorkflowRunSpec) { s.MaxParallelSteps = int32(len(steps)) })
		r.inFlight(ctx, run, len(steps))
		tasks := w.takeAll(ctx, len(steps))
		for _, t := range tasks[:16] {
			t.succeed(ctx)
		}
		r.pumpOf(ctx, tasks[:16]...)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		tasks[0].say(ctx, `{"status":"Succeeded","output":"again"}`)
		tasks[16].succeed(ctx)
		r.pumpOf(ctx, tasks[0], tasks[16])
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(took+16*took/pacing.ResultsPerPause), "the other may come")
		tasks[17].succeed(ctx)
		r.pumpOf(ctx, tasks[17])
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(took), "nobody else can come")
		w.clock.Step(took)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	It("writes a chain soon after a slow write, unless its namespace has all places for writes", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		const took = 300 * time.Millisecond
		r.Writes = shares.New(1, false, shares.KindMetrics{})
		r.hook = func(_ context.Context, at string) error {
			if at == "status/before" {
				w.clock.Step(took)
			}
			return nil
		}
		run := w.create(ctx, chainOf(2))
		r.inFlight(ctx, run, 1)
		task := w.takeAll(ctx, 1)[0]
		task.succeed(ctx)
		r.pumpOf(ctx, task)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(pacing.MinPause))
		another := r.Writes.Take(w.ns, func() {})
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(took))
		r.Writes.Give(another)
		w.clock.Step(pacing.MinPause)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Progress).To(Equal("1/2"))
	}, NodeTimeout(2*patience))

	It("acknowledges a duplicate and a stale result without the lock and without a write", func(ctx SpecContext) {
		w := newWorld(ctx, withWindow(tinyWindow))
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b")})
		r.inFlight(ctx, run, 2)
		id := protocol.JobID{RunUID: string(run.UID), Step: "a", Item: protocol.NoItem, Attempt: 1}
		w.say(ctx, id, `{"status":"Retry","retryAfterMillis":1}`)
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Steps[0].Attempt == 2 })
		writes, takes := r.counter("syncopate_status_writes_total"), r.counter("syncopate_run_lock_acquisitions_total")
		w.say(ctx, id, succeeded(id))
		r.pumpAll(ctx, 1)
		r.mustPass(ctx, run)
		Expect(r.counter("syncopate_results_total", "outcome", "stale")).To(BeEquivalentTo(1))
		id.Attempt = 2
		w.say(ctx, id, succeeded(id))
		w.outliveWindow(ctx)
		w.say(ctx, id, succeeded(id))
		r.pumpAll(ctx, 2)
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Steps[0].Phase == v1alpha1.StepSucceeded })
		Expect(r.counter("syncopate_results_total", "outcome", "duplicate")).To(BeEquivalentTo(1))
		Expect(r.counter("syncopate_status_writes_total")).To(Equal(writes + 1))
		Expect(r.counter("syncopate_run_lock_acquisitions_total")).To(BeNumerically("<=", takes+1))
	}, NodeTimeout(2*patience))
})

// stepIndex is where the step of a task stands in a diamond.
func stepIndex(t *task) int { return int(t.id.Step[0] - 'a') }
