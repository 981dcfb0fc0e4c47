// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// handover is that of a replica. It drives nothing yet.
func (r *replica) handover(ctx context.Context, once ...manager.Runnable) *Handover {
	h := &Handover{Runs: r.Reconciler, Feeds: r.bus.Results, Router: r.router, Once: once}
	r.handed = true
	h.Lose(ctx, protocol.AllPartitions(), func([]int) {})
	return h
}

// twoApart creates two runs whose partitions differ.
func (w *world) twoApart(ctx context.Context, steps []v1alpha1.Step) (one, other *v1alpha1.WorkflowRun) {
	one, other = w.create(ctx, steps), w.create(ctx, steps)
	for protocol.Partition(string(other.UID)) == protocol.Partition(string(one.UID)) {
		other = w.create(ctx, steps)
	}
	return one, other
}

// stuckFeed is a feed of one partition that does not end before it may.
type stuckFeed struct {
	feeds
	of   int
	goOn chan struct{}
}

func (f stuckFeed) Leave(ctx context.Context, partitions ...int) error {
	if slices.Contains(partitions, f.of) {
		<-f.goOn
	}
	return f.feeds.Leave(ctx, partitions...)
}

// Mutations that make specs below fail:
//   - handover.go Lose without Leave, or Leave before the passes ended: the result
//     comes after AckWait.
//   - handover.go Lose without Forget: the old owner's inbox keeps the result.
//   - handover.go Lose without DropAll: the next owner finds the lock busy.
//   - handover.go Gain that wakes nothing: the run sleeps.
//   - reconciler.go Reconcile without Enter: both replicas write.
//   - handover.go begin without Adopt: the job of the deleted run stays.
//   - leases/cache.go keep that does not ask who drives: the late pass keeps the lock for ever.
var _ = Describe("runs that change hands", func() {
	It("go on at the next owner, with the results that waited and the lock that was kept", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, forRun(v1alpha1.RenewalFailureFence))
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		from, to := a.handover(ctx), b.handover(ctx)
		run := w.create(ctx, twoSteps())
		part := protocol.Partition(string(run.UID))
		a.Index.See(run)
		b.Index.See(run)

		from.Gain(ctx, []int{part})
		a.inFlight(ctx, run, 1)
		Expect(w.locked(ctx, run)).To(BeTrue(), "it keeps its lock")
		w.work(ctx)
		a.pumpAll(ctx, 1)

		from.Lose(ctx, []int{part}, func([]int) {})
		Expect(w.locked(ctx, run)).To(BeFalse(), "its lock was given back")
		Expect(a.Batches.Inbox.Backlog().Results).To(BeZero())
		before := w.get(ctx, run).ResourceVersion
		a.mustPass(ctx, run)
		b.mustPass(ctx, run)
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(before), "nobody drives it")

		q := b.awake()
		to.Gain(ctx, []int{part})
		b.woken(ctx, q, "the next owner applies the result", func() bool {
			w.clock.Step(100 * time.Millisecond)
			return w.get(ctx, run).Status.Steps[0].Phase == v1alpha1.StepSucceeded
		})
		b.finish(ctx, run)
		Expect(w.get(ctx, run).Status.Lock.Holder).To(Equal("b"))
	}, NodeTimeout(2*patience))

	// mutation: handover.go begin without TakeOver makes this fail, and so does one that has it for
	// the work which is done once.
	It("leave desks empty for a moment if others want passes", func(ctx SpecContext) {
		w := newWorld(ctx)
		a := w.newReplica(ctx, "a")
		h := a.handover(ctx)
		sits := func() bool {
			a.Turns.See("other", w.clock.Now())
			d := a.Desks.For("tenant")
			over, end := context.WithCancel(ctx)
			end() // it waits for nothing
			defer d.StandUp()
			return d.SitDown(over)
		}
		h.Gain(ctx, []int{ownership.Singletons})
		Expect(sits()).To(BeTrue())
		h.Gain(ctx, []int{7})
		Expect(sits()).To(BeFalse())
		w.clock.Step(2 * time.Second)
		Expect(sits()).To(BeTrue())
	})

	// mutation: driven.go outlasted that notes nothing, or passOver without one of its three calls
	// for such a pass, makes this fail.
	It("are not locked for ever, nor remembered, by a pass that outlasts the hand-over", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, forRun(v1alpha1.RenewalFailureFence))
		a := w.newReplica(ctx, "a")
		from := a.handover(ctx)
		run := w.create(ctx, twoSteps())
		part := protocol.Partition(string(run.UID))
		a.Index.See(run)
		from.Gain(ctx, []int{part})
		a.inFlight(ctx, run, 1)
		w.work(ctx)
		a.pumpAll(ctx, 1)
		lost, left := false, 0
		a.hook = func(_ context.Context, place string) error {
			if place == "leave/before" {
				left++
			}
			return nil
		}
		a.refuse = func(*v1alpha1.WorkflowRun) error {
			hasty, end := context.WithCancel(ctx)
			end()
			from.Lose(hasty, []int{part}, func([]int) {})
			a.memories.of(client.ObjectKeyFromObject(run), run.UID) // as any part of a late pass may
			a.Dispatch.Backlog.Found(w.ns, lifecycle.InFlight(w.get(ctx, run))[0], 1)
			lost = true
			return context.Canceled
		}
		for n := 0; n < 50 && !lost; n++ {
			w.clock.Step(100 * time.Millisecond)
			a.pump(ctx)
			_, _ = a.pass(ctx, run)
		}
		Expect(lost).To(BeTrue(), "it wrote")
		Expect(w.locked(ctx, run)).To(BeFalse(), "nobody here would ever give it back")
		Expect(a.memories.peek(client.ObjectKeyFromObject(run))).To(BeNil())
		Expect(a.counter("syncopate_job_share_bytes")).To(BeZero())
		Expect(left).To(Equal(2), "once as it was handed over, and once for the pass, which may have got in line since")
	}, NodeTimeout(2*patience))

	// mutation: Leases.Leave without the locks' Leave makes this fail.
	It("leave no place in the line of a lock to a replica that does not drive them", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		a := w.newReplica(ctx, "a")
		from := a.handover(ctx)
		run := w.create(ctx, twoSteps())
		part := protocol.Partition(string(run.UID))
		a.Index.See(run)
		from.Gain(ctx, []int{part})
		w.takeLock(ctx, run)
		a.mustPass(ctx, run)
		line := func() int64 {
			n, err := w.redis.Client().LLen(ctx, fmt.Sprintf("{run:%s}:queue", run.UID)).Result()
			Expect(err).NotTo(HaveOccurred())
			return n
		}
		Expect(line()).To(BeEquivalentTo(1))
		from.Lose(ctx, []int{part}, func([]int) {})
		Expect(line()).To(BeZero())
	}, NodeTimeout(2*patience))

	// mutation: handover.go leave that gives results back after it has left the lines makes this
	// fail.
	It("have their results given back though Redis hangs as places in line are given up", func(ctx SpecContext) {
		w := newWorld(ctx)
		a := w.newReplica(ctx, "a")
		from := a.handover(ctx)
		run := w.create(ctx, twoSteps())
		part := protocol.Partition(string(run.UID))
		from.Gain(ctx, []int{part})
		given, inTime := make(chan struct{}), false
		a.hook = func(ctx context.Context, place string) error {
			if place != "leave/before" {
				return nil
			}
			select {
			case <-given:
				inTime = true
			case <-ctx.Done():
			}
			return nil
		}
		from.Lose(ctx, []int{part}, func([]int) { close(given) })
		Expect(inTime).To(BeTrue())
	}, NodeTimeout(patience))

	// mutation: Lose that waits for all passes before it gives anything back makes this hang.
	It("do not wait for a pass over a run of another partition", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, forRun(v1alpha1.RenewalFailureFence))
		a := w.newReplica(ctx, "a", here)
		slow, quick := w.twoApart(ctx, twoSteps())
		a.inFlight(ctx, slow, 1)
		a.inFlight(ctx, quick, 1)
		Expect(w.locked(ctx, quick)).To(BeTrue())
		w.work(ctx)
		a.pumpAll(ctx, 2)
		given, lost := make(chan []int, protocol.Partitions), make(chan struct{})
		h := &Handover{Runs: a.Reconciler, Feeds: a.bus.Results, Router: a.router}
		asked := false
		a.refuse = func(*v1alpha1.WorkflowRun) error {
			if asked {
				return nil
			}
			asked = true
			go func() {
				defer close(lost)
				h.Lose(ctx, protocol.AllPartitions(), func(ended []int) { given <- ended })
			}()
			Eventually(ctx, given).Should(Receive(Equal([]int{protocol.Partition(string(quick.UID))})))
			Expect(w.locked(ctx, quick)).To(BeFalse(), "while the pass is in the middle of its write")
			Expect(a.Batches.Inbox.Waiting(quick.UID)).To(BeEmpty())
			Expect(lost).NotTo(BeClosed())
			return nil
		}
		for n := 0; n < 50 && !asked; n++ {
			w.clock.Step(100 * time.Millisecond)
			_, _ = a.pass(ctx, slow)
		}
		Expect(asked).To(BeTrue(), "it wrote")
		Eventually(ctx, lost).Should(BeClosed())
		Eventually(ctx, given).Should(Receive(Equal([]int{protocol.Partition(string(slow.UID))})))
		Expect(w.locked(ctx, slow)).To(BeFalse())
	}, NodeTimeout(2*patience))

	// mutation: apart that makes one group of all makes this fail.
	It("do not wait for the last write of a run of another partition", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		a := w.newReplica(ctx, "a", here)
		slow, quick := w.twoApart(ctx, chainOf(2))
		for _, run := range []*v1alpha1.WorkflowRun{slow, quick} {
			until(ctx, "the run is ahead", func() bool {
				a.mustPass(ctx, run)
				return a.lags(run)
			})
		}
		for _, t := range w.takeAll(ctx, 2) {
			t.say(ctx, succeeded(t.id))
		}
		a.pumpAll(ctx, 2)
		goOn := make(chan struct{})
		a.refuse = func(run *v1alpha1.WorkflowRun) error {
			if run.UID == slow.UID {
				select {
				case <-goOn:
				case <-ctx.Done():
				}
			}
			return nil
		}
		given, lost := make(chan []int, protocol.Partitions), make(chan struct{})
		go func() {
			defer close(lost)
			(&Handover{Runs: a.Reconciler, Feeds: a.bus.Results, Router: a.router}).Lose(ctx, protocol.AllPartitions(), func(ended []int) { given <- ended })
		}()
		Eventually(ctx, given).Should(Receive(Equal([]int{protocol.Partition(string(quick.UID))})))
		Expect(w.locked(ctx, quick)).To(BeFalse())
		Expect(w.locked(ctx, slow)).To(BeTrue())
		Expect(lost).NotTo(BeClosed())
		close(goOn)
		Eventually(ctx, lost).Should(BeClosed())
		Expect(w.locked(ctx, slow)).To(BeFalse())
	}, NodeTimeout(2*patience))

	// mutations: checkpointRun without Until; advance or deskFirst that asks for a desk
	// all the same.
	It("do not wait for a desk when one of them is large, and is ahead of its status", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		a := w.newReplica(ctx, "a", here)
		run := w.create(ctx, chainOf(2))
		a.rush(ctx, run, 2)
		Expect(a.lags(run)).To(BeTrue())
		m := a.memories.peek(client.ObjectKeyFromObject(run))
		m.lastWriteBytes = 1 << 20
		m.toDesk, m.jobs = true, dispatch.State{} // what is to be rendered again is for the next owner
		a.Writes = shares.New(1, false, shares.KindMetrics{})
		defer a.fullDesks(ctx)()
		lost := make(chan struct{})
		go func() {
			defer close(lost)
			(&Handover{Runs: a.Reconciler, Feeds: a.bus.Results, Router: a.router}).Lose(ctx, protocol.AllPartitions(), func([]int) {})
		}()
		Eventually(ctx, lost).WithTimeout(patience).Should(BeClosed())
		Expect(stepOf(w.get(ctx, run), "s1").Phase).To(Equal(v1alpha1.StepSucceeded), "it is written")
		Expect(w.locked(ctx, run)).To(BeFalse())
	}, NodeTimeout(2*patience))

	// mutation: leave that has all partitions end together makes this fail.
	It("do not wait for the results of another partition", func(ctx SpecContext) {
		w := newWorld(ctx)
		a := w.newReplica(ctx, "a", here)
		stuck := stuckFeed{feeds: a.bus.Results, of: 7, goOn: make(chan struct{})}
		given, lost := make(chan []int, protocol.Partitions), make(chan struct{})
		go func() {
			defer close(lost)
			(&Handover{Runs: a.Reconciler, Feeds: stuck, Router: a.router}).Lose(ctx, protocol.AllPartitions(), func(ended []int) { given <- ended })
		}()
		Eventually(ctx, func() int { return len(given) }).Should(Equal(protocol.Partitions - 1))
		Expect(lost).NotTo(BeClosed())
		close(stuck.goOn)
		Eventually(ctx, lost).Should(BeClosed())
		Expect(given).To(HaveLen(protocol.Partitions))
	}, NodeTimeout(patience))

	// mutation: passOver that returns the error of such a pass makes this fail.
	It("end a pass that is in the middle of its write, and that is no error", func(ctx SpecContext) {
		w := newWorld(ctx)
		o := &ownsFor{}
		r := w.newReplica(ctx, "r", func(r *replica) {
			r.Driven = driven.New(w.clock, o)
			r.Driven.Begin(protocol.AllPartitions())
		})
		run := w.create(ctx, twoSteps())
		r.refuse = func(*v1alpha1.WorkflowRun) error { return errTest }
		_, err := r.pass(ctx, run)
		Expect(err).To(MatchError(errTest), "while it is driven here")
		r.refuse = func(*v1alpha1.WorkflowRun) error {
			o.end(ownership.ErrNotOwned)
			return errTest
		}
		w.clock.Step(time.Minute)
		Expect(r.mustPass(ctx, run)).To(BeZero())
	}, NodeTimeout(2*patience))

	// mutations: checkpointRun with ctx for while (the writes end with their own time-out), drop
	// that leaves the leases which ctx has no time for, or refused that takes the end of the
	// hand-over for a refusal, makes this fail.
	It("are given up when the time of the hand-over is over, though they are ahead and cannot be written", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		a := w.newReplica(ctx, "a", here)
		var runs []*v1alpha1.WorkflowRun
		const atOnce = checkpointParallel / 2 // of one namespace
		for range atOnce + 4 {
			run := w.create(ctx, chainOf(2))
			until(ctx, "the run is ahead", func() bool {
				a.mustPass(ctx, run)
				return a.lags(run)
			})
			runs = append(runs, run)
		}
		for _, t := range w.takeAll(ctx, len(runs)) {
			t.say(ctx, succeeded(t.id))
		}
		a.pumpAll(ctx, len(runs))
		Expect(a.Batches.Inbox.Backlog().Results).NotTo(BeZero())

		var misled, stay atomic.Int64
		hasty, end := context.WithCancel(log.IntoContext(ctx, funcr.New(func(_, args string) {
			switch {
			case strings.Contains(args, "A checkpoint is not taken"):
				misled.Add(1)
			case strings.Contains(args, "A run stays ahead of its status"):
				stay.Add(1)
			}
		}, funcr.Options{})))
		defer end()
		var writes atomic.Int64
		causes := make(chan error, len(runs))
		a.hook = func(ctx context.Context, at string) error {
			if at != "status/before" {
				return nil
			}
			if writes.Add(1) == atOnce {
				end()
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}
		(&Handover{Runs: a.Reconciler, Feeds: a.bus.Results, Router: a.router}).Lose(hasty, protocol.AllPartitions(), func([]int) {})
		a.hook = nil
		close(causes)
		Expect(writes.Load()).To(BeEquivalentTo(atOnce), "no write is begun after that")
		for cause := range causes {
			Expect(cause).To(MatchError(ownership.ErrNotOwned), "no write waits for its own time-out")
		}
		Expect(stay.Load()).To(BeEquivalentTo(atOnce), "each is told")
		Expect(misled.Load()).To(BeZero(), "the next owner runs ahead as before")
		Expect(a.Batches.Inbox.Backlog().Results).To(BeZero())
		until(ctx, "their locks are given back", func() bool {
			return !slices.ContainsFunc(runs, func(run *v1alpha1.WorkflowRun) bool { return w.locked(ctx, run) })
		})
	}, NodeTimeout(2*patience))

	// mutation: refused that asks for only one of the two makes this fail.
	DescribeTable("are not said to be written at every step from now on, as the next owner knows nothing of a last write", func(ctx SpecContext, cutOff bool) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		o := &ownsFor{}
		r := w.newReplica(ctx, "r", here, func(r *replica) {
			r.Driven = driven.New(w.clock, o)
			r.Driven.Begin(protocol.AllPartitions())
		})
		run := w.create(ctx, chainOf(2))
		until(ctx, "the run is ahead", func() bool {
			r.mustPass(ctx, run)
			return r.lags(run)
		})
		var mu sync.Mutex
		var told []string
		logger := log.IntoContext(ctx, funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, args)
		}, funcr.Options{Verbosity: 1}))
		r.refuse = func(*v1alpha1.WorkflowRun) error {
			if cutOff {
				o.end(ownership.ErrNotOwned)
			}
			return errTest
		}
		said := "A run stays ahead of its status"
		if cutOff {
			w.clock.Step(longest * time.Millisecond)
			result, err := r.Reconcile(logger, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(run)})
			Expect(err).NotTo(HaveOccurred())
			Expect(result).To(BeZero())
			said = "A pass ended as its run is handed over"
		} else {
			(&Handover{Runs: r.Reconciler, Feeds: r.bus.Results, Router: r.router}).Lose(logger, protocol.AllPartitions(), func([]int) {})
			Expect(r.lags(run)).To(BeFalse(), "it is forgotten")
			Expect(w.locked(ctx, run)).To(BeFalse())
		}
		Expect(told).To(ContainElement(And(ContainSubstring(said), ContainSubstring(errTest.Error()))))
		Expect(told).NotTo(ContainElement(ContainSubstring("A checkpoint is not taken")))
	},
		Entry("in a pass that is cut off", true, NodeTimeout(2*patience)),
		Entry("that is refused", false, NodeTimeout(2*patience)),
	)

	It("are cleaned up by the next owner if they are deleted while nobody drives them", func(ctx SpecContext) {
		w := newWorld(ctx)
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		from, to := a.handover(ctx), b.handover(ctx)
		run := w.create(ctx, twoSteps())
		part := protocol.Partition(string(run.UID))
		a.Index.See(run)
		b.Index.See(run)
		from.Gain(ctx, []int{part})
		a.inFlight(ctx, run, 1)
		Expect(w.jobsQueued(ctx)).To(Equal(1))
		from.Lose(ctx, []int{part}, func([]int) {})

		run = w.get(ctx, run)
		Expect(w.client.Delete(ctx, run)).To(Succeed())
		for _, r := range []*replica{a, b} { // as their informers see it
			r.Index.Remove(run, r.Driven.Drives(run.UID))
			r.mustPass(ctx, run)
		}
		Expect(w.jobsQueued(ctx)).To(Equal(1), "nobody drives it")

		q := b.awake()
		to.Gain(ctx, []int{part})
		b.woken(ctx, q, "its job is withdrawn", func() bool { return w.jobsQueued(ctx) == 0 })
	}, NodeTimeout(patience))

	// mutation: handover.go Lose that has leave look for runs only after the passes ended.
	It("are forgotten, too, if they are deleted while they are handed over", func(ctx SpecContext) {
		w := newWorld(ctx)
		a := w.newReplica(ctx, "a")
		h := a.handover(ctx)
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b", "a"), step("c", "b")})
		part := protocol.Partition(string(run.UID))
		a.Index.See(run)
		h.Gain(ctx, []int{part})
		a.inFlight(ctx, run, 1)
		key := client.ObjectKeyFromObject(run)
		Expect(a.memories.peek(key)).NotTo(BeNil())

		_, leave, ok := a.Driven.Enter(ctx, run.UID) // a pass over another run of the partition
		Expect(ok).To(BeTrue())
		lost := make(chan struct{})
		go func() {
			defer close(lost)
			h.Lose(ctx, []int{part}, func([]int) {})
		}()
		until(ctx, "the hand-over begins", func() bool { return !a.Driven.Drives(run.UID) })
		a.deleteRun(ctx, run)
		leave()
		Eventually(ctx, lost).Should(BeClosed())
		Expect(a.memories.peek(key)).To(BeNil())
		Expect(a.Ahead.Lag().Runs).To(BeZero())
	}, NodeTimeout(2*patience))

	It("have the work that is done once begin and end with its partition", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		var begun, ended atomic.Int64
		h := r.handover(ctx, manager.RunnableFunc(func(ctx context.Context) error {
			begun.Add(1)
			<-ctx.Done()
			ended.Add(1)
			return nil
		}))
		h.Gain(ctx, protocol.AllPartitions())
		Expect(begun.Load()).To(BeZero(), "the partitions of runs have none")
		for i := range int64(2) {
			h.Gain(ctx, []int{ownership.Singletons})
			until(ctx, "it begins", func() bool { return begun.Load() == i+1 })
			h.Lose(ctx, []int{ownership.Singletons}, func([]int) {})
			Expect(ended.Load()).To(Equal(i+1), "Lose waits for its end")
		}
	}, NodeTimeout(patience))
})

