// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// burst creates n runs, so many at the same time, each once; those that are created take their
// slots, as the controller sees to.
func (w *world) burst(ctx context.Context, class string, n, atOnce, limit int) []reply {
	GinkgoHelper()
	replies, took := make([]reply, n), make([]time.Duration, n)
	var all sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i := range n {
		all.Go(func() {
			defer GinkgoRecover()
			turns <- struct{}{}
			defer func() { <-turns }()
			run := w.run(class, fmt.Sprintf("run-%d", i))
			began := time.Now()
			replies[i] = w.create(ctx, run, "")
			took[i] = time.Since(began)
			if replies[i].code == http.StatusCreated {
				Expect(w.instance.admit(ctx, run, w.ns, limit).Admitted).To(BeTrue(), "a run that was let in finds no slot")
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	GinkgoWriter.Printf("%d creations, %d at once: p50 %s, p95 %s, as the client sees it\n", n, atOnce, took[n/2], took[n*95/100])
	return replies
}

func count(replies []reply) map[int]int {
	codes := map[int]int{}
	for _, r := range replies {
		codes[r.code]++
	}
	return codes
}

var _ = Describe("At the limit", func() {
	// mutation: Reserve replaced by a plain look at what is used (ttl 0), or no reservation at all,
	// lets in more than 2.
	It("lets in 2 of 100 runs that are created at once, and tells 98 to come back", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		w.register(ctx, w.operator(setting{}), closed, patient)
		class := w.policy(ctx, "payments", rejecting(2))
		w.guarded(ctx)

		replies := w.burst(ctx, class, 100, 100, 2)
		Expect(count(replies)).To(Equal(map[int]int{http.StatusCreated: 2, http.StatusTooManyRequests: 98}))
		for _, r := range replies {
			if r.code == http.StatusCreated {
				continue
			}
			Expect(r.status.Reason).To(Equal(metav1.StatusReasonTooManyRequests))
			Expect(r.cause()).To(Equal(v1alpha1.ReasonTenantAtCapacity))
			Expect(r.status.Message).To(ContainSubstring(`admission webhook "admission.syncopate.dev" denied the request: TenantAtCapacity: tenant ` + w.ns + " is at its limit of 2"))
			seconds, err := strconv.Atoi(r.header.Get("Retry-After"))
			Expect(err).NotTo(HaveOccurred(), "the header Retry-After")
			Expect(seconds).To(BeNumerically("~", 2, 1))
			Expect(r.status.Details.RetryAfterSeconds).To(BeEquivalentTo(seconds))
		}
		var runs v1alpha1.WorkflowRunList
		Expect(suite.client.List(ctx, &runs, client.InNamespace(w.ns))).To(Succeed())
		Expect(runs.Items).To(HaveLen(2))
		snapshot, err := w.instance.quotas.Snapshot(ctx, store.Key{Policy: class, Tenant: w.ns})
		Expect(err).NotTo(HaveOccurred())
		Expect(snapshot.Slots).To(HaveLen(2))
		Expect(snapshot.Reserved).To(BeEmpty(), "the slots are those that were reserved: by the UID of the object that was stored")
	}, SpecTimeout(2*patience))

	It("refuses nobody with 503 while Redis is up, with 400 runs at the same moment and a limit far away", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		w.register(ctx, w.operator(setting{}), closed, patient)
		class := w.policy(ctx, "wide", rejecting(100000))
		w.guarded(ctx)
		got := count(w.burst(ctx, class, 400, 400, 100000))
		// On a machine that is busy with other tests a few of 400 connections to Redis are not made
		// in time, which is an outage.
		Expect(got[http.StatusCreated]).To(BeNumerically(">=", 380), "%v", got)
		Expect(got[http.StatusCreated]+got[http.StatusServiceUnavailable]).To(Equal(400), "%v", got)
	}, SpecTimeout(3*patience))

	It("says that a tenant is admitted none", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		w.register(ctx, w.operator(setting{}), closed)
		a := rejecting(5)
		a.Tenants = []v1alpha1.TenantLimit{{Name: w.ns, MaxConcurrentRuns: 0}}
		class := w.policy(ctx, "none", a)
		w.guarded(ctx)
		got := w.create(ctx, w.run(class, "run"), "")
		Expect(got.code).To(Equal(http.StatusTooManyRequests))
		Expect(got.status.Message).To(ContainSubstring("tenant " + w.ns + " is admitted none: LockPolicy " + class + " sets its limit to 0"))
	}, SpecTimeout(patience))

	It("lets a client with retries in without a word, once there is room", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		w.register(ctx, w.operator(setting{}), closed)
		class := w.policy(ctx, "payments", rejecting(1))
		w.guarded(ctx)
		first := w.run(class, "first")
		Expect(w.create(ctx, first, "").code).To(Equal(http.StatusCreated))
		w.instance.admit(ctx, first, w.ns, 1)

		created := make(chan error, 1)
		go func() { created <- suite.client.Create(ctx, w.run(class, "second")) }()
		Eventually(ctx, w.instance.asked.Load).WithTimeout(patience).Should(BeNumerically(">=", 2), "the client was refused once")
		_, err := w.instance.quotas.Release(ctx, store.Key{Policy: class, Tenant: w.ns}, store.Limits{Max: 1}, string(first.UID))
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, created).WithTimeout(patience).Should(Receive(Succeed()))
		Expect(w.instance.asked.Load()).To(BeNumerically(">=", 3))
	}, SpecTimeout(2*patience))
})

