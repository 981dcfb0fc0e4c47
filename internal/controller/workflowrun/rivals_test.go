// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

// Two replicas that both believe to own every run. That no attempt is stored twice, no result
// acknowledged before it is in status and no fence goes back is checked at the end of each
// spec (see world.check).
//
// Mutations that make specs below fail:
//   - dispatch.go each without the look at the lease: "a holder that was paused" dispatches twice.
//   - persist.go persist with resourceVersion taken out of the object: "both decide on the same
//     state" dispatches twice.
//   - act.go recoverJobs that publishes without a look-up: the job of the other is stored twice.
//   - decide.go recoverFrom that is always zero: "leaves an attempt to the other" looks it up at
//     once.
//   - dispatch: fence.go Fence that does nothing: "a holder that was paused in its
//     recovery" dispatches twice.
//   - leases: session.go Take without the floor that NATS told of: "is told of a higher fence"
//     never gets on.
var _ = Describe("two replicas that both own everything", func() {
	It("take turns, and know each other's jobs and results", func(ctx SpecContext) {
		w := newWorld(ctx, withWindow(tinyWindow))
		w.policy(ctx, quick())
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		run := w.create(ctx, diamond())
		for _, r := range []*replica{a, b, a, b} {
			r.inFlight(ctx, run, 2)
		}
		w.outliveWindow(ctx)
		end := w.finishBoth(ctx, run, a, b)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(w.jobsStored(ctx)).To(Equal(3))
		Expect(b.counter("syncopate_job_recoveries_total", "outcome", "Queued")).To(BeNumerically(">=", 2))
	}, NodeTimeout(2*patience))

	It("leaves an attempt to the other that has just dispatched it", func(ctx SpecContext) {
		w := newWorld(ctx)
		polling := quick()
		polling.Wait.Mode = v1alpha1.WaitModePoll
		w.policy(ctx, polling)
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		run := w.create(ctx, diamond())
		a.inFlight(ctx, run, 2)
		w.dropLock(ctx, run) // it lingers no more: b could have it

		recovered := func() float64 { return b.counter("syncopate_job_recoveries_total") }
		wait := b.mustPass(ctx, run).RequeueAfter
		Expect(wait).To(And(BeNumerically(">", 0), BeNumerically("<=", OthersPatience)))
		Expect(recovered()).To(BeZero())
		Expect(w.locked(ctx, run)).To(BeFalse())

		w.clock.Step(wait)
		b.mustPass(ctx, run)
		Expect(recovered()).To(BeEquivalentTo(2), "a may be dead")
		w.finishBoth(ctx, run, a, b)
	}, NodeTimeout(patience))

	It("both decide on the same state: the later write is refused and has no effect", func(ctx SpecContext) {
		w := newWorld(ctx, withWindow(tinyWindow))
		w.policy(ctx, v1alpha1.RunLockPolicy{LingerMillis: new(int64(0))}) // a does not find out before it writes
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		run := w.create(ctx, diamond())
		a.hook = once("status/before", func() error {
			w.dropLock(ctx, run) // Redis lost the lock
			b.inFlight(ctx, run, 2)
			w.work(ctx) // the worker is done with the jobs before a goes on
			w.outliveWindow(ctx)
			return nil
		})
		Expect(a.mustPass(ctx, run).RequeueAfter).To(Equal(refreshDelay))
		Expect(w.jobsStored(ctx)).To(Equal(2), "only b's")
		Expect(a.counter("syncopate_fence_rejections_total", "by", "resource_version")).To(BeEquivalentTo(1))
		w.finishBoth(ctx, run, a, b)
		Expect(w.jobsStored(ctx)).To(Equal(3))
	}, NodeTimeout(2*patience))

	It("a holder that was paused between its write and its publish does not publish what the other recovered", func(ctx SpecContext) {
		w := newWorld(ctx, withWindow(tinyWindow))
		w.policy(ctx, quick())
		pausable := &resumed{FakeClock: clocktesting.NewFakeClock(time.Now())}
		a := w.newReplica(ctx, "a")
		a.manager = lockmgr.New(a.redis, lockmgr.Options{Holder: "a", Clock: pausable, Log: GinkgoLogr})
		DeferCleanup(func(ctx SpecContext) { _ = a.manager.Close(ctx) })
		b := w.newReplica(ctx, "b")
		run := w.create(ctx, diamond())
		a.hook = once("status/after", func() error {
			w.dropLock(ctx, run) // the TTL passes, b takes over, a worker does the jobs
			b.inFlight(ctx, run, 2)
			w.work(ctx)
			w.outliveWindow(ctx)
			pausable.slept.Store(int64(time.Hour))
			return nil
		})
		a.mustPass(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(2), "only b's")
		end := w.finishBoth(ctx, run, a, b)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(w.jobsStored(ctx)).To(Equal(3))
	}, NodeTimeout(2*patience))

	// The lease says yes, and then the process stands still: nothing that it looks at itself can
	// help any more.
	for name, after := range map[string]func(context.Context, *world){
		"beyond the window": func(ctx context.Context, w *world) { w.outliveWindow(ctx) },
		"over a restart of NATS": func(ctx context.Context, w *world) {
			w.restartNATS(ctx)
			w.outliveWindow(ctx)
		},
	} {
		It("a holder that was paused between its last look at the lease and its publish, "+name+", publishes nothing", func(ctx SpecContext) {
			w := newWorld(ctx, withWindow(tinyWindow))
			w.policy(ctx, quick())
			a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
			a.manager = lockmgr.New(a.redis, lockmgr.Options{Holder: "a", Clock: clocktesting.NewFakeClock(time.Now()), Log: GinkgoLogr})
			DeferCleanup(func(ctx SpecContext) { _ = a.manager.Close(ctx) })
			run := w.create(ctx, diamond())
			var paused sync.Once
			a.hook = func(_ context.Context, at string) error {
				defer GinkgoRecover()
				if at == "publish/before" {
					paused.Do(func() { // the other publish of the pass waits with this one
						w.dropLock(ctx, run)
						b.inFlight(ctx, run, 2)
						for _, t := range w.takeAll(ctx, 2) { // a server that is slow has none at once
							t.succeed(ctx)
						}
						after(ctx, w)
						until(ctx, "the replica is connected", a.bus.Connected)
					})
				}
				return nil
			}
			a.mustPass(ctx, run)
			w.work(ctx) // if it was stored again, the worker does it again
			Expect(w.jobsStored(ctx)).To(Equal(2), "only b's")
			end := w.finishBoth(ctx, run, a, b)
			Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
			Expect(w.jobsStored(ctx)).To(Equal(3))
		}, NodeTimeout(2*patience))
	}

	// What the second one recovers is answered, applied and acknowledged by the third one: nothing
	// but the epoch of the attempt tells.
	It("a holder that was paused in its recovery does not publish what is done since", func(ctx SpecContext) {
		w := newWorld(ctx, withWindow(tinyWindow))
		w.policy(ctx, quick())
		a, b, c := w.newReplica(ctx, "a"), w.newReplica(ctx, "b", quietly), w.newReplica(ctx, "c", quietly)
		b.manager = lockmgr.New(b.redis, lockmgr.Options{Holder: "b", Clock: clocktesting.NewFakeClock(time.Now()), Log: GinkgoLogr})
		DeferCleanup(func(ctx SpecContext) { _ = b.manager.Close(ctx) })
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		a.hook = func(_ context.Context, at string) error {
			if at == "publish/before" || at == "recover/before" {
				return errTest
			}
			return nil
		}
		a.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return len(lifecycle.InFlight(now)) == 1 })
		w.dropLock(ctx, run)
		b.hook = once("recover/before", func() error {
			defer GinkgoRecover()
			w.dropLock(ctx, run)
			a.hook = nil
			a.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool { return w.jobsQueued(ctx) == 1 })
			w.takeAll(ctx, 1)[0].succeed(ctx)
			a.drive(ctx, run, lifecycle.Finished)
			a.drained(ctx, run)
			w.outliveWindow(ctx)
			return nil
		})
		w.clock.Step(OthersPatience)
		b.mustPass(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(1))
		Expect(w.jobsQueued(ctx)).To(BeZero())
		Expect(b.counter("syncopate_fence_rejections_total", "by", "nats_fence")).To(BeEquivalentTo(1))
		c.mustPass(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(1))
	}, NodeTimeout(2*patience))

	// mutation: underLock that writes a claim in any case makes this fail, and so does one that
	// does not fence what it finds: the old holder publishes again what was answered.
	It("a new holder that finds all attempts with NATS writes nothing, and keeps the old one from publishing", func(ctx SpecContext) {
		w := newWorld(ctx, withWindow(tinyWindow))
		w.policy(ctx, quick())
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		run := w.create(ctx, diamond())
		before := a.inFlight(ctx, run, 2)
		late := lifecycle.Outlines(before)[0]
		w.dropLock(ctx, run)
		w.clock.Step(OthersPatience)
		Expect(b.inFlight(ctx, run, 2).ResourceVersion).To(Equal(before.ResourceVersion), "nothing is to be written")
		for _, job := range w.takeAll(ctx, 2) {
			job.succeed(ctx)
		}
		w.outliveWindow(ctx)
		err := a.bus.Jobs.Publish(ctx, jobs.Job{ID: late.ID, Topic: late.Topic, Deadline: late.Deadline, Fence: *before.Status.Fence, Input: []byte("{}")})
		_, fenced := errors.AsType[*jobs.FencedError](err)
		Expect(fenced).To(BeTrue(), "%v", err)
		end := w.finishBoth(ctx, run, a, b)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(*end.Status.Fence).To(BeNumerically(">", *before.Status.Fence))
		Expect(w.jobsStored(ctx)).To(Equal(3))
	}, NodeTimeout(2*patience))

	// mutation: findsAll that takes no answer for all, and underLock that looks though it could not
	// fence, make one of these fail.
	for place, later := range map[string]time.Duration{"find/before": 0, "fence/before": dispatch.FencePatience} {
		It("a new holder writes a run whose attempts it cannot look for or fence, at "+place, func(ctx SpecContext) {
			w := newWorld(ctx)
			w.policy(ctx, quick())
			a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
			run := w.create(ctx, diamond())
			before := a.inFlight(ctx, run, 2)
			w.dropLock(ctx, run)
			b.hook = func(_ context.Context, at string) error {
				if at == place {
					return errTest
				}
				return nil
			}
			w.clock.Step(OthersPatience)
			b.mustPass(ctx, run)
			w.clock.Step(later)
			b.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return *now.Status.Fence > *before.Status.Fence })
			b.hook = nil
			Expect(w.finishBoth(ctx, run, a, b).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
			Expect(w.jobsStored(ctx)).To(Equal(3))
		}, NodeTimeout(2*patience))
	}

	It("who is told of a higher fence by NATS takes the lock above it", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, quick())
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		run := w.create(ctx, diamond())
		inFlight := lifecycle.Outlines(a.inFlight(ctx, run, 2))
		// Somebody had the lock, told NATS, and wrote nothing; then Redis lost its data.
		_, err := b.bus.Jobs.Fence(ctx, jobs.Job{ID: inFlight[0].ID, Topic: inFlight[0].Topic, Deadline: inFlight[0].Deadline, Fence: 50})
		Expect(err).NotTo(HaveOccurred())
		w.dropLock(ctx, run)
		b.inFlight(ctx, run, 2)
		Expect(b.counter("syncopate_fence_rejections_total", "by", "nats_fence")).To(BeEquivalentTo(1))
		end := w.finishBoth(ctx, run, a, b)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(*end.Status.Fence).To(BeNumerically(">", 50))
		Expect(w.jobsStored(ctx)).To(Equal(3))
	}, NodeTimeout(2*patience))

	It("a new holder waits a minute for NATS before it writes, and not longer", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, quick())
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		run := w.create(ctx, diamond())
		before := a.inFlight(ctx, run, 2)
		w.dropLock(ctx, run)
		b.hook = func(_ context.Context, at string) error {
			if at == "fence/before" {
				return errTest
			}
			return nil
		}
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		begin := w.clock.Now()
		end := b.drive(ctx, run, lifecycle.Finished)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunCancelled))
		Expect(*end.Status.Fence).To(BeNumerically(">", *before.Status.Fence))
		Expect(w.clock.Since(begin)).To(And(BeNumerically(">=", dispatch.FencePatience), BeNumerically("<", 2*dispatch.FencePatience)))
	}, NodeTimeout(2*patience))

	// mutation: underLock that gives the fences and the write one time-out makes this fail: the
	// write has no time left, for ever.
	It("a new holder whose fences take all of their time has some left for the write", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, v1alpha1.RunLockPolicy{LingerMillis: new(int64(0))})
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		run := w.create(ctx, diamond())
		a.inFlight(ctx, run, 2)
		w.dropLock(ctx, run)
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		var hangs atomic.Bool
		b.hook = func(ctx context.Context, at string) error {
			if at != "fence/before" {
				return nil
			}
			if hangs.Load() {
				<-ctx.Done()
			}
			return errTest
		}
		begin := w.clock.Now()
		b.mustPass(ctx, run)
		w.clock.Step(dispatch.FencePatience)
		hangs.Store(true)
		end := b.drive(ctx, run, lifecycle.Finished)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunCancelled))
		Expect(w.clock.Since(begin)).To(BeNumerically("<", 2*dispatch.FencePatience))
	}, NodeTimeout(2*patience))

	// mutation: notFenced that begins anew with each pass makes this fail: what is fenced is fenced
	// again.
	It("a new holder that could not fence all attempts goes on where it ended", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, quick()) // each pass has a lease, and a fence, of its own
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b"), step("c"), step("d")})
		before := a.inFlight(ctx, run, 4)
		w.dropLock(ctx, run)
		var tried atomic.Int64
		b.hook = func(_ context.Context, at string) error {
			if at == "fence/before" && tried.Add(1) > 2 {
				return errTest // the time of the pass is over
			}
			return nil
		}
		fences := func() float64 { return b.counter("syncopate_job_fences_total") }
		Expect(b.mustPass(ctx, run).RequeueAfter).To(Equal(actRetryDelay))
		Expect(fences()).To(BeEquivalentTo(2))
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(before.ResourceVersion))
		b.hook = nil
		w.clock.Step(OthersPatience)
		b.inFlight(ctx, run, 4)
		Expect(fences()).To(BeEquivalentTo(4), "each attempt has begun one epoch")
		end := w.finishBoth(ctx, run, a, b)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(*end.Status.Fence).To(BeNumerically(">", *before.Status.Fence))
		Expect(w.jobsStored(ctx)).To(Equal(4))
	}, NodeTimeout(2*patience))

	// mutation: unfenced without notYet, or advance that takes LookAgain as it is, makes this fail:
	// a pass every 10 ms.
	It("a new holder that waits for NATS does not hurry because status has an old loss to take back", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, quick())
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		run := w.create(ctx, diamond())
		now := a.inFlight(ctx, run, 2)
		meta.SetStatusCondition(&now.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionRunLockAbandoned, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOwnershipLost,
		})
		Expect(w.client.Status().Update(ctx, now)).To(Succeed())
		w.dropLock(ctx, run)
		b.hook = func(_ context.Context, at string) error {
			if at == "fence/before" {
				return errTest
			}
			return nil
		}
		Expect(b.mustPass(ctx, run).RequeueAfter).To(Equal(actRetryDelay))
		b.hook = nil
		b.mustPass(ctx, run)
		Expect(reason(w.get(ctx, run), v1alpha1.ConditionRunLockAbandoned)).To(Equal(v1alpha1.ReasonRecovered))
		Expect(w.finishBoth(ctx, run, a, b).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	It("nothing is fenced in ordinary work", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		for range 3 {
			Expect(r.finish(ctx, w.create(ctx, diamond())).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		}
		Expect(r.counter("syncopate_job_fences_total")).To(BeZero())
	}, NodeTimeout(2*patience))

	It("a forced end by one fences out the write of the other", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, quick())
		a := w.newReplica(ctx, "a")
		run := w.create(ctx, diamond())
		a.inFlight(ctx, run, 2)
		w.work(ctx)
		a.pumpAll(ctx, 2)
		b := w.newReplica(ctx, "b") // not before: it would take some of the results
		before := w.get(ctx, run)
		a.hook = once("status/before", func() error {
			w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
			b.drive(ctx, run, lifecycle.Finished) // a has the lock
			return nil
		})
		until(ctx, "a tries to write", func() bool {
			a.turn(ctx, run)
			return a.counter("syncopate_fence_rejections_total") > 0
		})
		end := w.get(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunCancelled))
		Expect(*end.Status.Fence).To(Equal(*before.Status.Fence + 1))
		Expect(end.Status.Lock.LeaseID).NotTo(Equal(before.Status.Lock.LeaseID))
		a.mustPass(ctx, run)
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(end.ResourceVersion))
	}, NodeTimeout(2*patience))

	It("work on ten runs at the same time", func(ctx SpecContext) {
		w := newWorld(ctx, withWindow(tinyWindow))
		w.policy(ctx, quick())
		var runs []*v1alpha1.WorkflowRun
		for range 10 {
			runs = append(runs, w.create(ctx, diamond()))
		}
		var going sync.WaitGroup
		working, stop := context.WithCancel(ctx)
		defer stop()
		for _, holder := range []string{"a", "b"} {
			r := w.newReplica(ctx, holder, withClock(clock.RealClock{}))
			going.Go(func() {
				defer GinkgoRecover()
				for working.Err() == nil {
					r.pump(ctx)
					for _, run := range runs {
						_, _ = r.pass(ctx, run) // what fails is tried again
					}
				}
			})
		}
		until(ctx, "all runs end", func() bool {
			w.work(ctx)
			for _, run := range runs {
				if !lifecycle.Finished(w.get(ctx, run)) {
					return false
				}
			}
			return true
		})
		stop()
		going.Wait()
		for _, run := range runs {
			end := w.get(ctx, run)
			Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
			for _, s := range end.Status.Steps {
				Expect(s.Attempt).To(BeEquivalentTo(1))
			}
		}
		Expect(w.jobsStored(ctx)).To(Equal(30))
	}, NodeTimeout(2*patience))
})

// quietly leaves the results to other replicas.
func quietly(r *replica) { r.quiet = true }

// resumed is the clock of a process right after a pause: the time has moved on, and no timer
// has fired yet.
type resumed struct {
	*clocktesting.FakeClock
	slept atomic.Int64 // nanoseconds
}

// Now implements clock.PassiveClock.
func (c *resumed) Now() time.Time { return c.FakeClock.Now().Add(time.Duration(c.slept.Load())) }

// Since implements clock.PassiveClock.
func (c *resumed) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// once runs do when a place is reached for the first time.
func once(place string, do func() error) func(context.Context, string) error {
	return times(1, place, func(context.Context) error { return do() })
}

// times runs do the first n times when a place is reached.
func times(n int, place string, do func(context.Context) error) func(context.Context, string) error {
	var mu sync.Mutex
	return func(ctx context.Context, at string) error {
		mu.Lock()
		due := at == place && n > 0
		if due {
			n--
		}
		mu.Unlock()
		if !due {
			return nil
		}
		return do(ctx)
	}
}

var errTest = errors.New("the test wants it")
