// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

var _ = Describe("the lock of one run", func() {
	// mutation: a breaker that trips on every error makes this fail.
	It("that a script chokes on keeps no other run waiting", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, quick())
		r := w.newReplica(ctx, "r")
		bad, good := w.create(ctx, diamond()), w.create(ctx, diamond())
		Expect(w.redis.Client().LPush(ctx, lockKey(bad), "x").Err()).To(Succeed())
		r.mustPass(ctx, bad)
		r.mustPass(ctx, good)
		Expect(reason(w.get(ctx, good), v1alpha1.ConditionRunLockRenewed)).To(Equal(v1alpha1.ReasonLockHeld))
		Expect(reason(w.get(ctx, bad), v1alpha1.ConditionRunLockRenewed)).To(Equal(v1alpha1.ReasonLockStoreUnavailable))
		w.redis.Client().Del(ctx, lockKey(bad))
		r.finish(ctx, good)
		r.finish(ctx, bad)
	}, NodeTimeout(2*patience))

	// mutation: a breaker that is reset by each answer that is no error makes this fail.
	It("that is known to be busy without asking Redis says nothing about Redis", func(ctx SpecContext) {
		redis := redistest.Start(GinkgoTB())
		w := newWorld(ctx, withRedis(redis))
		w.policy(ctx, quick())
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		w.takeLock(ctx, run)
		r.mustPass(ctx, run) // waits in line from now on
		redis.Pause()
		defer redis.Resume()
		r.Leases.Breaker.Trip(errors.New("hangs"))
		w.clock.Step(leases.BreakerPause)
		r.mustPass(ctx, run)
		Expect(r.Leases.Breaker.Open()).To(HaveOccurred(), "nobody asked Redis")
	}, NodeTimeout(2*patience))

	// mutation: advance without its deferred function makes this fail.
	It("is given back when a pass panics", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, quick())
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.hook = once("status/before", func() error { panic("a bug that is met once") })
		func() {
			defer func() { _ = recover() }() // as controller-runtime does
			_, _ = r.pass(ctx, run)
		}()
		Expect(w.redis.Client().Exists(ctx, lockKey(run)).Val()).To(BeZero())
		r.hook = nil
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))

	// mutation: a loss that is kept until a later pass sees it told makes this fail.
	It("is told to be lost once, though another took over right after", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, forRun(v1alpha1.RenewalFailureFence))
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		run := w.create(ctx, twoSteps())
		a.inFlight(ctx, run, 1)
		w.dropLock(ctx, run)
		b.mustPass(ctx, run)
		until(ctx, "a lost it", func() bool {
			return a.Leases.Cache.Of(run.UID).Err() != nil
		})
		for range 5 {
			a.mustPass(ctx, run)
			w.clock.Step(50 * time.Millisecond)
			b.mustPass(ctx, run)
			w.clock.Step(500 * time.Millisecond)
		}
		told := 0
		for _, e := range a.recorder.list() {
			if ok, _ := ContainSubstring("RunLockAbandoned").Match(e); ok {
				told++
			}
		}
		Expect(told).To(Equal(1), "%v", a.recorder.list())
	}, NodeTimeout(2*patience))

	// mutation: policyWatch that wakes nobody makes this fail.
	It("that the run keeps is taken anew when its policy changes", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, forRun(v1alpha1.RenewalFailureFence))
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, twoSteps())
		r.inFlight(ctx, run, 1)
		q := newQueue()
		changed := &v1alpha1.LockPolicy{}
		changed.Generation = 2
		r.policyWatch().Update(ctx, event.UpdateEvent{ObjectOld: &v1alpha1.LockPolicy{}, ObjectNew: &v1alpha1.LockPolicy{}}, q)
		Expect(q.Len()).To(BeZero(), "its status changed")
		r.policyWatch().Update(ctx, event.UpdateEvent{ObjectOld: &v1alpha1.LockPolicy{}, ObjectNew: changed}, q)
		Expect(q.Len()).To(Equal(1))
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))

	// mutation: policyWatch that compares generations only makes this fail.
	It("that the run keeps is taken anew when its policy was replaced while the watch was cut", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, forRun(v1alpha1.RenewalFailureFence))
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, twoSteps())
		r.inFlight(ctx, run, 1)
		q := newQueue()
		was, now := w.policies[0].DeepCopy(), w.policies[0].DeepCopy()
		now.UID = "another"
		r.policyWatch().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: now}, q)
		Expect(q.Len()).To(Equal(1))
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))

	// mutation: semaphoreWatch that compares generations only makes this fail.
	It("of a semaphore that was replaced while the watch was cut is asked for anew", func(ctx SpecContext) {
		w := newWorld(ctx)
		var changed []string
		r := w.newReplica(ctx, "r", func(r *replica) { r.SemaphoreChanged = func(name string) { changed = append(changed, name) } })
		semaphore := func(uid types.UID, generation int64) *v1alpha1.Semaphore {
			return &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: "licences", UID: uid, Generation: generation}}
		}
		for now, told := range map[*v1alpha1.Semaphore]int{semaphore("a", 1): 0, semaphore("a", 2): 1, semaphore("b", 1): 1} {
			changed = nil
			r.semaphoreWatch().Update(ctx, event.UpdateEvent{ObjectOld: semaphore("a", 1), ObjectNew: now}, newQueue())
			Expect(changed).To(HaveLen(told), "%s of generation %d", now.UID, now.Generation)
		}
	}, NodeTimeout(patience))
})