var _ = Describe("A dry run", func() {
	// mutation: a dry run that reserves makes this fail.
	It("has the same answer, and leaves nothing behind", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		w.register(ctx, w.operator(setting{}), closed)
		class := w.policy(ctx, "payments", rejecting(1))
		w.guarded(ctx)
		for range 3 {
			Expect(w.create(ctx, w.run(class, "dry"), "?dryRun=All").code).To(Equal(http.StatusCreated))
		}
		snapshot, err := w.instance.quotas.Snapshot(ctx, store.Key{Policy: class, Tenant: w.ns})
		Expect(err).NotTo(HaveOccurred())
		Expect(snapshot.Reserved).To(BeEmpty())

		Expect(w.create(ctx, w.run(class, "run"), "").code).To(Equal(http.StatusCreated))
		got := w.create(ctx, w.run(class, "dry"), "?dryRun=All")
		Expect(got.code).To(Equal(http.StatusTooManyRequests))
		Expect(got.cause()).To(Equal(v1alpha1.ReasonTenantAtCapacity))
		Expect(w.instance.asked.Load()).To(BeEquivalentTo(5))
	}, SpecTimeout(patience))
})

var _ = Describe("Without a decision", func() {
	It("says 503 with a reason while Redis is down, to those who need it", func(ctx SpecContext) {
		server := redistest.Start(GinkgoTB())
		w := newWorld(ctx, server)
		w.register(ctx, w.operator(setting{}), closed)
		class := w.policy(ctx, "payments", rejecting(2))
		queue := w.policy(ctx, "batch", v1alpha1.AdmissionPolicy{MaxConcurrentRuns: new(int32(1))})
		w.guarded(ctx)

		server.Stop()
		got := w.create(ctx, w.run(class, "run"), "")
		Expect(got.code).To(Equal(http.StatusServiceUnavailable))
		Expect(got.status.Reason).To(Equal(metav1.StatusReasonServiceUnavailable))
		Expect(got.cause()).To(Equal(v1alpha1.ReasonAdmissionUnavailable))
		Expect(got.status.Message).To(ContainSubstring("refused"), "the cause")
		Expect(got.header.Get("Retry-After")).To(BeElementOf("1", "2"))
		Expect(w.create(ctx, w.run(queue, "waits"), "").code).To(Equal(http.StatusCreated), "a policy that queues needs no Redis for this")

		server.Restart()
		Eventually(ctx, func() int { return w.create(ctx, w.run(class, "run"), "").code }).WithTimeout(patience).WithPolling(polling).Should(Equal(http.StatusCreated))
	}, SpecTimeout(2*patience))

	It("says 503 with another reason while the slots are counted again", func(ctx SpecContext) {
		server := redistest.Start(GinkgoTB())
		w := newWorld(ctx, server)
		w.register(ctx, w.operator(setting{}), closed)
		class := w.policy(ctx, "payments", rejecting(2))
		w.guarded(ctx)

		w.instance.shut.Store(true)
		server.FlushAll()
		got := w.create(ctx, w.run(class, "run"), "")
		Expect(got.code).To(Equal(http.StatusServiceUnavailable))
		Expect(got.cause()).To(Equal(v1alpha1.ReasonAdmissionRebuilding))
		Expect(got.header.Get("Retry-After")).To(BeElementOf("1", "2"))

		w.instance.shut.Store(false)
		Expect(w.create(ctx, w.run(class, "run"), "").code).To(Equal(http.StatusCreated))
	}, SpecTimeout(2*patience))

	It("says 503 with a third one when the lock of strategy Lock is not to be had", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		w.register(ctx, w.operator(setting{}), closed)
		class := w.policy(ctx, "payments", underLock(rejecting(2), 50))
		w.guarded(ctx)
		Expect(w.create(ctx, w.run(class, "first"), "").code).To(Equal(http.StatusCreated))

		lock := "{adm:" + class + ":" + w.ns + "}:lock"
		redis := suite.redis.Client()
		Expect(redis.Set(ctx, lock, "somebody", 0).Err()).To(Succeed())
		got := w.create(ctx, w.run(class, "second"), "")
		Expect(got.code).To(Equal(http.StatusServiceUnavailable))
		Expect(got.cause()).To(Equal(v1alpha1.ReasonAdmissionBusy))
		Expect(got.header.Get("Retry-After")).To(Equal("1"))

		Expect(redis.Del(ctx, lock).Err()).To(Succeed())
		Expect(w.create(ctx, w.run(class, "second"), "").code).To(Equal(http.StatusCreated))
		Expect(w.create(ctx, w.run(class, "third"), "").code).To(Equal(http.StatusTooManyRequests))
	}, SpecTimeout(2*patience))
})

