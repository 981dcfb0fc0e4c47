// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// woken are the runs that a gate woke and that had no pass since.
type woken struct {
	mu   sync.Mutex
	keys map[types.NamespacedName]bool
}

func (w *woken) add(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[key] = true
}

func (w *woken) take(run *v1alpha1.WorkflowRun) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(run)
	was := w.keys[key]
	delete(w.keys, key)
	return was
}

// gated gives a replica real gates, on the Redis of its world.
func (r *replica) gated(ctx context.Context) *woken {
	w := &woken{keys: map[types.NamespacedName]bool{}}
	k := quota.New(quota.Options{
		Gate: store.New(r.redis, store.Options{Clock: r.Clock}), Client: r.Client, Live: r.Live, Wake: w.add, Clock: r.Clock, Log: GinkgoLogr,
	})
	asks := slots.NewAsks(k, r.Clock, shares.KindMetrics{}, func(key types.NamespacedName, _ bool) { w.add(key) })
	r.Slots = &slots.Slots{Quota: asks, Keys: k, Asks: asks}
	asking, end := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() { _ = asks.Start(asking) })
	DeferCleanup(func() {
		end()
		ended.Wait()
	})
	// A leader opens the gates of a Redis that is new. Its later rounds would wake runs as well, so
	// it ends here.
	leading, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { _ = k.Start(leading) })
	probe := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: r.w.ns, Name: "probe", UID: types.UID(r.w.ns)}}
	until(ctx, "the gates are open", func() bool {
		_, err := k.Reserve(ctx, probe, r.w.ns, policy.Effective{Name: "probe"}, 0)
		return err == nil
	})
	stop()
	done.Wait()
	clear(w.keys)
	return w
}

// limit makes the policy of a world one with a limit.
func (w *world) limit(ctx context.Context, n int32) {
	w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{RunLock: brief(), Admission: v1alpha1.AdmissionPolicy{MaxConcurrentRuns: &n}})
}

func admittedReason(run *v1alpha1.WorkflowRun) string {
	if run.Unwritten() {
		return ""
	}
	for _, c := range run.Status.Conditions {
		if c.Type == v1alpha1.ConditionAdmitted {
			return c.Reason
		}
	}
	return ""
}

func withReason(reason string) func(*v1alpha1.WorkflowRun) bool {
	return func(run *v1alpha1.WorkflowRun) bool { return admittedReason(run) == reason }
}

