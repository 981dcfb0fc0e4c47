// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Mutations that make specs below fail:
//   - refused.go refused without refresh: a stale cache is decided on for ever.
//   - memory.go newest that always believes the cache: the stale cache is written on again, one
//     conflict after the other.
//   - decide.go mustClaim always false: a stale cache makes two workers do the same.
//   - refused.go refused without Drop: the lease that was refused lingers.
//   - memory.go resolve that does nothing: messages and withdrawals of a write whose answer
//     was lost stay.
//   - batch.go verdict that never hands back what is ahead: the API server is asked for ever.
var _ = Describe("the API server", func() {
	var (
		w   *world
		r   *replica
		run *v1alpha1.WorkflowRun
	)
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx, withWindow(tinyWindow))
		r = w.newReplica(ctx, "r")
		run = w.create(ctx, diamond())
	}, NodeTimeout(patience))

	writes := func(outcome string) float64 { return r.counter("syncopate_status_writes_total", "outcome", outcome) }

	It("behind a stale cache refuses the write; nothing is dispatched; then the run goes on", func(ctx SpecContext) {
		old := run.DeepCopy()
		r.inFlight(ctx, run, 2)
		other := w.newReplica(ctx, "other")
		w.dropLock(ctx, run)
		other.cached = func(*v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun { return old }
		other.mustPass(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(2))
		Expect(other.counter("syncopate_fence_rejections_total", "by", "resource_version")).To(BeEquivalentTo(1))
		r.kill(ctx) // what it wrote from here on would be one more conflict each
		end := other.finish(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(other.counter("syncopate_fence_rejections_total")).To(BeEquivalentTo(1), "a live read ends the conflicts")
		Expect(w.jobsStored(ctx)).To(Equal(3))
	}, NodeTimeout(2*patience))

	It("behind a stale cache is asked about a result of an attempt that the cache does not know", func(ctx SpecContext) {
		old := run.DeepCopy()
		r.inFlight(ctx, run, 2)
		for _, t := range w.takeAll(ctx, 2) {
			t.succeed(ctx)
		}
		r.kill(ctx)
		w.dropLock(ctx, run)
		other := w.newReplica(ctx, "other")
		other.cached = func(*v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun { return old }
		end := other.finish(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(w.jobsStored(ctx)).To(Equal(3))
	}, NodeTimeout(2*patience))

	It("behind a cache from before results were applied and acknowledged: nothing is published again", func(ctx SpecContext) {
		old := r.inFlight(ctx, run, 2)
		for _, t := range w.takeAll(ctx, 2) {
			t.succeed(ctx)
		}
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return now.Status.Progress == "2/3" })
		r.kill(ctx)
		w.dropLock(ctx, run)
		w.outliveWindow(ctx)
		other := w.newReplica(ctx, "other")
		other.cached = func(*v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun { return old }
		other.mustPass(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(3), "in no stream is a trace of the first two attempts")
		Expect(other.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	It("is asked once about a result that is ahead of the truth; it goes back with a delay", func(ctx SpecContext) {
		r.inFlight(ctx, run, 2)
		id := protocol.JobID{RunUID: string(run.UID), Step: "a", Item: protocol.NoItem, Attempt: 7}
		w.say(ctx, id, succeeded(id))
		r.pumpAll(ctx, 1)
		reads := 0
		r.hook = func(_ context.Context, at string) error {
			if at == "live/before" {
				reads++
			}
			return nil
		}
		for range 5 {
			r.mustPass(ctx, run)
		}
		Expect(reads).To(Equal(1))
		Expect(w.settledWith(run)).To(HaveLen(1))
		Expect(w.settledWith(run)[0].err).To(MatchError(results.ErrAhead))
		Expect(results.AsksFor(w.settledWith(run)[0].err)).To(And(BeNumerically(">=", 800*time.Millisecond), BeNumerically("<=", 1200*time.Millisecond)))
	}, NodeTimeout(2*patience))

	It("answers with conflicts in a row: no effect of any of those passes", func(ctx SpecContext) {
		conflict := apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), run.Name, errTest)
		r.hook = times(5, "status/before", func(context.Context) error { return conflict })
		for range 5 {
			r.turn(ctx, run)
		}
		Expect(writes("outdated")).To(BeEquivalentTo(5))
		Expect(w.jobsStored(ctx)).To(BeZero())
		Expect(r.recorder.list()).To(BeEmpty())
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(w.jobsStored(ctx)).To(Equal(3))
	}, NodeTimeout(2*patience))

	// mutations: unwritten that tells nobody, or tellRefused that tells each time, or of outages;
	// persist.go wrote that does not forget what was told.
	It("forbids a status: people are told, once until a write is taken", func(ctx SpecContext) {
		stands := func(cause error) {
			GinkgoHelper()
			r.hook = times(3, "status/before", func(context.Context) error { return cause })
			before := writes("refused")
			for range 3 {
				w.clock.Step(lookAgain)
				_, err := r.pass(ctx, run)
				Expect(err != nil).To(Equal(outage(cause)))
			}
			Expect(writes("refused") - before).To(BeEquivalentTo(3))
			r.hook = nil
		}
		forbidden := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), run.Name, fmt.Errorf("policy no-status denied it\n%w", errTest))
		stands(apierrors.NewServiceUnavailable("etcd is away"))
		Expect(r.recorder.list()).To(BeEmpty())
		plain := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Message: "a webhook denied it"}}
		stands(plain) // it need not give a reason
		Expect(r.recorder.list()).To(ConsistOf(ContainSubstring("a webhook denied it")))
		stands(forbidden)
		w.clock.Step(lookAgain)
		Expect(r.recorder.list()).To(HaveLen(2))
		Expect(r.recorder.list()[1]).To(And(ContainSubstring("StatusRefused"), ContainSubstring("policy no-status denied it"), Not(ContainSubstring("\n"))))
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return now.Status != nil && now.Status.Progress != "" })
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		stands(forbidden)
		Expect(r.recorder.count("Warning StatusRefused")).To(Equal(3))
		w.clock.Step(lookAgain)
		Expect(r.drive(ctx, run, finished).Status.Phase).To(Equal(v1alpha1.RunCancelled))
	}, NodeTimeout(2*patience))

	// mutations: unwritten that takes it for an error, or for an outage; standsOff that waits no
	// longer each time, or that does not look at the object, or at marks of it; wrote that does
	// not forget it.
	It("forbids each status of a run for an hour: some twenty writes, and no error", func(ctx SpecContext) {
		r.inFlight(ctx, run, 2)
		w.patch(ctx, run, `{"spec":{"suspend":true}}`)
		r.hook = func(_ context.Context, at string) error {
			if at == "status/before" {
				return refused()
			}
			return nil
		}
		before := writes("refused")
		for began := w.clock.Now(); w.clock.Since(began) < time.Hour; {
			w.clock.Step(max(time.Second, r.mustPass(ctx, run).RequeueAfter))
			w.patch(ctx, run, fmt.Sprintf(`{"metadata":{"annotations":{"%smark":"%d"}}}`, passes.OwnPrefix, w.clock.Now().Unix()))
			r.mustPass(ctx, run) // it was woken
		}
		Expect(writes("refused") - before).To(And(BeNumerically(">=", 15), BeNumerically("<=", 22)))

		before = writes("refused")
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		w.clock.Step(time.Second)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(BeNumerically("~", 5*time.Second, time.Second))
		Expect(writes("refused")-before).To(BeEquivalentTo(1), "an edit is tried at once, and what follows soon")
		r.hook = nil
		w.clock.Step(5 * time.Second)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunCancelled))
	}, NodeTimeout(2*patience))

	// mutation: refresh that asks for a pass at once makes this fail.
	It("has a run made anew of which the watch does not tell yet: no pass follows the other", func(ctx SpecContext) {
		r.inFlight(ctx, run, 2)
		before := w.get(ctx, run)
		r.cached = func(*v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun { return before }
		Expect(w.client.Delete(ctx, run.DeepCopy())).To(Succeed())
		again := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: run.Name, Namespace: run.Namespace}, Spec: run.Spec}
		Expect(w.client.Create(ctx, again)).To(Succeed())
		before.Spec.Shutdown = v1alpha1.ShutdownCancel // so that there is something to write
		tried := writes("outdated")
		w.clock.Step(time.Second)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(BeZero())
		Expect(writes("outdated")).To(Equal(tried + 1))
		Expect(w.locked(ctx, run)).To(BeFalse())
		r.cached = nil
		r.finish(ctx, again)
	}, NodeTimeout(2*patience))

	It("answers 500 to writes: passes fail, nothing is dispatched or acknowledged, then the run goes on", func(ctx SpecContext) {
		r.inFlight(ctx, run, 2)
		w.work(ctx)
		r.pumpAll(ctx, 2)
		r.hook = times(3, "status/before", func(context.Context) error { return apierrors.NewInternalError(errTest) })
		for range 2 {
			w.clock.Step(time.Second)
			_, err := r.pass(ctx, run)
			Expect(err).To(HaveOccurred())
		}
		Expect(w.settledWith(run)).To(BeEmpty())
		w.clock.Step(resultPatience)
		_, err := r.pass(ctx, run)
		Expect(err).To(HaveOccurred())
		given := w.settledWith(run)
		Expect(given).To(HaveLen(2), "they must not fill the inbox")
		for _, s := range given {
			Expect(s.err).To(MatchError(ContainSubstring(errTest.Error())))
		}
		Expect(w.jobsStored(ctx)).To(Equal(2))
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	for place, want := range map[string]int{"first write": 1, "write of results": 2, "write of the end": 3} {
		It("times out after it stored the "+place+": that is recognised", func(ctx SpecContext) {
			w.policy(ctx, v1alpha1.RunLockPolicy{LingerMillis: new(int64(2000))}) // a second lease would claim the run by a write
			count := 0
			r.hook = func(_ context.Context, at string) error {
				if at == "status/after" {
					if count++; count == want {
						return apierrors.NewTimeoutError("the answer is lost", 1)
					}
				}
				return nil
			}
			end := r.finish(ctx, run)
			Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
			Expect(count).To(BeNumerically("<=", 4), "no write is repeated; one more if the two results come apart")
			Expect(w.jobsStored(ctx)).To(Equal(3))
			r.mustPass(ctx, run)
			r.mustPass(ctx, run)
			until(ctx, "all are acknowledged", func() bool { return w.messages(ctx, w.names.ResultsStream()) == 0 })
			Expect(w.settledWith(run)).To(HaveLen(3))
		}, NodeTimeout(2*patience))
	}

	It("times out after it stored the time-out of an attempt: its job is withdrawn all the same", func(ctx SpecContext) {
		lonely := w.create(ctx, []v1alpha1.Step{{Name: "s", Job: &v1alpha1.Job{Topic: topic}, StartTimeoutSeconds: 60}})
		r.inFlight(ctx, lonely, 1)
		Expect(w.jobsQueued(ctx)).To(Equal(1))
		w.clock.Step(61 * time.Second)
		r.hook = times(1, "status/after", func(context.Context) error { return apierrors.NewTimeoutError("the answer is lost", 1) })
		_, err := r.pass(ctx, lonely)
		Expect(err).To(HaveOccurred())
		r.mustPass(ctx, lonely)
		Expect(w.jobsQueued(ctx)).To(BeZero())
	}, NodeTimeout(2*patience))

	It("refuses a stale writer: the lease is dropped, the next one is above the stored fence, and there is no loop", func(ctx SpecContext) {
		r.inFlight(ctx, run, 2)
		now := w.get(ctx, run)
		now.Status.Fence = new(int64(1000))
		now.Status.Lock.LeaseID = "of-somebody-else"
		Expect(w.client.Status().Update(ctx, now)).To(Succeed())
		for _, t := range w.takeAll(ctx, 2) {
			t.succeed(ctx)
		}
		r.pumpAll(ctx, 2)
		lied := 0
		r.request = func(q *lockmgr.Request) { // the lock manager believes in its old lease once
			if lied == 0 {
				q.Floor, q.FloorLeaseID = 0, ""
			}
			lied++
		}
		w.clock.Step(time.Second)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(refreshDelay))
		Expect(r.counter("syncopate_fence_rejections_total", "by", "fence_rule")).To(BeEquivalentTo(1))
		Expect(w.settledWith(run)).To(BeEmpty())
		Expect(w.redis.Client().Exists(ctx, lockKey(run)).Val()).To(BeZero(), "it does not linger")
		w.clock.Step(refreshDelay)
		r.mustPass(ctx, run)
		Expect(*w.get(ctx, run).Status.Fence).To(BeEquivalentTo(1001))
		Expect(r.counter("syncopate_fence_rejections_total")).To(BeEquivalentTo(1))
		Expect(w.settledWith(run)).To(HaveLen(2))
	}, NodeTimeout(2*patience))

	It("says that the run is gone in the middle of a pass: the pass ends without an effect", func(ctx SpecContext) {
		r.hook = once("status/before", func() error { return w.client.Delete(ctx, run.DeepCopy()) })
		r.mustPass(ctx, run)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(BeZero(), "the cache says that it is gone")
		Expect(w.jobsStored(ctx)).To(BeZero())
	}, NodeTimeout(2*patience))

	// mutations: refused, or refresh, that asks for no pass after such an answer.
	for place, answers := range map[string]map[string]error{
		"a write":               {"status/before": notFound()},
		"a live read after one": {"status/before": apierrors.NewConflict(runsResource, "x", errTest), "live/before": notFound()},
		"two writes":            {"status/before": notFound(), "status/before again": notFound()},
	} {
		It("says of a run that exists that it does not, to "+place+": it is asked again, and the run ends", func(ctx SpecContext) {
			lonely := w.create(ctx, []v1alpha1.Step{step("s")})
			r.inFlight(ctx, lonely, 1)
			w.takeAll(ctx, 1)[0].succeed(ctx)
			r.pumpAll(ctx, 1)
			left := maps.Clone(answers)
			r.hook = func(_ context.Context, at string) error {
				for _, key := range []string{at, at + " again"} {
					if err, due := left[key]; due {
						delete(left, key)
						return err
					}
				}
				return nil
			}
			w.clock.Step(time.Second)
			for !lifecycle.Finished(w.get(ctx, lonely)) { // nothing else than time wakes it
				wait := r.mustPass(ctx, lonely).RequeueAfter
				Expect(wait).To(And(BeNumerically(">", 0), BeNumerically("<=", lookAgain)))
				w.clock.Step(wait)
			}
			Expect(left).To(BeEmpty())
			Expect(w.settledWith(lonely)).To(HaveLen(1))
		}, NodeTimeout(2*patience))
	}

	It("deletes a finished run when its time to live is over, and not before", func(ctx SpecContext) {
		w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":60}}`)
		r.finish(ctx, run)
		wait := r.mustPass(ctx, run).RequeueAfter
		Expect(wait).To(BeNumerically("~", time.Minute, 2*forgetDelay))
		w.clock.Step(wait - time.Second)
		r.mustPass(ctx, run)
		Expect(lifecycle.Finished(w.get(ctx, run))).To(BeTrue())
		w.clock.Step(2 * time.Second)
		r.mustPass(ctx, run)
		Expect(apierrors.IsNotFound(w.client.Get(ctx, client.ObjectKeyFromObject(run), run.DeepCopy()))).To(BeTrue())
	}, NodeTimeout(2*patience))

	// mutation: expire that takes such an answer for a deletion.
	It("says of a finished run whose time is over that it does not exist: it is deleted soon", func(ctx SpecContext) {
		w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":60}}`)
		r.finish(ctx, run)
		w.clock.Step(2 * time.Minute)
		r.hook = once("delete/before", notFound)
		wait := r.mustPass(ctx, run).RequeueAfter
		Expect(lifecycle.Finished(w.get(ctx, run))).To(BeTrue())
		Expect(wait).To(And(BeNumerically(">", 0), BeNumerically("<=", lookAgain)), "nothing else than time wakes it")
		w.clock.Step(wait)
		r.mustPass(ctx, run)
		Expect(apierrors.IsNotFound(w.client.Get(ctx, client.ObjectKeyFromObject(run), run.DeepCopy()))).To(BeTrue())
	}, NodeTimeout(2*patience))

	// mutation: finished that waits for the deletion only.
	It("says so of one whose jobs could not be taken back: that is tried again no later for it", func(ctx SpecContext) {
		w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":60}}`)
		r.inFlight(ctx, run, 2)
		r.hook = func(_ context.Context, at string) error {
			switch at {
			case "withdraw/before":
				return &results.RetryError{After: time.Second, Cause: errNoNATS}
			case "delete/before":
				return notFound()
			}
			return nil
		}
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		r.drive(ctx, run, lifecycle.Finished)
		w.clock.Step(2 * time.Minute)
		wait := r.mustPass(ctx, run).RequeueAfter
		Expect(wait).To(And(BeNumerically(">", 0), BeNumerically("<=", time.Second)))
		Expect(w.jobsQueued(ctx)).To(Equal(2))
		r.hook = once("delete/before", notFound)
		w.clock.Step(wait)
		r.mustPass(ctx, run)
		Expect(w.jobsQueued(ctx)).To(BeZero())
	}, NodeTimeout(2*patience))
})

