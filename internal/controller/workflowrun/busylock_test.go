// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// longLived keeps the lock of a run from its admission to its end, for so long after a death.
func longLived() v1alpha1.RunLockPolicy {
	return v1alpha1.RunLockPolicy{Scope: v1alpha1.LockScopeRun, TTLSeconds: 120}
}

func renewedOf(run *v1alpha1.WorkflowRun) metav1.Condition {
	if c := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionRunLockRenewed); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func saysBusy(run *v1alpha1.WorkflowRun) bool {
	return run.Status != nil && renewedOf(run).Reason == v1alpha1.ReasonLockBusy
}

// passes makes so many, with the time between them that they ask for.
// aside has another namespace have all places aside, of which there are so many, until it leaves.
func (r *replica) aside(n int) (leave func()) {
	GinkgoHelper()
	r.Turns = shares.NewTurns(16, shares.KindMetrics{}, r.Waker.Wake).WithAside(n, shares.KindMetrics{})
	r.Desks = shares.NewDesks(shares.Room{Desks: 2, Rest: 1}, r.Turns, r.Clock, shares.KindMetrics{})
	turn, may := r.Turns.Enter(types.NamespacedName{Namespace: "others", Name: "run"})
	Expect(may).To(BeTrue())
	d := r.Desks.For("others")
	d.From(turn)
	Expect(d.StepAside()).To(Succeed())
	return func() { r.Turns.Release(turn) }
}

// largeResults has jobs succeed with outputs for which a pass needs a desk.
func (r *replica) largeResults(ctx context.Context, tasks []*task) {
	GinkgoHelper()
	for _, t := range tasks {
		t.say(ctx, fmt.Sprintf(`{"status":"Succeeded","output":%q}`, strings.Repeat("x", 60<<10)))
		Expect(t.msg.DoubleAck(ctx)).To(Succeed())
	}
	r.pumpAll(ctx, len(tasks))
}

func (r *replica) passes(ctx context.Context, run *v1alpha1.WorkflowRun, n int) {
	GinkgoHelper()
	for range n {
		r.turn(ctx, run)
	}
}