var _ = Describe("With the quota controller", func() {
	It("goes on by itself after Redis lost its data", func(ctx SpecContext) {
		server := redistest.Start(GinkgoTB())
		w := newWorld(ctx, server)
		w.register(ctx, w.operator(setting{live: true}), closed)
		class := w.policy(ctx, "payments", rejecting(1))
		w.guarded(ctx)
		settled := func(name string) int {
			GinkgoHelper()
			var code int
			Eventually(ctx, func() int {
				got := w.create(ctx, w.run(class, name), "")
				if code = got.code; code == http.StatusServiceUnavailable {
					Expect(got.cause()).To(Equal(v1alpha1.ReasonAdmissionRebuilding))
				}
				return code
			}).WithTimeout(patience).WithPolling(polling).ShouldNot(Equal(http.StatusServiceUnavailable))
			return code
		}
		Expect(settled("first")).To(Equal(http.StatusCreated))
		Expect(settled("second")).To(Equal(http.StatusTooManyRequests))
		server.FlushAll()
		Expect(settled("third")).To(Equal(http.StatusCreated), "reservations are lost too, and whoever had one waits in line")
		Expect(settled("fourth")).To(Equal(http.StatusTooManyRequests))
	}, SpecTimeout(2*patience))
})

var _ = Describe("Idempotency keys", func() {
	// mutation: a key that is claimed for runs that exist only lets in all ten.
	It("let in one of ten equal creations at once, and tell nine its name; none leaves an object or a slot behind", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		w.register(ctx, w.operator(setting{live: true}), closed, patient)
		class := w.policy(ctx, "payments", rejecting(20))
		w.guarded(ctx)
		const equal = 10
		replies := make([]reply, equal)
		var all sync.WaitGroup
		for i := range equal {
			all.Go(func() {
				defer GinkgoRecover()
				run := w.run(class, fmt.Sprintf("run-%d", i))
				run.Spec.IdempotencyKey = "invoice-7"
				replies[i] = w.create(ctx, run, "")
			})
		}
		all.Wait()
		Expect(count(replies)).To(Equal(map[int]int{http.StatusCreated: 1, http.StatusConflict: equal - 1}))
		var runs v1alpha1.WorkflowRunList
		Expect(suite.client.List(ctx, &runs, client.InNamespace(w.ns))).To(Succeed())
		Expect(runs.Items).To(HaveLen(1))
		for _, r := range replies {
			if r.code != http.StatusCreated {
				Expect(r.cause()).To(Equal(v1alpha1.ReasonDuplicateRun))
				Expect(r.status.Message).To(ContainSubstring("run " + w.ns + "/" + runs.Items[0].Name + " of tenant " + w.ns + " has the same idempotency key"))
				Expect(r.header.Get("Retry-After")).To(BeEmpty())
			}
		}
		snapshot, err := w.instance.quotas.Snapshot(ctx, store.Key{Policy: class, Tenant: w.ns})
		Expect(err).NotTo(HaveOccurred())
		Expect(snapshot.Reserved).To(HaveLen(1), "of the one that was created")

		// Its controller finds the key its own, and later creations find it taken, with whatever
		// spec, as long as it exists.
		live := quota.New(quota.Options{Gate: w.instance.quotas, Client: suite.client, Live: suite.client, Log: GinkgoLogr})
		owner, err := live.Claim(ctx, &runs.Items[0], w.ns)
		Expect(err).NotTo(HaveOccurred())
		Expect(owner).To(BeNil())
		other := w.run(class, "other")
		other.Spec.IdempotencyKey, other.Spec.Steps[0].Job.Topic = "invoice-7", "else"
		Expect(w.create(ctx, other, "").cause()).To(Equal(v1alpha1.ReasonIdempotencyConflict))
		Expect(suite.client.Delete(ctx, &runs.Items[0])).To(Succeed())
		Expect(w.create(ctx, other, "").code).To(Equal(http.StatusCreated), "the first is gone")
	}, SpecTimeout(2*patience))
})