var runsResource = v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource()

// A run that is woken often while such answers come is not looked at the later for it.
//
// mutations: missing that counts passes, or that waits no longer each time; refresh that does not
// forget them.
func TestTheWaitAfterAnswersThatTheRunIsGoneGrowsWithTimeAndNotWithPasses(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	p := &pass{r: &Reconciler{Clock: clk, Live: answersAll{}}, run: aRun("1"), mem: &memory{}}
	first := missing(t.Context(), p, notFound()).RequeueAfter
	for range 20 {
		if again := missing(t.Context(), p, notFound()).RequeueAfter; again != first {
			t.Fatalf("a wait of %s, and of %s once it was woken", first, again)
		}
	}
	clk.Step(first)
	if second := missing(t.Context(), p, notFound()).RequeueAfter; second <= first || second > lookAgain {
		t.Errorf("a wait of %s, and then of %s", first, second)
	}
	if _, err := p.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if anew := missing(t.Context(), p, notFound()).RequeueAfter; anew != first {
		t.Errorf("a wait of %s at first, and of %s after the run was there", first, anew)
	}
}

// answersAll is an API server that has the run, whatever is asked for.
type answersAll struct{ client.Reader }

func (answersAll) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetUID(aRun("1").UID)
	return nil
}

// notFound is what a proxy's page is to a client, or the word of an API server that does not serve
// the resource for a moment.
func notFound() error { return apierrors.NewNotFound(runsResource, "x") }
