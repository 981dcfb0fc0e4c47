// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// coalesced has the runs of this world be ahead of their status.
func (w *world) coalesced(ctx context.Context) {
	w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{RunLock: brief(), Checkpoint: v1alpha1.CheckpointPolicy{Mode: v1alpha1.CheckpointCoalesced, MaxDelayMillis: longest}})
}

// longest is the longest delay of a write that a policy may have.
const longest = 5000

// here is a replica under which all runs are created.
func here(r *replica) { r.AloneAfter = -time.Hour }

// chainOf is steps s1, s2 and so on, each after the one before.
func chainOf(n int) []v1alpha1.Step {
	steps := []v1alpha1.Step{step("s1")}
	for i := 2; i <= n; i++ {
		steps = append(steps, step(fmt.Sprint("s", i), fmt.Sprint("s", i-1)))
	}
	return steps
}

// rush makes passes while a worker works, at one moment, until enough jobs were stored, the run has
// ended or the replica is dead.
func (r *replica) rush(ctx context.Context, run *v1alpha1.WorkflowRun, jobs int) {
	GinkgoHelper()
	until(ctx, "the run is ahead", func() bool {
		if !r.dead.Load() && r.w.jobsStored(ctx) >= jobs {
			return true
		}
		r.w.work(ctx)
		r.pump(ctx)
		_, _ = r.pass(ctx, run)
		return r.dead.Load() || lifecycle.Finished(r.w.get(ctx, run))
	})
}

func (r *replica) writes() int {
	return int(r.counter("syncopate_status_writes_total", "outcome", "accepted"))
}

func (r *replica) lags(run *v1alpha1.WorkflowRun) bool {
	m := r.memories.peek(client.ObjectKeyFromObject(run))
	return m != nil && m.ahead.Lags()
}