var _ = Describe("What the gate is not asked", func() {
	It("is anything but a creation under a policy that rejects", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		w.register(ctx, w.operator(setting{}), closed)
		class := w.policy(ctx, "payments", rejecting(1))
		queue := w.policy(ctx, "batch", v1alpha1.AdmissionPolicy{MaxConcurrentRuns: new(int32(0))})
		w.guarded(ctx)

		run := w.run(class, "run")
		Expect(w.create(ctx, run, "").code).To(Equal(http.StatusCreated))
		Expect(w.instance.asked.Load()).To(BeEquivalentTo(1))

		By("changing and deleting a run of a tenant at its limit")
		run.Spec.Suspend = true
		Expect(suite.client.Update(ctx, run)).To(Succeed())
		run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunPending}
		Expect(suite.client.Status().Update(ctx, run)).To(Succeed())

		By("creating it once more: the API server says what is wrong")
		Eventually(ctx, func(g Gomega) { // once the cache has it; before that a reservation is what it costs
			before := w.instance.asked.Load()
			g.Expect(w.create(ctx, w.run(class, "run"), "").code).To(Equal(http.StatusConflict))
			g.Expect(w.instance.asked.Load()).To(Equal(before))
		}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
		Expect(suite.client.Delete(ctx, run)).To(Succeed())
		asked := w.instance.asked.Load()

		By("creating runs that ask for no slot, or of a policy that does not reject")
		Expect(w.create(ctx, w.run(queue, "queued"), "").code).To(Equal(http.StatusCreated))
		Expect(w.create(ctx, w.run("unheard-of", "built-in"), "").code).To(Equal(http.StatusCreated))
		later := w.run(class, "later")
		later.Spec.Suspend = true
		Expect(w.create(ctx, later, "").code).To(Equal(http.StatusCreated))

		By("creating a run for a tenant that the namespace may not name: the controller says what is wrong")
		foreign := w.run(class, "foreign")
		foreign.Spec.Tenant = "globex"
		Expect(w.create(ctx, foreign, "").code).To(Equal(http.StatusCreated))
		Expect(w.instance.asked.Load()).To(Equal(asked))
	}, SpecTimeout(2*patience))

	It("is a run that the schema refuses", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		w.register(ctx, w.operator(setting{}), closed)
		class := w.policy(ctx, "payments", rejecting(1))
		w.guarded(ctx)
		bad := w.run(class, "bad")
		bad.Spec.Steps[0].Name = "Not A Name"
		Expect(w.create(ctx, bad, "").code).To(Equal(http.StatusUnprocessableEntity))
		Expect(w.instance.asked.Load()).To(BeZero())
	}, SpecTimeout(patience))
})

var _ = Describe("What is nested too deep", func() {
	It("is not stored, whatever its class", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		w.register(ctx, w.operator(setting{}), closed)
		w.guarded(ctx)
		run := w.run("any", "deep")
		run.Spec.Inputs = nested(9000)
		got := w.create(ctx, run, "")
		Expect(got.code).To(Equal(http.StatusUnprocessableEntity))
		Expect(got.status.Message).To(Equal(`admission webhook "admission.syncopate.dev" denied the request: InvalidSpec: spec.inputs: nested more than 100 deep`))
		var runs v1alpha1.WorkflowRunList
		Expect(suite.client.List(ctx, &runs, client.InNamespace(w.ns))).To(Succeed())
		Expect(runs.Items).To(BeEmpty())
	}, SpecTimeout(patience))
})