// Mutations that make specs below fail:
//   - slots.go ReleaseIfOver does nothing: nobody is woken when a run ends, is
//     cancelled, is suspended.
//   - slots.go ReleaseDeleted does nothing: nobody is woken when a run is deleted, and its key
//     is never free.
//   - slots.go Ask without leaving the old place: the run is in two lines.
//   - slots.go Wrote without HoldingOf: the successor of a process does not free what the dead
//     one had taken.
var _ = Describe("the gate of a tenant", func() {
	ends := map[string]func(ctx context.Context, w *world, r *replica, run *v1alpha1.WorkflowRun){
		"succeeds": func(ctx context.Context, w *world, r *replica, run *v1alpha1.WorkflowRun) { r.finish(ctx, run) },
		"is cancelled": func(ctx context.Context, w *world, r *replica, run *v1alpha1.WorkflowRun) {
			w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
			r.drive(ctx, run, lifecycle.Finished)
		},
		"is deleted": func(ctx context.Context, w *world, r *replica, run *v1alpha1.WorkflowRun) {
			r.deleteRun(ctx, run)
			r.mustPass(ctx, run)
		},
		"is deleted after its time to live": func(ctx context.Context, w *world, r *replica, run *v1alpha1.WorkflowRun) {
			w.patch(ctx, run, `{"spec":{"ttlSecondsAfterFinished":0,"shutdown":"Terminate"}}`)
			until(ctx, "it is gone", func() bool {
				r.turn(ctx, run)
				return client.IgnoreNotFound(w.client.Get(ctx, client.ObjectKeyFromObject(run), &v1alpha1.WorkflowRun{})) == nil &&
					w.client.Get(ctx, client.ObjectKeyFromObject(run), &v1alpha1.WorkflowRun{}) != nil
			})
		},
	}
	for how, end := range ends {
		It(fmt.Sprintf("lets the next run in when one %s, and wakes it", how), func(ctx SpecContext) {
			w := newWorld(ctx)
			w.limit(ctx, 1)
			r := w.newReplica(ctx, "r")
			woken := r.gated(ctx)
			first, second := w.create(ctx, []v1alpha1.Step{step("a")}), w.create(ctx, []v1alpha1.Step{step("a")})
			r.inFlight(ctx, first, 1)
			waiting := r.drive(ctx, second, withReason(v1alpha1.ReasonTenantAtCapacity))
			Expect(waiting.Status.Phase).To(Equal(v1alpha1.RunQueued))
			Expect(waiting.Status.Admission.AdmittedAt).To(BeNil())
			Expect(woken.take(second)).To(BeFalse())
			writes := r.counter("syncopate_status_writes_total")
			for range 3 {
				r.mustPass(ctx, second)
			}
			Expect(r.counter("syncopate_status_writes_total")).To(Equal(writes), "waiting costs no writes")
			end(ctx, w, r, first)
			Expect(woken.take(second)).To(BeTrue(), "nobody polls")
			running := r.inFlight(ctx, second, 1)
			Expect(running.Status.Admission.Policy).To(Equal(w.ns))
			r.finish(ctx, second)
		}, NodeTimeout(2*patience))
	}

	It("is left by a run that is suspended while it waits, and asked again when that is over", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.limit(ctx, 1)
		r := w.newReplica(ctx, "r")
		woken := r.gated(ctx)
		var runs []*v1alpha1.WorkflowRun
		for range 3 {
			runs = append(runs, w.create(ctx, []v1alpha1.Step{step("a")}))
		}
		r.inFlight(ctx, runs[0], 1)
		for _, run := range runs[1:] {
			r.drive(ctx, run, withReason(v1alpha1.ReasonTenantAtCapacity))
		}
		w.patch(ctx, runs[1], `{"spec":{"suspend":true}}`)
		r.drive(ctx, runs[1], withReason(v1alpha1.ReasonSuspended))
		r.finish(ctx, runs[0])
		Expect(woken.take(runs[1])).To(BeFalse(), "it does not wait any more")
		Expect(woken.take(runs[2])).To(BeTrue())
		r.inFlight(ctx, runs[2], 1)
		w.patch(ctx, runs[1], `{"spec":{"suspend":false}}`)
		r.drive(ctx, runs[1], withReason(v1alpha1.ReasonTenantAtCapacity))
		r.finish(ctx, runs[2])
		r.finish(ctx, runs[1])
	}, NodeTimeout(2*patience))

	It("gets back what a process had taken that died", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.limit(ctx, 1)
		first := w.newReplica(ctx, "first")
		first.gated(ctx)
		run, next := w.create(ctx, []v1alpha1.Step{step("a")}), w.create(ctx, []v1alpha1.Step{step("a")})
		first.inFlight(ctx, run, 1)
		first.kill(ctx)
		w.dropLock(ctx, run)
		second := w.newReplica(ctx, "second")
		woken := second.gated(ctx)
		second.drive(ctx, next, withReason(v1alpha1.ReasonTenantAtCapacity))
		second.finish(ctx, run)
		Expect(woken.take(next)).To(BeTrue())
		second.finish(ctx, next)
	}, NodeTimeout(2*patience))

	It("counts a run under one policy at a time", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.limit(ctx, 1)
		r := w.newReplica(ctx, "r")
		r.gated(ctx)
		first, second := w.create(ctx, []v1alpha1.Step{step("a")}), w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, first, 1)
		r.drive(ctx, second, withReason(v1alpha1.ReasonTenantAtCapacity))
		old := w.policies[0].Name
		w.policies[0].Name = old + "-new"
		Expect(r.drive(ctx, second, finishedOrAdmitted).Status.Admission.Policy).To(Equal(old+"-new"), "the gate of the new policy has room")
		snapshot, err := store.New(r.redis, store.Options{}).Snapshot(ctx, store.Key{Policy: old, Tenant: w.ns})
		Expect(err).NotTo(HaveOccurred())
		Expect(snapshot.Queue).To(BeEmpty())
		Expect(snapshot.Slots).To(HaveLen(1))
		r.finish(ctx, first)
		r.finish(ctx, second)
		for _, name := range []string{old, old + "-new"} {
			snapshot, err := store.New(r.redis, store.Options{}).Snapshot(ctx, store.Key{Policy: name, Tenant: w.ns})
			Expect(err).NotTo(HaveOccurred())
			Expect(snapshot.Slots).To(BeEmpty(), name)
		}
	}, NodeTimeout(2*patience))

	// atTheLimit is a world with a run that has the only slot, and runs that wait for it.
	atTheLimit := func(ctx context.Context, waiting int) (*world, *replica, *v1alpha1.WorkflowRun, []*v1alpha1.WorkflowRun) {
		w := newWorld(ctx)
		w.limit(ctx, 1)
		r := w.newReplica(ctx, "r")
		r.gated(ctx)
		first := w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, first, 1)
		var queue []*v1alpha1.WorkflowRun
		for range waiting {
			queue = append(queue, w.create(ctx, []v1alpha1.Step{step("a")}))
			r.drive(ctx, queue[len(queue)-1], withReason(v1alpha1.ReasonTenantAtCapacity))
		}
		return w, r, first, queue
	}

	// mutations: askSlot that does not look at what was deleted, and See that keeps what is back.
	It("stays closed while its policy is replaced, and writes nobody in its line", func(ctx SpecContext) {
		w, r, first, queue := atTheLimit(ctx, 2)
		policies, versions := w.policies, map[string]string{}
		for _, run := range queue {
			versions[run.Name] = w.get(ctx, run).ResourceVersion
		}
		fresh := w.create(ctx, []v1alpha1.Step{step("a")})
		seconds := func(n int) {
			GinkgoHelper()
			for range n {
				w.clock.Step(time.Second)
				for _, run := range append(slices.Clone(queue), fresh) {
					r.mustPass(ctx, run)
					Expect(lifecycle.Admitted(w.get(ctx, run))).To(BeFalse())
				}
			}
		}
		w.policies = nil
		seconds(3)
		w.policies = policies
		seconds(2)
		for _, run := range queue {
			Expect(w.get(ctx, run).ResourceVersion).To(Equal(versions[run.Name]))
		}
		r.drive(ctx, fresh, withReason(v1alpha1.ReasonTenantAtCapacity))
		r.finishAll(ctx, first)
		for _, run := range w.all(ctx) {
			Expect(run.Status.Admission.Policy).To(Equal(w.ns))
		}
	}, NodeTimeout(2*patience))

	// mutations: askSlot that does not look again, and See that forgets nothing.
	It("lets all in half a minute after its policy was deleted", func(ctx SpecContext) {
		w, r, _, queue := atTheLimit(ctx, 2)
		w.policies = nil
		w.clock.Step(time.Second)
		end := w.clock.Now().Add(30 * time.Second)
		silent := r.mustPass(ctx, queue[0]).RequeueAfter
		Expect(silent).To(BeNumerically("~", 8*time.Second, 10*time.Millisecond))
		w.clock.Step(silent)
		for _, run := range queue {
			waiting := r.drive(ctx, run, withReason("WaitingForPolicy"))
			said := "LockPolicy " + w.ns + " is gone; the run waits until " + end.UTC().Format(time.RFC3339) + " whether it comes back"
			Expect(messageOf(waiting, v1alpha1.ConditionAdmitted)).To(Equal(said))
		}
		left := end.Sub(w.clock.Now())
		Expect(r.mustPass(ctx, queue[0]).RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", left)))
		w.clock.Step(left)
		for _, run := range queue {
			Expect(r.inFlight(ctx, run, 1).Status.Admission.Policy).To(BeEmpty())
		}
		for _, run := range queue {
			r.finish(ctx, run)
		}
	}, NodeTimeout(2*patience))

	// mutation: policyWatch that does not tell of a deletion.
	It("does not wait for a policy that was deleted hours before a run came", func(ctx SpecContext) {
		w, r, first, queue := atTheLimit(ctx, 1)
		gone := &w.policies[0]
		w.policies = nil
		r.policyWatch().Delete(ctx, event.DeleteEvent{Object: gone}, newQueue())
		w.clock.Step(time.Hour)
		Expect(r.inFlight(ctx, queue[0], 1).Status.Admission.Policy).To(BeEmpty())
		r.finish(ctx, queue[0])
		r.finish(ctx, first)
	}, NodeTimeout(2*patience))

	It("lets one of the runs with the same idempotency key in, until that is gone", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.limit(ctx, 10)
		r := w.newReplica(ctx, "r")
		r.gated(ctx)
		keyed := func(spec *v1alpha1.WorkflowRunSpec) { spec.IdempotencyKey = "report-1" }
		first, same := w.create(ctx, []v1alpha1.Step{step("a")}, keyed), w.create(ctx, []v1alpha1.Step{step("a")}, keyed)
		other := w.create(ctx, []v1alpha1.Step{step("b")}, keyed)
		r.inFlight(ctx, first, 1)
		for run, reason := range map[*v1alpha1.WorkflowRun]string{same: v1alpha1.ReasonDuplicateRun, other: v1alpha1.ReasonIdempotencyConflict} {
			end := r.drive(ctx, run, lifecycle.Finished)
			Expect(end.Status.Phase).To(Equal(v1alpha1.RunFailed))
			for _, c := range end.Status.Conditions {
				if c.Type == v1alpha1.ConditionSucceeded {
					Expect(c.Reason).To(Equal(reason))
					Expect(c.Message).To(ContainSubstring(w.ns + "/" + first.Name))
				}
			}
		}
		r.finish(ctx, first)
		late := w.create(ctx, []v1alpha1.Step{step("a")}, keyed)
		r.drive(ctx, late, lifecycle.Finished)
		r.deleteRun(ctx, first)
		r.mustPass(ctx, first)
		again := w.create(ctx, []v1alpha1.Step{step("a")}, keyed)
		Expect(r.finish(ctx, again).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	It("admits nobody while Redis is down, says so, and goes on by itself", func(ctx SpecContext) {
		redis := suite.redis
		w := newWorld(ctx, withRedis(redis))
		w.limit(ctx, 1)
		r := w.newReplica(ctx, "r")
		r.gated(ctx)
		open := r.Slots.Quota
		r.Slots.Quota = failingQuota{open, &store.UnavailableError{}}
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		waiting := r.drive(ctx, run, withReason(v1alpha1.ReasonAdmissionUnavailable))
		Expect(waiting.Status.Phase).To(Equal(v1alpha1.RunQueued))
		Expect(r.mustPass(ctx, run).RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 5*time.Second)), "it looks again by itself")
		r.Slots.Quota = open
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))
})