var _ = Describe("a run lock that stays busy", func() {
	It("is told by whoever waits for it, once: whose it is, and until when at the latest", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, longLived())
		first := w.newReplica(ctx, "first")
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		first.inFlight(ctx, run, 1)
		first.kill(ctx)
		second := w.newReplica(ctx, "second")
		begin := w.clock.Now()
		told := second.drive(ctx, run, saysBusy)
		Expect(w.clock.Since(begin)).To(BeNumerically("<=", 4*time.Second), "the budget is 3 s")
		Expect(renewedOf(told).Message).To(And(
			ContainSubstring("held by first since "), ContainSubstring("second waits for it since "),
			ContainSubstring("if its holder is gone, it ends at "), ContainSubstring("tried again every 350-650ms")))
		Expect(reason(told, v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonWaitingForLock))
		Expect(told.Status.Fence).To(Equal(w.get(ctx, run).Status.Fence))
		second.passes(ctx, run, 30)
		Expect(second.counter("syncopate_status_writes_total")).To(Equal(1.0), "no write per retry")
		Expect(second.recorder.count("Warning LockBusy")).To(Equal(1))

		By("ending the lock, as its TTL does")
		w.dropLock(ctx, run)
		Expect(second.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	// mutation: advance.notBefore that does not ask the lock; busywait.go notBefore that does not
	// look at the version of the run.
	It("is not tried for each result that comes, but ten times a second at most; a cancel does not wait for that", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b"), step("c")})
		r.inFlight(ctx, run, 3)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run) // the lease lingers no more
		w.takeLock(ctx, run)
		busy := func() int { return int(r.counter("syncopate_lock_busy_retries_total", "path", "reconcile")) }
		var wait time.Duration
		for _, t := range w.takeAll(ctx, 3) {
			t.succeed(ctx)
			r.pumpAll(ctx, 1)
			wait = r.mustPass(ctx, run).RequeueAfter
		}
		Expect(busy()).To(Equal(1))
		Expect(wait).To(And(BeNumerically(">", 0), BeNumerically("<=", 100*time.Millisecond)))
		w.clock.Step(wait)
		r.mustPass(ctx, run)
		Expect(busy()).To(Equal(2))
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return now.Generation > run.Generation })
		Expect(busy()).To(Equal(3), "the run is another one")
		w.dropLock(ctx, run)
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))

	// mutation: advance without lockFirst; lockFirst that asks whatever others did, or whether it
	// was busy or not; a TakeEarly that takes for good; Batch.Bytes without what references say.
	DescribeTable("is asked for before what waits is read and stored, if that is much and", func(ctx SpecContext, another, referred bool) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		r := w.newReplica(ctx, "r")
		steps, list := fanOut(8, 8, "")
		run := w.create(ctx, steps[:1], list)
		r.inFlight(ctx, run, 8)
		last := r
		if another {
			r.kill(ctx)
			last = w.newReplica(ctx, "last")
			last.Index.See(run)
		} else {
			w.clock.Step(time.Second)
			r.mustPass(ctx, run) // the lease lingers no more
		}
		w.takeLock(ctx, run)
		var used atomic.Int32 // objects are read side by side
		last.hook = func(_ context.Context, place string) error {
			if place == "store/before" || place == "read/before" {
				used.Add(1)
			}
			return nil
		}
		tasks := w.takeAll(ctx, 8)
		if !another {
			tasks[0].succeed(ctx)
			last.pumpAll(ctx, 1)
			last.mustPass(ctx, run)
			tasks = tasks[1:]
		}
		if referred {
			for _, t := range tasks {
				t.say(ctx, w.upload(ctx, t.id, large(60<<10)))
				Expect(t.msg.DoubleAck(ctx)).To(Succeed())
			}
			last.pumpAll(ctx, len(tasks))
		} else {
			last.largeResults(ctx, tasks)
		}
		w.clock.Step(time.Second)
		last.mustPass(ctx, run)
		Expect(last.Batches.Inbox.Backlog().Results).To(BeEquivalentTo(8))
		Expect(used.Load()).To(BeZero(), "the object store, for a lock that is busy")
		w.dropLock(ctx, run)
		until(ctx, "it is its turn, while all results wait", func() bool {
			w.clock.Step(time.Millisecond)
			last.mustPass(ctx, run)
			return used.Load() > 0
		})
		Expect(last.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(w.locked(ctx, run)).To(BeFalse())
	},
		Entry("it was busy", false, false, NodeTimeout(2*patience)),
		Entry("another wrote last", true, false, NodeTimeout(2*patience)),
		Entry("it was busy, by references", false, true, NodeTimeout(2*patience)),
		Entry("another wrote last, by references", true, true, NodeTimeout(2*patience)),
	)

	// mutations: lockFirst without StepAside takes the lock; beforeDeciding that goes on without
	// the lock then, or decides without its outputs, or passUnder that does not look whether the
	// run is in line, says something else.
	DescribeTable("is not taken early while its run is in line for a desk, if", func(ctx SpecContext, another bool) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		first := w.newReplica(ctx, "first")
		steps, list := fanOut(8, 8, "")
		run := w.create(ctx, steps[:1], list)
		first.inFlight(ctx, run, 8)
		r := first
		if another {
			first.kill(ctx)
			r = w.newReplica(ctx, "r")
			r.Index.See(run)
		}
		r.largeResults(ctx, w.takeAll(ctx, 8))
		q, others := r.awake(), r.aside(1)
		w.clock.Step(time.Second)
		Expect(r.mustPass(ctx, run)).To(Equal(reconcile.Result{}))
		Expect(w.locked(ctx, run)).To(BeFalse())
		Expect(q.Len()).To(BeZero())
		others()
		Expect(q.Len()).To(Equal(1))
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	},
		Entry("this process wrote last", false, NodeTimeout(2*patience)),
		Entry("another wrote last", true, NodeTimeout(2*patience)),
	)

	// mutations: beforeDeciding that asks for lock or desk before it asks for the pause;
	// restsWithMany without one of its conditions.
	It("is not asked for, nor a desk, in the pause after a write, however much waits", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		r := w.newReplica(ctx, "r")
		steps, list := fanOut(8, 8, "")
		run := w.create(ctx, steps[:1], list)
		r.inFlight(ctx, run, 8)
		tasks := w.takeAll(ctx, 8)
		r.largeResults(ctx, tasks[1:])
		m := r.memories.peek(client.ObjectKeyFromObject(run))
		m.lastWrite = pacing.LastWrite{End: w.clock.Now(), Took: 500 * time.Millisecond}
		leave := r.fullDesks(ctx)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(500*time.Millisecond), "it is not in line for a desk")
		leave()

		m.lastWrite.End = w.clock.Now()
		writer, asked := m.lock.Writer, 0
		m.lock.Writer = "another"
		r.hook = func(_ context.Context, place string) error {
			if place == "acquire/before" {
				asked++
			}
			return nil
		}
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(500 * time.Millisecond))
		Expect(asked).To(BeZero())
		m.lock.Writer = writer

		for name, c := range map[string]struct {
			adjust func(*pass)
			want   bool
		}{
			"as it is":                   {func(*pass) {}, true},
			"it is given up":             {func(p *pass) { p.ahead.Closes = true }, false},
			"it goes on without a write": {func(p *pass) { p.ahead.Under(policy.Checkpoint{Coalesced: true}, false, false) }, false},
			"little waits":               {func(p *pass) { p.batch = r.Batches.Of(p.run, 1, false) }, false},
			"the pause is over":          {func(p *pass) { p.mem.lastWrite.End = w.clock.Now().Add(-time.Second) }, false},
		} {
			p, err := r.observe(ctx, w.get(ctx, run))
			Expect(err).NotTo(HaveOccurred())
			c.adjust(p)
			Expect(restsWithMany(p).IsZero()).To(Equal(!c.want), name)
			m.lastWrite.End = w.clock.Now()
		}
		w.takeLock(ctx, run)
		p, err := r.observe(ctx, w.get(ctx, run))
		Expect(err).NotTo(HaveOccurred())
		_, _ = p.lock.Without(p.run, p.lock.Take(ctx, p.run, "result"))
		Expect(p.lock.WasBusy()).To(BeTrue())
		Expect(restsWithMany(p)).To(BeZero(), "its turn may have come, for a moment")
		w.dropLock(ctx, run)
		tasks[0].succeed(ctx)
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	// mutations: lockFirst that steps aside where the lock was busy; withoutLock without Stay.
	It("does not keep a run waiting in line whose time is over", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		r := w.newReplica(ctx, "r")
		steps, list := fanOut(8, 8, "")
		run := w.create(ctx, steps[:1], list, func(s *v1alpha1.WorkflowRunSpec) { s.ActiveDeadlineSeconds = new(int32(60)) })
		r.inFlight(ctx, run, 8)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run) // the lease lingers no more
		w.takeLock(ctx, run)
		tasks := w.takeAll(ctx, 8)
		tasks[0].succeed(ctx)
		r.pumpAll(ctx, 1)
		r.mustPass(ctx, run)
		r.largeResults(ctx, tasks[1:])
		w.clock.Step(2 * time.Minute)
		defer r.aside(1)()
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded), "all results count")
	}, NodeTimeout(2*patience))

	// mutation: lockFirst that does not ask whether the run would change makes this fail.
	It("is not wanted by many bytes of results that are of no use: they are settled without it", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		r, other := w.newReplica(ctx, "r"), w.newReplica(ctx, "other")
		other.handed = true // results come to the first only
		steps, list := fanOut(8, 8, "")
		run := w.create(ctx, append(steps[:1], step("other")), list)
		r.inFlight(ctx, run, 9)
		tasks := slices.DeleteFunc(w.takeAll(ctx, 9), func(t *task) bool { return t.id.Item == protocol.NoItem })
		say := func(output string) {
			for _, t := range tasks {
				t.say(ctx, fmt.Sprintf(`{"status":"Succeeded","output":%q}`, output))
			}
			r.pumpAll(ctx, 8)
		}
		say(strings.Repeat("x", 60<<10))
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return stepOf(now, "all").Phase == v1alpha1.StepSucceeded })
		w.clock.Step(time.Second)
		w.patch(ctx, run, `{"spec":{"suspend":true}}`)
		other.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Phase == v1alpha1.RunSuspended })
		w.takeLock(ctx, run)
		say(strings.Repeat("x", 60<<10+1)) // as their workers did not hear that they were stored
		Expect(r.Batches.Inbox.Backlog().Results).To(BeEquivalentTo(8))
		r.passes(ctx, run, 2)
		Expect(r.Batches.Inbox.Backlog().Results).To(BeZero())
		Expect(saysBusy(w.get(ctx, run))).To(BeFalse())
	}, NodeTimeout(2*patience))

	// mutation: deskForAnEnd that takes one for each run that waits, or none, makes this fail.
	DescribeTable("has a run that is to end read what waits at a desk, and no other", func(ctx SpecContext, after time.Duration, want bool) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		r := w.newReplica(ctx, "r")
		steps, list := fanOut(8, 8, "")
		run := w.create(ctx, steps[:1], list, func(s *v1alpha1.WorkflowRunSpec) { s.ActiveDeadlineSeconds = new(int32(60)) })
		r.inFlight(ctx, run, 8)
		for _, t := range w.takeAll(ctx, 8) {
			t.say(ctx, fmt.Sprintf(`{"status":"Succeeded","output":%q}`, strings.Repeat("x", 60<<10)))
		}
		r.pumpAll(ctx, 8)
		w.clock.Step(after)
		p, err := r.observe(ctx, w.get(ctx, run))
		Expect(err).NotTo(HaveOccurred())
		defer p.desk.StandUp()
		p.batch.TakeAll()
		lock, _ := p.lock.Without(p.run, &lockmgr.BusyError{RunUID: string(run.UID)})
		Expect(deskForAnEnd(ctx, p, lock)).To(Succeed())
		Expect(p.desk.Has()).To(Equal(want))
	},
		Entry("which waits", time.Second, false, NodeTimeout(2*patience)),
		Entry("whose time is over", 2*time.Minute, true, NodeTimeout(2*patience)),
	)

	It("explains a run that was resumed and stays Suspended; a key of nobody's does not end by itself", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, run, 1)
		w.patch(ctx, run, `{"spec":{"suspend":true}}`)
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Phase == v1alpha1.RunSuspended })
		w.takeLock(ctx, run)
		w.patch(ctx, run, `{"spec":{"suspend":false}}`)
		told := r.drive(ctx, run, saysBusy)
		Expect(told.Status.Phase).To(Equal(v1alpha1.RunSuspended))
		Expect(renewedOf(told).Message).To(And(
			ContainSubstring("held by a key that no operator wrote"), ContainSubstring("does not end by itself"), ContainSubstring("delete the key "+lockKey(run))))
		w.dropLock(ctx, run)
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))

	It("is taken back by a holder that is there, and not told again while that shows life", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, longLived())
		holder, waiter := w.newReplica(ctx, "holder"), w.newReplica(ctx, "waiter")
		waiter.handed = true // results come to the holder only
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		holder.inFlight(ctx, run, 1)
		told := waiter.drive(ctx, run, saysBusy)
		Expect(holder.saidBusy(told)).To(BeTrue(), "it is woken by that")
		Expect(waiter.saidBusy(told)).To(BeFalse())
		back := holder.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return !saysBusy(now) })
		Expect(reason(back, v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonRunning))
		waiter.passes(ctx, run, 30)
		Expect(saysBusy(w.get(ctx, run))).To(BeFalse(), "the holder has written since")
		holder.finish(ctx, run)
	}, NodeTimeout(2*patience))
})
