// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
)

var errHold = errors.New("legal hold")

// answering counts the tries at a place, and gives each an error; nil: none.
func answering(place string, tries *int, cause *error) func(context.Context, string) error {
	return func(_ context.Context, at string) error {
		if at != place {
			return nil
		}
		*tries++
		return *cause
	}
}

// refusal is how a policy or a webhook refuses what is asked of a run.
type refusal func(*v1alpha1.WorkflowRun) error

// asConflict refuses as a webhook does that has chosen the code of a conflict.
func asConflict(run *v1alpha1.WorkflowRun) error {
	return apierrors.NewConflict(runsResource, run.Name, errHold)
}

// byCode are refusals, and how long a run is left alone after the first. A webhook has all codes to
// choose from, also that of a conflict.
var byCode = []TableEntry{
	Entry("as forbidden", refusal(func(run *v1alpha1.WorkflowRun) error {
		return apierrors.NewForbidden(runsResource, run.Name, errHold)
	}), keptPause, NodeTimeout(2*patience)),
	Entry("as a conflict, of which the first may be an error", refusal(asConflict), 5*time.Second, NodeTimeout(2*patience)),
}

var _ = Describe("a run that has ended", func() {
	var (
		w     *world
		r     *replica
		run   *v1alpha1.WorkflowRun
		tries int
	)
	// ended has a run that ended, and that nothing is remembered of.
	ended := func(ctx SpecContext, ttl *int32) {
		w = newWorld(ctx)
		r = w.newReplica(ctx, "r")
		run = w.create(ctx, []v1alpha1.Step{step("a")}, func(s *v1alpha1.WorkflowRunSpec) { s.TTLSecondsAfterFinished = ttl })
		r.finish(ctx, run)
		r.drained(ctx, run)
		r.mustPass(ctx, run)
		tries = 0
	}
	exists := func(ctx SpecContext) bool {
		GinkgoHelper()
		err := w.client.Get(ctx, client.ObjectKeyFromObject(run), &v1alpha1.WorkflowRun{})
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		return err == nil
	}

	// Mutations that make it fail: leftAlone without keptPause; expire that asks in each pass;
	// deleteEnded that takes each conflict for that of an old cache; nextAfterEnd that forgets
	// the run meanwhile.
	DescribeTable("and that a policy keeps from being deleted is left alone for ten minutes, and deleted when it may be", func(ctx SpecContext, refusal refusal, first time.Duration) {
		ended(ctx, new(int32(3600)))
		cause := refusal(run)
		r.hook = answering("delete/before", &tries, &cause)
		w.clock.Step(2 * time.Hour)
		for range 3 {
			Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(first))
		}
		Expect(tries).To(Equal(1))
		w.clock.Step(first)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(keptPause))
		Expect(tries).To(Equal(2))
		cause = nil
		w.clock.Step(keptPause)
		r.mustPass(ctx, run)
		Expect(exists(ctx)).To(BeFalse())
	}, byCode)

	// mutation: a pause that does not grow.
	It("and whose deletion fails is tried again ever later, for as long as its time is over", func(ctx SpecContext) {
		ended(ctx, new(int32(3600)))
		cause := error(apierrors.NewInternalError(errHold))
		r.hook = answering("delete/before", &tries, &cause)
		w.clock.Step(2 * time.Hour)
		for _, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
			Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(pause))
			w.clock.Step(pause)
		}
		Expect(tries).To(Equal(3))
		w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":null}}`)
		r.mustPass(ctx, run)
		r.mustPass(ctx, run)
		Expect(r.memories.peek(client.ObjectKeyFromObject(run))).To(BeNil())
		Expect(tries).To(Equal(3))
	}, NodeTimeout(2*patience))

	// mutation: expire that does not look at DeletionTimestamp.
	It("and is being deleted without what it owns is not deleted with it when its time is over", func(ctx SpecContext) {
		ended(ctx, new(int32(3600)))
		var none error
		r.hook = answering("delete/before", &tries, &none)
		Expect(w.client.Delete(ctx, run, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		w.clock.Step(2 * time.Hour)
		r.mustPass(ctx, run)
		Expect(tries).To(BeZero())
		Expect(w.get(ctx, run).Finalizers).To(Equal([]string{metav1.FinalizerOrphanDependents}))
		w.patch(ctx, run, `{"metadata":{"finalizers":null}}`) // as the garbage collector does
	}, NodeTimeout(2*patience))

	// mutation: deleteEnded without the resourceVersion, or conflicted without refresh.
	It("and whose time was made longer is not deleted by whom that has not reached", func(ctx SpecContext) {
		ended(ctx, new(int32(3600)))
		old := w.get(ctx, run)
		w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":null}}`)
		r.cached = func(*v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun { return old }
		w.clock.Step(2 * time.Hour)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(refreshDelay))
		for range 3 {
			r.mustPass(ctx, run)
			w.clock.Step(time.Minute)
		}
		Expect(exists(ctx)).To(BeTrue())
	}, NodeTimeout(2*patience))

	// mutations: nextAfterEnd that waits for the whole of the time to live makes both fail, and one
	// without its jitter the first.
	It("is looked at within the hour, however far away the end of its time seems to be", func(ctx SpecContext) {
		ended(ctx, new(int32(30*24*3600)))
		now := w.clock.Now()
		waits := map[time.Duration]bool{}
		for range 3 {
			wait := r.mustPass(ctx, run).RequeueAfter
			Expect(wait).To(And(BeNumerically(">", endedLook/2), BeNumerically("<=", endedLook)))
			Expect(r.memories.peek(client.ObjectKeyFromObject(run))).To(BeNil(), "nothing is kept of it meanwhile")
			waits[wait] = true
		}
		Expect(len(waits)).To(BeNumerically(">", 1), "those of many runs are not at the same time")
		w.clock.SetTime(now.AddDate(-2, 0, 0)) // a machine that has just begun
		wait := r.mustPass(ctx, run).RequeueAfter
		Expect(wait).To(BeNumerically("<=", endedLook))
		w.clock.SetTime(now.AddDate(0, 0, 31)) // and whose clock was set meanwhile
		r.mustPass(ctx, run)
		Expect(exists(ctx)).To(BeFalse())
	}, NodeTimeout(2*patience))

	// mutations: finished without endStored; endStored that does not look again after an error;
	// noteEdit that does not say when the end was stored.
	It("by a clock that was a year ahead is kept for its time from when the API server stored that", func(ctx SpecContext) {
		w = newWorld(ctx)
		began := w.clock.Now()
		w.clock.SetTime(began.AddDate(1, 0, 0))
		r = w.newReplica(ctx, "r")
		run = w.create(ctx, []v1alpha1.Step{step("a")}, func(s *v1alpha1.WorkflowRunSpec) { s.TTLSecondsAfterFinished = new(int32(3600)) })
		r.finish(ctx, run)
		r.drained(ctx, run)
		version := w.get(ctx, run).ResourceVersion
		reads := 0
		cause := error(apierrors.NewServiceUnavailable("away"))
		r.hook = answering("live/before", &reads, &cause)
		w.clock.SetTime(time.Now().Add(2 * time.Hour))
		Expect(r.mustPass(ctx, run).RequeueAfter).To(BeNumerically("<=", lookAgain), "nobody says when it ended")
		Expect(reads).To(Equal(1))
		Expect(exists(ctx)).To(BeTrue())
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(version), "no look writes it")
		cause = nil
		r.mustPass(ctx, run)
		Expect(exists(ctx)).To(BeFalse())
	}, NodeTimeout(2*patience))

	// mutations: noteEdit that does not say when the end was stored; EndsAhead that asks though
	// status says it; Expiry that goes by completedAt.
	It("by a clock that was ahead for less than its time is kept for no longer, and is written once", func(ctx SpecContext) {
		w = newWorld(ctx)
		began := time.Now()
		w.clock.SetTime(began.Add(24 * time.Hour))
		r = w.newReplica(ctx, "r")
		run = w.create(ctx, []v1alpha1.Step{step("a")}, func(s *v1alpha1.WorkflowRunSpec) { s.TTLSecondsAfterFinished = new(int32(48 * 3600)) })
		r.finish(ctx, run)
		r.drained(ctx, run)
		w.clock.SetTime(began)
		r.mustPass(ctx, run)
		noted := w.get(ctx, run)
		Expect(noted.Status.EndStoredAt).NotTo(BeNil())
		Expect(noted.Status.EndStoredAt.Time).To(BeTemporally("~", began, time.Hour))
		reads, none := 0, error(nil)
		r.hook = answering("live/before", &reads, &none)
		w.patch(ctx, run, `{"metadata":{"labels":{"a":"b"}},"spec":{"ttlSecondsAfterFinished":176400}}`) // 49 hours
		for range 3 {
			Expect(r.mustPass(ctx, run).RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", endedLook)))
			w.clock.Step(forgetDelay)
		}
		Expect(reads).To(BeZero(), "status says it")
		Expect(w.get(ctx, run).Status.EndStoredAt).To(Equal(noted.Status.EndStoredAt))
		w.clock.SetTime(began.Add(51 * time.Hour))
		r.mustPass(ctx, run)
		Expect(exists(ctx)).To(BeFalse())
	}, NodeTimeout(2*patience))

	// Mutations that make it fail: noteEdit that does nothing, or that writes in each pass;
	// upToDate that leaves out the conditions.
	It("and is edited has a status of its generation soon, or tools would wait for one for good", func(ctx SpecContext) {
		ended(ctx, nil)
		before := w.get(ctx, run)
		w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":86400}}`)
		r.mustPass(ctx, run)
		now := w.get(ctx, run)
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(now)
		Expect(err).NotTo(HaveOccurred())
		seen, err := status.Compute(&unstructured.Unstructured{Object: o})
		Expect(err).NotTo(HaveOccurred())
		Expect(seen.Status).To(Equal(status.CurrentStatus), seen.Message)
		for i := range now.Status.Conditions { // kubectl wait looks at these
			Expect(now.Status.Conditions[i].ObservedGeneration).To(Equal(now.Generation))
			now.Status.Conditions[i].ObservedGeneration = before.Status.Conditions[i].ObservedGeneration
		}
		now.Status.ObservedGeneration = before.Status.ObservedGeneration
		Expect(now.Status).To(Equal(before.Status))
		for range 3 {
			w.clock.Step(forgetDelay)
			r.mustPass(ctx, run)
		}
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(now.ResourceVersion))
	}, NodeTimeout(2*patience))

	// mutation: noteEdit without its pause, or nextAfterEnd that forgets the run meanwhile.
	It("and whose status cannot be written after an edit is written again ever later", func(ctx SpecContext) {
		ended(ctx, nil)
		w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":86400}}`)
		cause := error(apierrors.NewInternalError(errHold))
		r.hook = answering("status/before", &tries, &cause)
		for i, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
			for range 2 {
				Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(pause))
			}
			Expect(tries).To(Equal(i + 1))
			w.clock.Step(pause)
		}
		cause = nil
		r.mustPass(ctx, run)
		now := w.get(ctx, run)
		Expect(now.Status.ObservedGeneration).To(Equal(now.Generation))
	}, NodeTimeout(2*patience))

	// mutations: leftAlone without keptPause; noteEdit that takes each conflict for that of
	// an old cache.
	DescribeTable("and whose status is refused after an edit is left alone for ten minutes", func(ctx SpecContext, refusal refusal, first time.Duration) {
		ended(ctx, nil)
		w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":86400}}`)
		cause := refusal(run)
		r.hook = answering("status/before", &tries, &cause)
		for i, pause := range []time.Duration{first, keptPause} {
			for range 3 {
				Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(pause))
			}
			Expect(tries).To(Equal(i + 1))
			w.clock.Step(pause)
		}
		cause = nil
		r.mustPass(ctx, run)
		now := w.get(ctx, run)
		Expect(now.Status.ObservedGeneration).To(Equal(now.Generation))
	}, byCode)

	// mutations: noteEdit without conflicted; put that does not count conflicts.
	It("and that was edited since its owner last saw it has a status of its generation at once", func(ctx SpecContext) {
		ended(ctx, nil)
		w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":86400}}`)
		old := w.get(ctx, run)
		w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":3600}}`)
		r.cached = func(*v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun { return old }
		conflicts := func() float64 { return r.counter("syncopate_fence_rejections_total", "by", "resource_version") }
		before := conflicts()
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(refreshDelay))
		Expect(conflicts() - before).To(BeEquivalentTo(1))
		r.mustPass(ctx, run)
		now := w.get(ctx, run)
		Expect(now.Status.ObservedGeneration).To(Equal(now.Generation))
	}, NodeTimeout(2*patience))

	// mutation: passUnder that makes an error of it that the run is in line.
	It("and that is large and was edited waits for its desk in line, and not with an error", func(ctx SpecContext) {
		ended(ctx, nil)
		w.patch(ctx, run, fmt.Sprintf(`{"metadata":{"annotations":{"large":%q}},"spec":{"ttlSecondsAfterFinished":86400}}`, strings.Repeat("x", 100<<10)))
		r.Writes = shares.New(1, false, shares.KindMetrics{})
		q := r.awake()
		leave := r.fullDesks(ctx)
		Expect(r.mustPass(ctx, run)).To(Equal(reconcile.Result{}), "it is in line")
		leave()
		r.woken(ctx, q, "its status is of its generation", func() bool {
			now := w.get(ctx, run)
			return now.Status.ObservedGeneration == now.Generation
		})
	}, NodeTimeout(2*patience))

	It("and that a newer operator wrote is not written, though it was edited", func(ctx SpecContext) {
		ended(ctx, nil)
		newer := w.get(ctx, run)
		newer.Status.MinWriterVersion = v1alpha1.WriterVersion + 1
		body, err := encoded(newer)
		Expect(err).NotTo(HaveOccurred())
		Expect(suite.statuses.Put(ctx, newer, body, len(body))).To(Succeed())
		w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":86400}}`)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status).To(Equal(newer.Status))
	}, NodeTimeout(2*patience))
})