// Mutations that make specs below fail:
//   - finished.go finished that returns the error, or RetryDelay that ignores what it asks for.
//   - deleted.go cleanUp that returns the error, or cleanDeleted without PutBack.
var _ = Describe("a slot that cannot be given up", func() {
	It("is given up later, as the error asks for, and that is no error of the run that ended", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.limit(ctx, 1)
		r := w.newReplica(ctx, "r")
		r.gated(ctx)
		run, next := w.create(ctx, []v1alpha1.Step{step("a")}), w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, run, 1)
		open := r.Slots.Quota
		r.Slots.Quota = stuckQuota{open, &results.RetryError{After: 3 * time.Second, Cause: errors.New("Redis is away")}}
		r.finish(ctx, run)
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(3 * time.Second))
		r.drive(ctx, next, func(now *v1alpha1.WorkflowRun) bool {
			return !now.Unwritten() && now.Status.Phase == v1alpha1.RunQueued
		})
		r.Slots.Quota = open
		r.mustPass(ctx, run)
		r.finish(ctx, next)
	}, NodeTimeout(2*patience))

	It("is given up later by a run that was deleted, with its jobs, and that is no error either", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.limit(ctx, 1)
		r := w.newReplica(ctx, "r")
		woken := r.gated(ctx)
		run, next := w.create(ctx, []v1alpha1.Step{step("a")}), w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, run, 1)
		r.drive(ctx, next, withReason(v1alpha1.ReasonTenantAtCapacity))
		r.deleteRun(ctx, run)
		r.hook = func(_ context.Context, at string) error {
			if at == "withdraw/before" {
				return &results.RetryError{After: 2 * time.Second, Cause: errors.New("NATS is away")}
			}
			return nil
		}
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(2 * time.Second))
		r.hook = nil
		open := r.Slots.Quota
		r.Slots.Quota = stuckQuota{open, &results.RetryError{After: 3 * time.Second, Cause: errors.New("Redis is away")}}
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(3 * time.Second))
		woken.take(next)
		r.Slots.Quota = stuckQuota{open, errTest}
		_, err := r.pass(ctx, run)
		Expect(err).To(MatchError(errTest), "it does not say when")
		r.Slots.Quota = open
		Expect(r.mustPass(ctx, run).RequeueAfter).To(BeZero())
		Expect(woken.take(next)).To(BeTrue())
		Expect(w.jobsQueued(ctx)).To(BeZero())
		r.finish(ctx, next)
	}, NodeTimeout(2*patience))
})

// stuckQuota cannot be left.
type stuckQuota struct {
	slots.Quota
	err error
}

func (s stuckQuota) Release(context.Context, types.UID, string, string) error { return s.err }

func finishedOrAdmitted(run *v1alpha1.WorkflowRun) bool {
	return lifecycle.Finished(run) || lifecycle.Admitted(run)
}

// failingQuota fail to admit.
type failingQuota struct {
	slots.Quota
	err error
}

func (f failingQuota) Admit(context.Context, *v1alpha1.WorkflowRun, string, policy.Effective) (store.Answer, error) {
	return store.Answer{}, f.err
}