// Mutations that make specs below fail:
//   - act.go runAhead that settles the results instead of Batch.Keep: G1 violations.
//   - session.go LooksFirst always false: attempts are stored twice after a crash.
//   - again.go restAhead that settles: a duplicate is acknowledged before the write.
//   - session.go Write without NeverBegun: jobs stay after a cancel by another process.
var _ = Describe("a run that may be ahead of its status", func() {
	It("writes once if it has one step", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		r := w.newReplica(ctx, "r", here)
		run := w.create(ctx, chainOf(1))
		r.rush(ctx, run, 2)
		end := w.get(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(r.writes()).To(Equal(1))
		r.drained(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(1))
		Expect(end.Status.Checkpoint.Mode).To(Equal(v1alpha1.CheckpointCoalesced))
		Expect(end.Status.MinWriterVersion).To(Equal(v1alpha1.AheadVersion))
	}, NodeTimeout(patience))

	It("writes twice at most if it is a chain of five quick steps", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		r := w.newReplica(ctx, "r", here)
		run := w.create(ctx, chainOf(5))
		r.rush(ctx, run, 6)
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(r.writes()).To(BeNumerically("<=", 2))
		r.drained(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(5))
		Expect(r.counter("syncopate_job_fences_total")).To(BeZero(), "nobody else can have worked on it")
	}, NodeTimeout(patience))

	// mutation: refused that takes the first conflict for a refusal.
	It("is so yet after two conflicts with nobody, and written a little later", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		r := w.newReplica(ctx, "r", here)
		run := w.create(ctx, chainOf(5))
		r.rush(ctx, run, 2)
		Expect(r.lags(run)).To(BeTrue())
		r.hook = times(2, "status/before", func(context.Context) error { return asConflict(run) })
		w.clock.Step(longest * time.Millisecond)
		for _, pause := range []time.Duration{2 * refreshDelay, 4 * refreshDelay} {
			Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(pause))
			Expect(r.lags(run)).To(BeTrue())
			w.clock.Step(pause)
		}
		r.mustPass(ctx, run)
		Expect(r.writes()).To(Equal(1))
		Expect(r.memories.peek(client.ObjectKeyFromObject(run)).ahead.Off).To(BeFalse())
		r.finish(ctx, run)
	}, NodeTimeout(patience))

	It("is written once the first thing that is not written is as old as the policy lets it be", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		r := w.newReplica(ctx, "r", here)
		run := w.create(ctx, chainOf(5))
		r.rush(ctx, run, 2)
		Expect(r.lags(run)).To(BeTrue())
		Expect(r.mustPass(ctx, run).RequeueAfter).To(BeNumerically("<=", longest*time.Millisecond))
		Expect(w.get(ctx, run).Status).To(Or(BeNil(), HaveField("Steps", BeEmpty())))
		w.clock.Step(longest * time.Millisecond)
		r.mustPass(ctx, run)
		now := w.get(ctx, run)
		Expect(now.Status.Steps[0].Phase).To(Equal(v1alpha1.StepSucceeded))
		Expect(now.Status.Checkpoint.LagMillis).To(BeNumerically(">=", longest))
		Expect(r.lags(run)).To(BeFalse())
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(patience))

	// mutations: keepsLease without LingersUntil (three writes), or PutBack that keeps whatever it
	// has (the lock is not given back), makes this fail.
	It("keeps its lock for a while after a write, and need not be written again for the next result", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		r := w.newReplica(ctx, "r", here)
		run := w.create(ctx, chainOf(5))
		r.rush(ctx, run, 2)
		w.clock.Step(longest * time.Millisecond)
		r.mustPass(ctx, run)
		Expect(r.writes()).To(Equal(1))
		r.rush(ctx, run, 4)
		Expect(r.writes()).To(Equal(1))
		w.clock.Step(longest * time.Millisecond)
		wait := r.mustPass(ctx, run).RequeueAfter
		Expect(r.writes()).To(Equal(2))
		Expect(r.Leases.Cache.Of(run.UID)).NotTo(BeNil())
		w.clock.Step(wait)
		r.mustPass(ctx, run)
		Expect(r.Leases.Cache.Of(run.UID)).To(BeNil())
		Expect(w.locked(ctx, run)).To(BeFalse())
		r.finish(ctx, run)
	}, NodeTimeout(patience))

	// mutation: inTime without notYet makes this fail: a pass every 10 ms.
	It("is looked at when the pause after a slow write is over, though its next write is due before", func(ctx SpecContext) {
		w := newWorld(ctx)
		const delay, took = 100 * time.Millisecond, 300 * time.Millisecond
		w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{
			RunLock:    brief(),
			Checkpoint: v1alpha1.CheckpointPolicy{Mode: v1alpha1.CheckpointCoalesced, MaxDelayMillis: int32(delay.Milliseconds())},
		})
		r := w.newReplica(ctx, "r", here)
		r.hook = func(_ context.Context, at string) error {
			if at == "status/before" {
				w.clock.Step(took)
			}
			return nil
		}
		run := w.create(ctx, chainOf(5))
		r.rush(ctx, run, 2)
		w.clock.Step(delay)
		r.mustPass(ctx, run)
		Expect(r.writes()).To(Equal(1))
		r.rush(ctx, run, 3)
		Expect(r.lags(run)).To(BeTrue())
		w.takeAll(ctx, 1)[0].succeed(ctx)
		r.pumpAll(ctx, 1)
		w.clock.Step(delay)
		wait := r.mustPass(ctx, run).RequeueAfter
		Expect(wait).To(Equal(took - delay))
		Expect(r.writes()).To(Equal(1), "it is due, and too early")
		w.clock.Step(wait)
		r.mustPass(ctx, run)
		Expect(r.writes()).To(Equal(2))
		r.finish(ctx, run)
	}, NodeTimeout(patience))

	It("is written when as many results wait as the policy lets", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{
			RunLock: brief(), Checkpoint: v1alpha1.CheckpointPolicy{Mode: v1alpha1.CheckpointCoalesced, MaxResults: 2},
		})
		r := w.newReplica(ctx, "r", here)
		run := w.create(ctx, chainOf(5))
		r.finish(ctx, run)
		r.drained(ctx, run)
		Expect(r.writes()).To(BeNumerically(">=", 3))
	}, NodeTimeout(patience))

	// mutations: refused that takes each error for a refusal, or none.
	DescribeTable("is written at every step after a write of it was refused, and not after one that had no answer", func(ctx SpecContext, place string, cause error, off bool) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		r := w.newReplica(ctx, "r", here)
		run := w.create(ctx, chainOf(5))
		r.rush(ctx, run, 2)
		w.clock.Step(longest * time.Millisecond)
		var told []string
		logger := log.IntoContext(ctx, funcr.New(func(_, args string) { told = append(told, args) }, funcr.Options{}))
		r.hook = func(_ context.Context, at string) error {
			if at == place {
				return cause
			}
			return nil
		}
		_, err := r.Reconcile(logger, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(run)})
		Expect(err != nil).To(Equal(!off), "the queue has its backoff for an outage")
		Expect(r.lags(run)).To(Equal(!off))
		Expect(told).To(HaveLen(map[bool]int{true: 1}[off]))
		r.hook = nil
		Expect(r.memories.peek(client.ObjectKeyFromObject(run)).ahead.Off).To(Equal(off))

		w.clock.Step(time.Second)
		again, written := false, r.writes()
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { // which may go on beyond s1
			again = again || r.writes() > written && r.lags(run)
			return !now.Unwritten() && stepOf(now, "s1").Phase == v1alpha1.StepSucceeded
		})
		until(ctx, "the run has ended", func() bool {
			w.work(ctx)
			r.turn(ctx, run)
			again = again || r.lags(run)
			return lifecycle.Finished(w.get(ctx, run))
		})
		Expect(again).To(Equal(!off), "it is ahead again")
		r.drained(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(5))
	},
		Entry("it was refused", "status/before", refused(), true, NodeTimeout(2*patience)),
		Entry("the API server is away", "status/before", apierrors.NewServiceUnavailable("etcd is away"), false, NodeTimeout(2*patience)),
		Entry("its time ran out", "status/before", context.DeadlineExceeded, false, NodeTimeout(2*patience)),
		Entry("its answer was lost", "status/after", context.DeadlineExceeded, false, NodeTimeout(2*patience)),
	)

	// mutation: tooEarly that has the last write wait for its turn makes this fail.
	It("is written before its partition is handed over, and its lock is given back", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		a := w.newReplica(ctx, "a", here)
		run := w.create(ctx, chainOf(3))
		h := &Handover{Runs: a.Reconciler, Feeds: a.bus.Results, Router: a.router}
		a.rush(ctx, run, 2)
		Expect(a.lags(run)).To(BeTrue())
		w.work(ctx)
		a.pumpAll(ctx, 1)
		a.memories.peek(client.ObjectKeyFromObject(run)).lastWrite.End = w.clock.Now() // it was written just now
		h.Lose(ctx, protocol.AllPartitions(), func([]int) {})
		Expect(w.get(ctx, run).Status.Steps[1].Phase).To(Equal(v1alpha1.StepSucceeded))
		Expect(w.locked(ctx, run)).To(BeFalse())
		b := w.newReplica(ctx, "b")
		b.finish(ctx, run)
		b.drained(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(3))
	}, NodeTimeout(patience))

	It("stands if somebody edits the run, and goes on", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		r := w.newReplica(ctx, "r", here)
		run := w.create(ctx, chainOf(3))
		r.rush(ctx, run, 2)
		w.patch(ctx, run, `{"metadata":{"labels":{"team":"b"}}}`)
		r.mustPass(ctx, run)
		Expect(r.lags(run)).To(BeTrue())
		r.finish(ctx, run)
		r.drained(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(3))
	}, NodeTimeout(patience))

	It("acknowledges no duplicate of a result that is not written", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		r := w.newReplica(ctx, "r", here)
		run := w.create(ctx, chainOf(2))
		r.rush(ctx, run, 1)
		t := w.takeAll(ctx, 1)[0]
		t.succeed(ctx)
		r.pumpAll(ctx, 1)
		r.mustPass(ctx, run)
		Expect(r.lags(run)).To(BeTrue())
		t.say(ctx, `{"status":"Succeeded","output":"again"}`)
		r.pumpAll(ctx, 1)
		r.mustPass(ctx, run)
		Expect(w.settledWith(run)).To(BeEmpty())
		r.finish(ctx, run)
		r.drained(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(2))
	}, NodeTimeout(patience))

	// mutation: Keep that notes no rejections, or settleKept that does not look at them, makes this
	// fail: its bytes are gone.
	It("puts an unusable duplicate aside once the run is written, and does not acknowledge it", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		r := w.newReplica(ctx, "r", here)
		run := w.create(ctx, chainOf(3))
		r.rush(ctx, run, 1)
		t := w.takeAll(ctx, 1)[0]
		t.succeed(ctx)
		r.pumpAll(ctx, 1)
		r.mustPass(ctx, run)
		Expect(r.lags(run)).To(BeTrue())
		foreign := t.id
		foreign.Step = "s2"
		t.say(ctx, referring(protocol.NewOutputRef(foreign, []byte("of another job"))))
		r.pumpAll(ctx, 1)
		r.mustPass(ctx, run)
		Expect(r.lags(run)).To(BeTrue())
		Expect(w.settledWith(run)).To(BeEmpty())
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		r.drained(ctx, run)
		Expect(w.messages(ctx, w.names.DeadLettersStream())).To(Equal(1))
	}, NodeTimeout(patience))

	points := []struct {
		place string
		nth   int
	}{
		{"publish/before", 1},
		{"publish/after", 1},
		{"publish/before", 2},
		{"publish/after", 2},
		{"publish/before", 3},
		{"publish/after", 3},
		{"status/before", 1},
		{"status/after", 1},
		{"settle/before", 1},
		{"settle/after", 1},
		{"settle/before", 2},
	}
	for _, p := range points {
		for _, between := range []struct {
			name string
			do   meanwhile
		}{
			{"", nothing},
			{", its jobs are done and no Msg-Id is remembered", answered},
			{", Redis has lost its data", func(ctx context.Context, w *world) { Expect(w.redis.Client().FlushAll(ctx).Err()).To(Succeed()) }},
		} {
			It(fmt.Sprintf("is recovered from a crash at %s, for the %d. time%s", p.place, p.nth, between.name), matrix, func(ctx SpecContext) {
				w := newWorld(ctx, withWindow(tinyWindow))
				w.coalesced(ctx)
				first := w.newReplica(ctx, "first", here)
				run := w.create(ctx, chainOf(3))
				first.killAt(p.place, p.nth)
				first.rush(ctx, run, 9)
				between.do(ctx, w)
				w.dropLock(ctx, run)
				second := w.newReplica(ctx, "second")
				Expect(second.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
				second.drained(ctx, run)
				Expect(w.jobsStored(ctx)).To(Equal(3), "each attempt is stored exactly once")
				Expect(w.jobsQueued(ctx)).To(BeZero())
			}, NodeTimeout(2*patience))
		}
	}

	wishes := map[string]struct {
		patch string
		phase v1alpha1.RunPhase
	}{
		"cancelled":  {`{"spec":{"shutdown":"Cancel"}}`, v1alpha1.RunCancelled},
		"terminated": {`{"spec":{"shutdown":"Terminate"}}`, v1alpha1.RunCancelled},
	}
	for name, wish := range wishes {
		for jobs := 1; jobs <= 3; jobs++ {
			It(fmt.Sprintf("is %s with %d jobs stored, and none is left", name, jobs), matrix, func(ctx SpecContext) {
				w := newWorld(ctx)
				w.coalesced(ctx)
				r := w.newReplica(ctx, "r", here)
				run := w.create(ctx, chainOf(4))
				r.rush(ctx, run, jobs)
				w.patch(ctx, run, wish.patch)
				Expect(r.drive(ctx, run, finished).Status.Phase).To(Equal(wish.phase))
				r.drained(ctx, run)
				Expect(w.jobsQueued(ctx)).To(BeZero())
				Expect(w.jobsStored(ctx)).To(Equal(jobs))
			}, NodeTimeout(patience))

			It(fmt.Sprintf("is %s with %d jobs stored by a process that is dead, and none is left", name, jobs), matrix, func(ctx SpecContext) {
				w := newWorld(ctx)
				w.coalesced(ctx)
				first := w.newReplica(ctx, "first", here)
				run := w.create(ctx, chainOf(4))
				first.rush(ctx, run, jobs)
				first.kill(ctx)
				w.dropLock(ctx, run)
				w.patch(ctx, run, wish.patch)
				second := w.newReplica(ctx, "second")
				Expect(second.drive(ctx, run, finished).Status.Phase).To(Equal(wish.phase))
				second.drained(ctx, run)
				until(ctx, "its jobs are taken back", func() bool {
					second.turn(ctx, run)
					return w.jobsQueued(ctx) == 0
				})
			}, NodeTimeout(patience))
		}
	}

	for jobs := 1; jobs <= 3; jobs++ {
		It(fmt.Sprintf("is suspended with %d jobs stored, begins nothing, and goes on when it is resumed", jobs), matrix, func(ctx SpecContext) {
			w := newWorld(ctx)
			w.coalesced(ctx)
			r := w.newReplica(ctx, "r", here)
			run := w.create(ctx, chainOf(4))
			r.rush(ctx, run, jobs)
			w.patch(ctx, run, `{"spec":{"suspend":true}}`)
			w.work(ctx)
			r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
				return now.Status != nil && now.Status.Phase == v1alpha1.RunSuspended && now.Status.Progress == fmt.Sprintf("%d/4", jobs)
			})
			Expect(w.jobsStored(ctx)).To(Equal(jobs))
			w.patch(ctx, run, `{"spec":{"suspend":false}}`)
			Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
			r.drained(ctx, run)
			Expect(w.jobsStored(ctx)).To(Equal(4))
		}, NodeTimeout(patience))

		It(fmt.Sprintf("is deleted with %d jobs stored, and none is left", jobs), matrix, func(ctx SpecContext) {
			w := newWorld(ctx)
			w.coalesced(ctx)
			r := w.newReplica(ctx, "r", here)
			run := w.create(ctx, chainOf(4))
			r.rush(ctx, run, jobs)
			run = w.get(ctx, run)
			Expect(w.client.Delete(ctx, run)).To(Succeed())
			r.Index.Remove(run, true)
			r.mustPass(ctx, run)
			Expect(w.jobsQueued(ctx)).To(BeZero())
			until(ctx, "its results are settled", func() bool {
				r.pump(ctx)
				r.mustPass(ctx, run)
				return r.Batches.Inbox.Backlog().Results == 0
			})
		}, NodeTimeout(patience))
	}
})