// ownsFor owns all partitions; end ends what it allowed last.
type ownsFor struct{ end context.CancelCauseFunc }

func (*ownsFor) Owns(int) bool { return true }

func (o *ownsFor) While(ctx context.Context, _ int) (context.Context, context.CancelFunc) {
	ctx, o.end = context.WithCancelCause(ctx)
	return ctx, func() {}
}

// askedGate lets runs in, but under a lock it answers none: a question ends when nobody wants its
// answer any more.
type askedGate struct{ ended chan struct{} }

func (g askedGate) Admit(ctx context.Context, _ *v1alpha1.WorkflowRun, _ string, p policy.Effective) (store.Answer, error) {
	if !p.Admission.Waits() {
		return store.Answer{Admitted: true}, nil
	}
	<-ctx.Done()
	close(g.ended)
	return store.Answer{}, context.Cause(ctx)
}

func (askedGate) Release(context.Context, types.UID, string, string) error { return nil }

func (askedGate) GiveUp(context.Context, *v1alpha1.WorkflowRun, string, string) error { return nil }

func (askedGate) Forget(types.UID) {}

// mutation: handover.go Lose without Forget of the templates, of the slots or of what is ahead, or
// cleanDeleted without Forget of the templates or of what is ahead, makes one of these fail.
var _ = Describe("what a process remembers of runs", func() {
	for how, end := range map[string]func(ctx context.Context, r *replica, runs ...*v1alpha1.WorkflowRun){
		"are handed over": func(ctx context.Context, r *replica, _ ...*v1alpha1.WorkflowRun) {
			h := &Handover{Runs: r.Reconciler, Feeds: r.bus.Results, Router: r.router}
			r.hook = func(_ context.Context, at string) error {
				if at == "get/before" {
					return errTest // what is ahead cannot be written
				}
				return nil
			}
			h.Lose(ctx, protocol.AllPartitions(), func([]int) {})
		},
		"are deleted": func(ctx context.Context, r *replica, runs ...*v1alpha1.WorkflowRun) {
			for _, run := range runs {
				r.deleteRun(ctx, run)
				r.mustPass(ctx, run)
			}
		},
	} {
		It("is forgotten when they "+how, func(ctx SpecContext) {
			w := newWorld(ctx)
			w.coalesced(ctx)
			locked := w.ns + "-locked"
			w.lockedLimit(ctx, locked, 1)
			r := w.newReplica(ctx, "r", here)
			gate := askedGate{ended: make(chan struct{})}
			asks := slots.NewAsks(gate, r.Clock, shares.KindMetrics{}, func(types.NamespacedName, bool) {})
			r.Slots = &slots.Slots{Quota: asks, Asks: asks}

			following := w.following(ctx, "missing", "")
			r.mustPass(ctx, following)
			missing := types.NamespacedName{Namespace: w.ns, Name: "missing"}
			Expect(r.Templates.WaitingFor(missing)).To(HaveLen(1))
			asking := w.create(ctx, twoSteps(), func(s *v1alpha1.WorkflowRunSpec) { s.WorkloadClass = locked })
			r.mustPass(ctx, asking)
			Expect(gate.ended).NotTo(BeClosed())
			lagging := w.create(ctx, chainOf(3))
			r.rush(ctx, lagging, 2)
			Expect(r.Ahead.Lag().Runs).To(Equal(1))

			end(ctx, r, following, asking, lagging)
			Expect(r.Templates.WaitingFor(missing)).To(BeEmpty())
			Expect(r.Ahead.Lag().Runs).To(BeZero())
			Eventually(gate.ended).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		}, NodeTimeout(patience))
	}
})
