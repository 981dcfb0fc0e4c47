// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/holds"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/quota/locks"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// locked gives a replica real locks across runs, on the Redis of its world, which should
// be its own.
func (r *replica) locked(ctx context.Context) (*woken, *locks.Controller) {
	GinkgoHelper()
	w := &woken{keys: map[types.NamespacedName]bool{}}
	c := locks.New(locks.Options{
		Store: store.New(r.redis, store.Options{Clock: r.Clock}), Client: r.Client, Live: r.Live, Wake: w.add, Clock: r.Clock, Log: GinkgoLogr,
	})
	r.Holds, r.SemaphoreChanged = &holds.Holds{Locks: c, Below: r.Children.UnderWay}, c.SemaphoreChanged
	Expect(c.Resync(ctx)).To(Succeed())
	clear(w.keys)
	return w, c
}

// twoDeleted makes three runs of one name. The first two are deleted while NATS is away, and the
// second of them had a lock that another run waits for.
func (r *replica) twoDeleted(ctx context.Context) (woken *woken, third, waiting *v1alpha1.WorkflowRun) {
	GinkgoHelper()
	woken, _ = r.locked(ctx)
	again := func(adjust ...func(*v1alpha1.WorkflowRunSpec)) *v1alpha1.WorkflowRun {
		run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "again", Namespace: r.w.ns}, Spec: v1alpha1.WorkflowRunSpec{WorkloadClass: r.w.ns, Steps: diamond()}}
		for _, f := range adjust {
			f(&run.Spec)
		}
		Expect(r.w.client.Create(ctx, run)).To(Succeed())
		return run
	}
	first := again()
	r.inFlight(ctx, first, 2)
	r.hook = func(_ context.Context, at string) error {
		if at == "withdraw/before" {
			return &results.RetryError{After: 2 * time.Second, Cause: errNoNATS}
		}
		return nil
	}
	r.deleteRun(ctx, first)
	second := again(withLocks(mutex("db")))
	r.inFlight(ctx, second, 2)
	waiting = r.w.create(ctx, diamond(), withLocks(mutex("db")))
	r.drive(ctx, waiting, withReason(v1alpha1.ReasonWaitingForLock))
	r.deleteRun(ctx, second)
	third = again()
	woken.take(waiting)
	return woken, third, waiting
}

func withOwnRedis() func(*world) {
	return func(w *world) { w.redis = redistest.Start(GinkgoTB()) }
}

func mutex(names ...string) (all []v1alpha1.LockRequest) {
	for _, name := range names {
		all = append(all, v1alpha1.LockRequest{Mutex: name})
	}
	return all
}

// semaphore makes one for the runs of a world.
func (w *world) semaphore(ctx context.Context, spec v1alpha1.SemaphoreSpec) string {
	sem := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{GenerateName: "sem-"}, Spec: spec}
	Expect(w.client.Create(ctx, sem)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(w.client.Delete(ctx, sem))).To(Succeed()) })
	return sem.Name
}

func withLocks(all []v1alpha1.LockRequest) func(*v1alpha1.WorkflowRunSpec) {
	return func(s *v1alpha1.WorkflowRunSpec) { s.Locks = all }
}

func one(name string, all []v1alpha1.LockRequest, deps ...string) v1alpha1.Step {
	s := step(name, deps...)
	s.Locks = all
	return s
}

// countedTakes counts how often locks are asked for.
type countedTakes struct {
	holds.Locks
	n atomic.Int64
}

func (c *countedTakes) Take(ctx context.Context, run *v1alpha1.WorkflowRun, part string, requests []locks.Request) (locks.Answer, error) {
	c.n.Add(1)
	return c.Locks.Take(ctx, run, part, requests)
}

func endedAs(run *v1alpha1.WorkflowRun) string {
	for _, c := range run.Status.Conditions {
		if c.Type == v1alpha1.ConditionSucceeded {
			return string(run.Status.Phase) + " " + c.Reason
		}
	}
	return ""
}

var _ = Describe("locks across runs", func() {
	// mutation: act.go release without Holds.Release makes this fail: nobody is woken.
	It("are held by one run at a time, and passed on when its end is written, with a greater fence", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		woken, _ := r.locked(ctx)
		first := w.create(ctx, diamond(), withLocks(mutex("deploy-${run.tenant}")))
		second := w.create(ctx, diamond(), withLocks(mutex("deploy-${run.tenant}")))
		first = r.inFlight(ctx, first, 2)
		name := "mutex:" + w.ns + "/deploy-" + w.ns
		Expect(first.Status.Locks).To(HaveLen(1))
		Expect(first.Status.Locks[0].Name).To(Equal(name))
		for _, t := range w.takeAll(ctx, 2) {
			Expect(t.msg.Headers().Values(protocol.HeaderLockFence)).To(Equal([]string{fmt.Sprintf("%s=%d", name, first.Status.Locks[0].Fence)}))
			t.succeed(ctx)
		}
		second = r.drive(ctx, second, withReason(v1alpha1.ReasonWaitingForLock))
		Expect(second.Status.Phase).To(Equal(v1alpha1.RunQueued))
		Expect(second.Status.Locks).To(BeEmpty())
		Expect(second.Status.Admission.LockWait.Lock).To(Equal(name))
		Expect(messageOf(second, v1alpha1.ConditionAdmitted)).To(ContainSubstring("held by " + w.ns + "/" + first.Name))
		version := second.ResourceVersion
		for range 3 {
			r.mustPass(ctx, second)
		}
		Expect(w.get(ctx, second).ResourceVersion).To(Equal(version), "a run that waits writes nothing")
		first = r.finish(ctx, first)
		Expect(first.Status.Locks).To(BeEmpty())
		Expect(woken.take(second)).To(BeTrue(), "the next is woken")
		second = r.inFlight(ctx, second, 2)
		Expect(second.Status.Locks[0].Fence).To(BeNumerically(">", fenceIn(first, name)))
		r.finish(ctx, second)
	}, NodeTimeout(2*patience))

	// mutation: cleanDeleted that ends with the first run of which something cannot be taken back.
	It("are given back by a deleted run, whatever an earlier one of its name left that cannot be taken back", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		woken, third, waiting := r.twoDeleted(ctx)
		Expect(r.mustPass(ctx, third).RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 2*time.Second)))
		Expect(woken.take(waiting)).To(BeTrue())
		r.hook = nil
		r.finish(ctx, third)
		r.finish(ctx, waiting)
		Expect(w.jobsQueued(ctx)).To(BeZero(), "what the deleted ones had")
	}, NodeTimeout(2*patience))

	// mutations: cleanDeleted that waits for NATS once for each run, however long, or that puts
	// back what failed before what it did not get to; one that asks for no pass for these.
	It("are given back by the next pass where taking back what one deleted run left takes a pass its time", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		woken, third, waiting := r.twoDeleted(ctx)
		var tried atomic.Int64
		slow := func(answer error) func(context.Context, string) error {
			return func(_ context.Context, at string) error {
				if at != "withdraw/before" {
					return nil
				}
				tried.Add(1)
				w.clock.Step(cleanTimeout / 2) // each has two jobs
				return answer
			}
		}
		r.hook = slow(&results.RetryError{After: 2 * time.Second, Cause: errNoNATS})
		Expect(r.mustPass(ctx, third).RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 2*time.Second)))
		Expect(tried.Load()).To(BeEquivalentTo(2), "the jobs of the first")
		Expect(woken.take(waiting)).To(BeFalse())
		r.mustPass(ctx, third)
		Expect(tried.Load()).To(BeEquivalentTo(4), "those of the second")
		Expect(woken.take(waiting)).To(BeTrue())
		r.hook = slow(nil)
		Expect(r.mustPass(ctx, third).RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", time.Second)), "the other one is left")
		Expect(tried.Load()).To(BeEquivalentTo(6))
		r.hook = nil
		r.finish(ctx, third)
		r.finish(ctx, waiting)
		Expect(w.jobsQueued(ctx)).To(BeZero(), "what the deleted ones had")
	}, NodeTimeout(2*patience))

	// mutation: starts.go with prepare instead of prepareLocked makes this fail.
	It("are held by a step while it is under way, its retries included", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		woken, _ := r.locked(ctx)
		steps := []v1alpha1.Step{one("free", nil), one("guarded", mutex("db")), one("after", nil, "guarded")}
		first, second := w.create(ctx, steps), w.create(ctx, steps)
		first = r.inFlight(ctx, first, 2)
		second = r.inFlight(ctx, second, 1)
		Expect(second.Status.Steps[1].Phase).To(Equal(v1alpha1.StepPending))
		second = r.drive(ctx, second, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Steps[1].LockWait != nil })
		for _, t := range w.takeAll(ctx, 3) {
			switch {
			case t.id.Step == "guarded":
				t.say(ctx, `{"status":"Failed","error":{"code":"Broken"}}`)
				Expect(t.msg.Ack()).To(Succeed())
			case t.id.RunUID == string(second.UID):
				t.succeed(ctx)
			}
		}
		first = r.drive(ctx, first, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Steps[1].Phase == v1alpha1.StepBackingOff })
		Expect(first.Status.Steps[1].Locks).To(HaveLen(1), "it is held between attempts")
		second = r.drive(ctx, second, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Steps[0].Phase == v1alpha1.StepSucceeded })
		Expect(reasonOf(second, v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonWaitingForLock))
		first = r.drive(ctx, first, func(now *v1alpha1.WorkflowRun) bool {
			for _, t := range w.take(ctx) {
				if t.id.Step == "guarded" {
					t.succeed(ctx)
				}
			}
			return now.Status.Steps[1].Phase == v1alpha1.StepSucceeded
		})
		Expect(first.Status.Steps[1].Locks).To(BeEmpty())
		Expect(woken.take(second)).To(BeTrue())
		second = r.drive(ctx, second, func(now *v1alpha1.WorkflowRun) bool { return len(now.Status.Steps[1].Locks) == 1 })
		r.finish(ctx, second)
	}, NodeTimeout(2*patience))

	It("end what may not wait as their semaphore says, and what cannot use it", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		_, _ = r.locked(ctx)
		ttl := int32(5)
		drop := w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1, OnBusy: v1alpha1.OnBusyDropNewest})
		full := w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1, Queue: v1alpha1.LockQueue{MaxLength: 1, TTLSeconds: &ttl}})
		others := w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1, Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "ml"}}})
		want := func(name string) func(*v1alpha1.WorkflowRunSpec) {
			return withLocks([]v1alpha1.LockRequest{{Semaphore: name, Key: "eu"}})
		}
		holders := []*v1alpha1.WorkflowRun{w.create(ctx, diamond(), want(drop)), w.create(ctx, diamond(), want(full))}
		for _, run := range holders {
			r.inFlight(ctx, run, 2)
		}
		ends := func(adjust func(*v1alpha1.WorkflowRunSpec)) string {
			return endedAs(r.drive(ctx, w.create(ctx, diamond(), adjust), lifecycle.Finished))
		}
		Expect(ends(want(drop))).To(Equal("Failed LockBusy"))
		waiting := w.create(ctx, diamond(), want(full))
		r.drive(ctx, waiting, withReason(v1alpha1.ReasonWaitingForLock))
		Expect(ends(want(full))).To(Equal("Failed LockQueueFull"))
		Expect(ends(want(others))).To(Equal("Failed LockUnusable"))
		Expect(ends(want("no-such"))).To(Equal("Failed LockUnusable"))
		Expect(ends(withLocks([]v1alpha1.LockRequest{{Semaphore: drop, Permits: new(int32(2))}}))).To(Equal("Failed LockUnusable"))
		Expect(ends(withLocks(mutex("${inputs.none}")))).To(Equal("Failed LockUnusable"))
		Expect(endedAs(r.drive(ctx, waiting, lifecycle.Finished))).To(Equal("TimedOut LockQueueTimeout"))
		for _, run := range holders {
			r.finish(ctx, run)
		}
	}, NodeTimeout(2*patience))

	// Who is too early waits without a write, knows when to ask again, and has a fence, which is in
	// the milliseconds of Redis, that shows that it did.
	//
	// mutations: want without the rate of the semaphore, and steps that ask for locks without a
	// place, make this fail.
	It("begin no more often than the rate of their semaphore", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		_, _ = r.locked(ctx)
		sem := w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 5, Rate: &v1alpha1.LockRate{Starts: 1, PerSeconds: 1}})
		want := withLocks([]v1alpha1.LockRequest{{Semaphore: sem}})
		var last int64
		for range 3 {
			run := r.inFlight(ctx, w.create(ctx, []v1alpha1.Step{step("a")}, want), 1)
			fence := run.Status.Locks[0].Fence
			Expect(fence - last).To(BeNumerically(">=", 990)) // a fence is taken a moment after the start is noted
			last = fence
		}
		// Made seconds after Redis was opened, so it is known that nothing began.
		slow := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{
			Name: w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 5, Rate: &v1alpha1.LockRate{Starts: 1, PerSeconds: 240}}),
		}}
		want = withLocks([]v1alpha1.LockRequest{{Semaphore: slow.Name}})
		r.inFlight(ctx, w.create(ctx, []v1alpha1.Step{step("a")}, want), 1)
		run := r.drive(ctx, w.create(ctx, []v1alpha1.Step{step("a")}, want), withReason(v1alpha1.ReasonWaitingForLock))
		Expect(messageOf(run, v1alpha1.ConditionAdmitted)).To(ContainSubstring("until its rate lets one begin at"))
		Expect(r.mustPass(ctx, run).RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 240*time.Second)))
		Expect(w.client.Patch(ctx, slow, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"rate":{"starts":2}}}`)))).To(Succeed())
		r.finishAll(ctx, run)

		// Steps that have no place spend no start of it.
		sem = w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 5, Rate: &v1alpha1.LockRate{Starts: 3, PerSeconds: 3600}})
		var steps []v1alpha1.Step
		for _, name := range []string{"a", "b", "c"} {
			steps = append(steps, one(name, []v1alpha1.LockRequest{{Semaphore: sem}}))
		}
		r.finish(ctx, w.create(ctx, steps, func(s *v1alpha1.WorkflowRunSpec) { s.MaxParallelSteps = 1 }))

		// Nor do those whose place one takes whose input is too large for a pass that is
		// to be quick.
		sem = w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 5, Rate: &v1alpha1.LockRate{Starts: 2, PerSeconds: 3600}})
		large := step("large")
		large.Job.Input = &runtime.RawExtension{Raw: []byte(`{"x":"${run.name}","pad":"` + strings.Repeat("x", 5<<10) + `"}`)}
		steps = []v1alpha1.Step{large, one("a", []v1alpha1.LockRequest{{Semaphore: sem}}), one("b", []v1alpha1.LockRequest{{Semaphore: sem}})}
		r.finish(ctx, w.create(ctx, steps, func(s *v1alpha1.WorkflowRunSpec) { s.MaxParallelSteps = 1 }))
	}, NodeTimeout(2*patience))

	// Each item that is refused has the next one ask. A pass does not go on with that for ever.
	//
	// mutation: decide without maxLockTurns makes this fail.
	It("are asked for by so many items that are refused, in several passes", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		_, _ = r.locked(ctx)
		sem := w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1, OnBusy: v1alpha1.OnBusyDropNewest})
		busy := []v1alpha1.LockRequest{{Semaphore: sem}}
		holder := r.inFlight(ctx, w.create(ctx, []v1alpha1.Step{step("a")}, withLocks(busy)), 1)
		asked := &countedTakes{Locks: r.Holds.Locks}
		r.Holds.Locks = asked
		all := step("all")
		all.ForEach = &v1alpha1.ForEach{Items: "${inputs.list}", MaxParallel: 1, OnItemFailure: v1alpha1.Collect, Locks: busy}
		run := w.create(ctx, []v1alpha1.Step{all}, func(s *v1alpha1.WorkflowRunSpec) {
			s.Inputs = &runtime.RawExtension{Raw: []byte(`{"list":[` + strings.Repeat("0,", 299) + `0]}`)}
		})
		most := int64(0)
		run = r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			most = max(most, asked.n.Swap(0))
			return lifecycle.Finished(now)
		})
		Expect(run.Status.Steps[0].ForEach.Failed).To(Equal(int32(300)))
		Expect(most).To(And(BeNumerically(">", 1), BeNumerically("<=", 128)))
		r.finish(ctx, holder)
	}, NodeTimeout(2*patience))

	It("keep the latest of many that wait", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		_, _ = r.locked(ctx)
		sem := w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1, OnBusy: v1alpha1.OnBusyKeepLatest})
		var runs []*v1alpha1.WorkflowRun
		for range 50 {
			runs = append(runs, w.create(ctx, []v1alpha1.Step{step("a")}, withLocks([]v1alpha1.LockRequest{{Semaphore: sem}})))
		}
		r.drive(ctx, runs[0], lifecycle.Admitted)
		for _, i := range rand.Perm(49) {
			r.turn(ctx, runs[i+1])
		}
		ends := map[string]int{}
		for _, i := range append([]int{0}, rand.Perm(50)...) {
			ends[fmt.Sprint(i, " ", endedAs(r.finish(ctx, runs[i])))]++
		}
		Expect(ends).To(HaveKey("0 Succeeded Succeeded"))
		Expect(ends).To(HaveKey("49 Succeeded Succeeded"))
		superseded := 0
		for end := range ends {
			if strings.HasSuffix(end, " Cancelled Superseded") {
				superseded++
			}
		}
		Expect(superseded).To(Equal(48), "%v", ends)
	}, NodeTimeout(2*patience))

	It("cancel the oldest holder, with its clean-up, and pass on when that is over", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		woken, _ := r.locked(ctx)
		sem := w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1, OnBusy: v1alpha1.OnBusyCancelOldest})
		first := w.create(ctx, diamond(), withLocks([]v1alpha1.LockRequest{{Semaphore: sem}}), func(s *v1alpha1.WorkflowRunSpec) { s.Finally = []v1alpha1.Step{step("tidy")} })
		r.inFlight(ctx, first, 2)
		second := w.create(ctx, diamond(), withLocks([]v1alpha1.LockRequest{{Semaphore: sem}}))
		r.drive(ctx, second, withReason(v1alpha1.ReasonWaitingForLock))
		first = r.drive(ctx, first, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Ending != nil })
		Expect(first.Status.Locks).To(HaveLen(1), "it is held until the clean-up is over")
		Expect(first.Annotations[locks.AnnotationCancelledFor]).To(ContainSubstring(second.Name))
		Expect(endedAs(r.finish(ctx, first))).To(Equal("Cancelled Cancelled"))
		Expect(woken.take(second)).To(BeTrue())
		Expect(endedAs(r.finish(ctx, second))).To(Equal("Succeeded Succeeded"))
	}, NodeTimeout(2*patience))

	// mutations: cancel that has no patch without the annotation, or one that takes away
	// all of them.
	It("cancel an oldest holder whose annotations leave no room", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		r.locked(ctx)
		wanted := withLocks([]v1alpha1.LockRequest{{Semaphore: w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1, OnBusy: v1alpha1.OnBusyCancelOldest})}})
		first := r.inFlight(ctx, w.create(ctx, diamond(), wanted), 2)
		full, used := w.get(ctx, first), 0
		for key, value := range full.Annotations {
			used += len(key) + len(value)
		}
		metav1.SetMetaDataAnnotation(&full.ObjectMeta, "full", strings.Repeat("x", 256<<10-used-len("full")))
		Expect(w.client.Update(ctx, full)).To(Succeed())
		second := w.create(ctx, diamond(), wanted)
		r.drive(ctx, second, withReason(v1alpha1.ReasonWaitingForLock))
		Expect(w.get(ctx, first).Spec.Shutdown).To(Equal(v1alpha1.ShutdownCancel))
		Expect(w.get(ctx, first).Annotations).To(Equal(full.Annotations))
		Expect(endedAs(r.finish(ctx, first))).To(Equal("Cancelled Cancelled"))
		Expect(endedAs(r.finish(ctx, second))).To(Equal("Succeeded Succeeded"))
	}, NodeTimeout(2*patience))

	// mutation: cancel without the UID in its patch makes this fail; so does an error for a holder
	// that is gone.
	It("cancel no run that was made anew under the name of the oldest holder, though the cache has not seen it", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		r.locked(ctx)
		wanted := withLocks([]v1alpha1.LockRequest{{Semaphore: w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1, OnBusy: v1alpha1.OnBusyCancelOldest})}})
		first := r.inFlight(ctx, w.create(ctx, diamond(), wanted), 2)
		Expect(w.client.Delete(ctx, first)).To(Succeed())
		anew := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: first.Name, Namespace: first.Namespace}, Spec: *first.Spec.DeepCopy()}
		Expect(w.client.Create(ctx, anew)).To(Succeed())
		r.cached = func(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
			if run.UID == anew.UID {
				return first
			}
			return nil
		}
		second := w.create(ctx, diamond(), wanted)
		r.drive(ctx, second, withReason(v1alpha1.ReasonWaitingForLock))
		now := w.get(ctx, anew)
		Expect(now.Spec.Shutdown).To(BeEmpty())
		Expect(now.Annotations).NotTo(HaveKey(locks.AnnotationCancelledFor))
	}, NodeTimeout(2*patience))

	// A run that needs two locks waits for the second, and one that came later needs
	// the first only.
	//
	// mutations: no semaphore that is ordered, or all of them, makes an entry fail.
	DescribeTable("are for who is next by their order, where a run needs two", func(ctx SpecContext, order v1alpha1.LockOrder) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		woken, _ := r.locked(ctx)
		x := v1alpha1.LockRequest{Semaphore: w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1, Order: order})}
		y := v1alpha1.LockRequest{Semaphore: w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 1, Order: order})}
		wants := func(all ...v1alpha1.LockRequest) *v1alpha1.WorkflowRun {
			return w.create(ctx, []v1alpha1.Step{step("a")}, withLocks(all))
		}
		ofX, ofY, both, late := wants(x), wants(y), wants(y, x), wants(x)
		r.drive(ctx, ofX, lifecycle.Admitted)
		r.drive(ctx, ofY, lifecycle.Admitted)
		r.drive(ctx, both, withReason(v1alpha1.ReasonWaitingForLock))
		r.drive(ctx, late, withReason(v1alpha1.ReasonWaitingForLock))
		r.finish(ctx, ofX)
		Expect(woken.take(both)).To(BeFalse(), "the second of its locks is held")
		passes := order == v1alpha1.OrderFirstRunnable
		Expect(woken.take(late)).To(Equal(passes))
		r.turn(ctx, late)
		Expect(w.get(ctx, late).Status.Locks).To(HaveLen(map[bool]int{true: 1}[passes]))
		if passes {
			Expect(endedAs(r.finish(ctx, late))).To(Equal("Succeeded Succeeded"))
		}
		r.finish(ctx, ofY)
		Expect(woken.take(both)).To(BeTrue())
		Expect(r.drive(ctx, both, lifecycle.Admitted).Status.Locks).To(HaveLen(2))
		Expect(endedAs(r.finish(ctx, both))).To(Equal("Succeeded Succeeded"))
		Expect(woken.take(late)).To(Equal(!passes))
		Expect(endedAs(r.finish(ctx, late))).To(Equal("Succeeded Succeeded"))
	},
		Entry("FirstRunnable: the later one goes first", v1alpha1.OrderFirstRunnable, NodeTimeout(2*patience)),
		Entry("Ordered: the later one waits, too", v1alpha1.OrderOrdered, NodeTimeout(2*patience)),
	)

	// mutation: deleted.go remember that does not note holds, or that comes after ReleaseAll.
	It("are given back by a run that was made anew while Redis was away", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		_, _ = r.locked(ctx)
		run := w.create(ctx, []v1alpha1.Step{step("a")}, withLocks(mutex("db")))
		r.inFlight(ctx, run, 1)
		r.deleteRun(ctx, run)
		again := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: run.Name, Namespace: run.Namespace}, Spec: run.Spec}
		Expect(w.client.Create(ctx, again)).To(Succeed())
		open := r.Holds.Locks
		r.Holds.Locks = stuckLocks{open}
		r.turn(ctx, again)
		r.Holds.Locks = open
		r.mustPass(ctx, again)
		Expect(endedAs(r.finish(ctx, again))).To(Equal("Succeeded Succeeded"), "without a resync")
	}, NodeTimeout(2*patience))

	// mutation: SeenParent that tells no locks makes this fail.
	It("are told to the child runs that are inside of them", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		_, _ = r.locked(ctx)
		sub := w.childStep("sub", `{"workloadClass":"CLASS","steps":[{"name":"inner","job":{"topic":"work"}}]}`)
		sub.Locks = mutex("outer")
		top := w.create(ctx, []v1alpha1.Step{sub}, withLocks(mutex("top")))
		child := r.drive(ctx, r.childOf(ctx, top, "sub"), func(now *v1alpha1.WorkflowRun) bool { return now.Status != nil && now.Status.Parent != nil })
		inside := child.Status.Parent.Locks
		Expect(inside).To(HaveLen(2))
		Expect(inside[0].Name).To(Equal("mutex:" + w.ns + "/top"))
		Expect(inside[0]).To(Equal(w.get(ctx, top).Status.Locks[0]))
		Expect(inside[1].Name).To(Equal("mutex:" + w.ns + "/outer"))
		Expect(endedAs(r.finishAll(ctx, top))).To(Equal("Succeeded Succeeded"))
	}, NodeTimeout(2*patience))

	It("stop nobody when a semaphore is lowered or deleted, and let nobody new begin", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		woken, c := r.locked(ctx)
		sem := w.semaphore(ctx, v1alpha1.SemaphoreSpec{Permits: 2})
		var runs []*v1alpha1.WorkflowRun
		for range 4 {
			runs = append(runs, w.create(ctx, []v1alpha1.Step{step("a")}, withLocks([]v1alpha1.LockRequest{{Semaphore: sem}})))
		}
		r.drive(ctx, runs[0], lifecycle.Admitted)
		r.drive(ctx, runs[1], lifecycle.Admitted)
		r.drive(ctx, runs[2], withReason(v1alpha1.ReasonWaitingForLock))
		o := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: sem}}
		Expect(w.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"permits":1}}`)))).To(Succeed())
		r.finish(ctx, runs[0])
		r.turn(ctx, runs[2])
		Expect(w.get(ctx, runs[2]).Status.Locks).To(BeEmpty(), "one is held, and there is one")
		Expect(c.Resync(ctx)).To(Succeed())
		Expect(w.client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		Expect(o.Status.Held).To(BeEquivalentTo(1))
		Expect(o.Status.Queued).To(BeEquivalentTo(1))
		Expect(w.client.Delete(ctx, o)).To(Succeed())
		r.SemaphoreChanged(sem)
		Expect(c.Resync(ctx)).To(Succeed())
		Expect(woken.take(runs[2])).To(BeTrue())
		Expect(endedAs(r.drive(ctx, runs[2], lifecycle.Finished))).To(Equal("Failed LockUnusable"))
		Expect(endedAs(r.finish(ctx, runs[1]))).To(Equal("Succeeded Succeeded"))
		Expect(endedAs(r.drive(ctx, runs[3], lifecycle.Finished))).To(Equal("Failed LockUnusable"))
	}, NodeTimeout(2*patience))

	// mutations: a rebuild without its marks or its holds, a resync that drops whatever version, or
	// one that is left out, make this fail.
	DescribeTable("are never over their limits, whatever dies or loses its data", func(ctx SpecContext, n, parts int, create func(context.Context, *world) *v1alpha1.WorkflowRun) {
		if os.Getenv("LOCKS") != "" {
			n *= 8
		}
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "r0")
		_, c := r.locked(ctx)
		var runs []*v1alpha1.WorkflowRun
		for range n {
			runs = append(runs, create(ctx, w))
		}
		kills, flushes := 5, 2
		left := slices.Clone(runs)
		for turn := 1; len(left) > 0; turn++ {
			if turn%(n/4) == 0 && kills > 0 {
				kills--
				r.kill(ctx)
				r = w.newReplica(ctx, fmt.Sprint("r", 5-kills))
				_, c = r.locked(ctx)
				for _, run := range runs {
					r.Index.See(w.get(ctx, run)) // as the informer does, before results come
				}
				Expect(w.redis.Client().Del(ctx, locksOf(runs)...).Err()).To(Succeed())
			}
			if turn%(n/2) == n/3 && flushes > 0 {
				flushes--
				Expect(w.redis.Client().FlushAll(ctx).Err()).To(Succeed())
				Expect(c.Resync(ctx)).To(Succeed())
			}
			if turn%n == 0 {
				Expect(c.Resync(ctx)).To(Succeed())
			}
			i := rand.IntN(len(left))
			r.turn(ctx, left[i])
			if rand.IntN(3) == 0 {
				w.work(ctx)
			}
			if lifecycle.Finished(w.get(ctx, left[i])) {
				left = slices.Delete(left, i, i+1)
			}
		}
		Expect(kills + flushes).To(BeZero())
		for range 2 {
			w.clock.Step(locksIdle)
			Expect(c.Resync(ctx)).To(Succeed())
		}
		s, err := store.New(r.redis, store.Options{}).SnapshotLocks(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Holds).To(BeEmpty(), "no permit is left")
		checkLocks(ctx, runs, w, parts)
	},
		Entry("of runs", 25, 1, func(ctx context.Context, w *world) *v1alpha1.WorkflowRun {
			return w.create(ctx, []v1alpha1.Step{step("a")}, withLocks(mutex(twoLocks()...)))
		}, NodeTimeout(20*patience)),
		Entry("of items", 8, 6, func(ctx context.Context, w *world) *v1alpha1.WorkflowRun {
			s := step("a")
			s.ForEach = &v1alpha1.ForEach{Items: "${inputs.pairs}", MaxParallel: 4, Locks: mutex("${item[0]}", "${item[1]}")}
			var pairs [][]string
			for range 6 {
				pairs = append(pairs, twoLocks())
			}
			text, err := json.Marshal(map[string]any{"pairs": pairs})
			Expect(err).NotTo(HaveOccurred())
			return w.create(ctx, []v1alpha1.Step{s}, func(spec *v1alpha1.WorkflowRunSpec) { spec.Inputs = &runtime.RawExtension{Raw: text} })
		}, NodeTimeout(20*patience)),
	)

	// Three items want the same lock, and one another: each job carries the fence of its item's.
	//
	// mutation: launchesOf that begins items with locks as others makes this fail.
	It("are of single items, which hold them while they are under way", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		woken, _ := r.locked(ctx)
		s := step("each")
		s.ForEach = &v1alpha1.ForEach{Items: "${['x', 'y', 'x', 'x']}", Locks: mutex("host-${item}")}
		run := w.create(ctx, []v1alpha1.Step{s})
		run = r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return now.Status != nil && len(now.Status.Steps) == 1 && now.Status.Steps[0].ForEach != nil && len(now.Status.Steps[0].ForEach.Locks) == 4
		})
		Expect(messageOf(run, v1alpha1.ConditionSucceeded)).To(ContainSubstring("item 2 waits for lock mutex:" + w.ns + "/host-x since"))
		for begun, item := range []int{0, 2, 3} {
			held := run.Status.Steps[0].ForEach.Locks
			for _, t := range w.takeAll(ctx, 1+map[int]int{0: 1}[begun]) {
				i := slices.IndexFunc(held, func(l v1alpha1.ItemLocks) bool { return fmt.Sprint(l.Item) == t.id.Item })
				Expect(t.msg.Headers().Values(protocol.HeaderLockFence)).To(Equal([]string{fmt.Sprintf("%s=%d", held[i].Locks[0].Name, held[i].Locks[0].Fence)}))
				Expect(t.id.Item).To(Or(Equal(fmt.Sprint(item)), Equal("1")))
				t.succeed(ctx)
			}
			clear(woken.keys)
			run = r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
				f := now.Status.Steps[0].ForEach
				return now.Status.CompletedAt != nil || int(f.Succeeded) == begun+2 && len(f.Locks) > 0 && len(f.Locks[0].Locks) > 0
			})
		}
		Expect(endedAs(run)).To(Equal("Succeeded Succeeded"))
		snapshot, err := store.New(r.redis, store.Options{}).SnapshotLocks(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(append(snapshot.Holds, store.Holding{})).To(HaveLen(1), "no permit is left")
	}, NodeTimeout(2*patience))

	// mutation: a rule of the schema against it.
	It("are of a step with items, which holds them until the last one is over", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		r := w.newReplica(ctx, "a")
		woken, _ := r.locked(ctx)
		s := step("each")
		s.ForEach, s.Locks = &v1alpha1.ForEach{Items: "${['x', 'y']}", MaxParallel: 1}, mutex("whole")
		run := w.create(ctx, []v1alpha1.Step{s})
		for item := range 2 {
			run = r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
				return now.Status != nil && len(now.Status.Steps) == 1 && now.Status.Steps[0].ForEach != nil && int(now.Status.Steps[0].ForEach.Succeeded) == item
			})
			held := run.Status.Steps[0].Locks
			Expect(held).To(HaveLen(1))
			Expect(held[0].Name).To(Equal("mutex:" + w.ns + "/whole"))
			for _, t := range w.takeAll(ctx, 1) {
				Expect(t.msg.Headers().Values(protocol.HeaderLockFence)).To(Equal([]string{fmt.Sprintf("%s=%d", held[0].Name, held[0].Fence)}))
				t.succeed(ctx)
			}
			clear(woken.keys)
		}
		run = r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return now.Status.CompletedAt != nil })
		Expect(endedAs(run)).To(Equal("Succeeded Succeeded"))
		snapshot, err := store.New(r.redis, store.Options{}).SnapshotLocks(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(snapshot.Holds).To(BeEmpty(), "no permit is left")
	}, NodeTimeout(2*patience))
})

// twoLocks are two of four, in an order of their own.
func twoLocks() []string {
	names := []string{"l0", "l1", "l2", "l3"}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names[:2]
}

// locksIdle is longer than a grant may go unused.
const locksIdle = 11_000_000_000

func locksOf(runs []*v1alpha1.WorkflowRun) (all []string) {
	for _, run := range runs {
		all = append(all, lockKey(run))
	}
	return all
}

// checkLocks goes through all writes in the order in which the API server took them. Each part of a
// run had two locks once.
func checkLocks(ctx context.Context, runs []*v1alpha1.WorkflowRun, w *world, parts int) {
	GinkgoHelper()
	var all []*v1alpha1.WorkflowRun
	for _, run := range runs {
		var versions []*v1alpha1.WorkflowRun
		until(ctx, "the watch has seen the last write", func() bool {
			versions = suite.history.of(run.UID, w.get(ctx, run).ResourceVersion)
			return len(versions) > 0
		})
		all = append(all, versions...)
	}
	slices.SortFunc(all, func(a, b *v1alpha1.WorkflowRun) int {
		if len(a.ResourceVersion) != len(b.ResourceVersion) {
			return len(a.ResourceVersion) - len(b.ResourceVersion)
		}
		return strings.Compare(a.ResourceVersion, b.ResourceVersion)
	})
	holder, fences, passed := map[string]string{}, map[string]int64{}, 0
	for _, run := range all {
		held := map[string]string{}
		for _, ticket := range locks.HeldBy(run) {
			h, _ := locks.HoldingOf(run, ticket)
			for _, l := range h.Locks {
				Expect(held[l.Name]).To(BeEmpty(), "%s is held twice in one run", l.Name)
				held[l.Name] = ticket
				if holder[l.Name] == ticket {
					continue
				}
				Expect(holder[l.Name]).To(BeEmpty(), "%s is held by two", l.Name)
				Expect(h.Fence).To(BeNumerically(">", fences[l.Name]))
				holder[l.Name], fences[l.Name], passed = ticket, h.Fence, passed+1
			}
		}
		for name, ticket := range holder {
			if locks.OwnerOf(ticket) == run.UID && held[name] == "" {
				delete(holder, name)
			}
		}
	}
	Expect(passed).To(Equal(2*parts*len(runs)), "each part of a run had its two locks once")
}

// fenceIn is the last fence that a run had of a lock, by the writes that the watch saw.
func fenceIn(run *v1alpha1.WorkflowRun, name string) (last int64) {
	for _, version := range suite.history.of(run.UID, run.ResourceVersion) {
		for _, l := range version.Status.Locks {
			if l.Name == name {
				last = max(last, l.Fence)
			}
		}
	}
	return last
}

// stuckLocks cannot be given back.
type stuckLocks struct{ holds.Locks }

func (stuckLocks) Drop(context.Context, ...store.Dropping) error {
	return &results.RetryError{After: time.Second, Cause: errTest}
}
