// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// turnstile is the history of who was under way, per tenant: the API server's, in the order
// of its writes.
type turnstile struct {
	mu       sync.Mutex
	limit    int // what no tenant may exceed
	inside   map[string]map[string]bool
	left     map[string]time.Time // when the last run of a tenant ended, as the watch told
	queued   map[string]time.Time // when a run was first seen in line
	most     int
	idle     []time.Duration // between the end of a run and the admission of the next one of its tenant that was in line by then
	finished int
	problems []string
}

// watchGates watches the runs of a world until the spec ends.
func (w *world) watchGates(ctx context.Context, limit int) *turnstile {
	GinkgoHelper()
	t := &turnstile{limit: limit, inside: map[string]map[string]bool{}, left: map[string]time.Time{}, queued: map[string]time.Time{}}
	var list v1alpha1.WorkflowRunList
	Expect(k8s.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
	watcher, err := watchtools.NewRetryWatcherWithContext(context.WithoutCancel(ctx), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return k8s.Watch(ctx, &v1alpha1.WorkflowRunList{}, &client.ListOptions{Namespace: w.namespace, Raw: &o})
		},
	})
	Expect(err).NotTo(HaveOccurred())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watcher.ResultChan() {
			t.see(e)
		}
	}()
	DeferCleanup(func() {
		watcher.Stop()
		<-done
	})
	return t
}

func (t *turnstile) see(e watch.Event) {
	run, ok := e.Object.(*v1alpha1.WorkflowRun)
	if !ok || run.Unwritten() || run.Status.Admission == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if run.Status.Admission.AdmittedAt == nil {
		if _, known := t.queued[run.Name]; !known {
			t.queued[run.Name] = time.Now()
		}
		return
	}
	tenant := run.Status.Tenant
	inside := t.inside[tenant]
	if inside == nil {
		inside = map[string]bool{}
		t.inside[tenant] = inside
	}
	over := e.Type == watch.Deleted || run.Status.CompletedAt != nil
	switch {
	case over && inside[run.Name]:
		delete(inside, run.Name)
		t.left[tenant] = time.Now()
		t.finished++
	case !over && !inside[run.Name]:
		inside[run.Name] = true
		at, left := t.left[tenant]
		if since, waited := t.queued[run.Name]; left && waited && since.Before(at) {
			t.idle = append(t.idle, time.Since(at))
		}
		delete(t.left, tenant)
	}
	t.most = max(t.most, len(inside))
	if len(inside) > t.limit {
		t.problems = append(t.problems, fmt.Sprintf("%s: %d runs under way when %s was admitted", tenant, len(inside), run.Name))
	}
}

func (t *turnstile) done() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.finished
}

// expectKept says that no tenant was ever over its limit, and that the limit was used.
func (t *turnstile) expectKept() {
	GinkgoHelper()
	t.mu.Lock()
	defer t.mu.Unlock()
	Expect(t.problems).To(BeEmpty())
	Expect(t.most).To(Equal(t.limit))
}

func (t *turnstile) idleTimes() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.idle)
	n := len(t.idle)
	if n == 0 {
		return "no hand-over"
	}
	at := func(p int) time.Duration { return t.idle[min(n-1, n*p/100)].Round(100 * time.Microsecond) }
	return fmt.Sprintf("slot idle between two runs of a tenant: p50 %s, p95 %s, p99 %s (%d)", at(50), at(95), at(99), n)
}

// limited is a policy with a limit for a class, whose locks are soon free when their holder dies.
func limited(ctx context.Context, class string, limit int32, adjust ...func(*v1alpha1.AdmissionPolicy)) *v1alpha1.LockPolicy {
	GinkgoHelper()
	p := &v1alpha1.LockPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: v1alpha1.LockPolicySpec{
			WorkloadClasses: []string{class},
			RunLock:         v1alpha1.RunLockPolicy{TTLSeconds: 5, Renewal: v1alpha1.RenewalPolicy{SafetyMarginMillis: new(int64(1000))}},
			Admission:       v1alpha1.AdmissionPolicy{MaxConcurrentRuns: &limit},
		},
	}
	for _, f := range adjust {
		f(&p.Spec.Admission)
	}
	apply(ctx, p)
	return p
}

// noSlots says that nobody has, or waits for, a slot any more.
func (w *world) noSlots(ctx context.Context, policy string, tenants ...string) {
	GinkgoHelper()
	gate := store.New(lockStore(), store.Options{})
	Eventually(func(g Gomega) {
		for _, tenant := range tenants {
			snapshot, err := gate.Snapshot(ctx, store.Key{Policy: policy, Tenant: tenant})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(snapshot.Slots).To(BeEmpty(), tenant)
			g.Expect(snapshot.Queue).To(BeEmpty(), tenant)
		}
	}).WithContext(ctx).WithPolling(pollInterval).Should(Succeed())
}

func lasting(d time.Duration) func(context.Context, worker.Job) (any, error) {
	return func(ctx context.Context, job worker.Job) (any, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(d):
			return job.Input, nil
		}
	}
}

var _ = Describe("a tenant's limit", func() {
	// mutation: a quota that lets in one more (Max+1 in the quota controller), or Release that does
	// nothing, makes these fail.
	for name, adjust := range map[string]func(*v1alpha1.AdmissionPolicy){
		"Atomic": func(*v1alpha1.AdmissionPolicy) {},
		"Lock":   func(a *v1alpha1.AdmissionPolicy) { a.Strategy = v1alpha1.AdmissionStrategyLock },
	} {
		It("holds at every moment of 100 runs, though operators die and Redis loses its data, with strategy "+name, func(ctx context.Context) {
			const runs, limit = 100, 2
			w := newWorld(ctx)
			class := w.namespace
			limited(ctx, class, limit, adjust)
			t := w.watchGates(ctx, limit)
			w.startWorker(ctx, 8, lasting(50*time.Millisecond), "gate.work")
			m := w.startManager(ctx, "0")
			spec := singleStep("gate.work")
			spec.WorkloadClass = class
			begin := time.Now()
			w.create(ctx, runs, spec)
			for kill := range 5 {
				Eventually(t.done).WithContext(ctx).WithPolling(pollInterval).Should(BeNumerically(">=", runs*(kill+1)/7))
				Expect(m.Kill()).To(Succeed())
				if kill == 2 {
					Expect(lockStore().FlushAll(ctx).Err()).To(Succeed())
				}
				m = w.startManager(ctx, strconv.Itoa(kill+1), "--leader-elect=false")
				if kill == 3 {
					Expect(lockStore().FlushAll(ctx).Err()).To(Succeed())
				}
			}
			w.eventuallyAll(ctx, v1alpha1.RunSucceeded, runs)
			Eventually(t.done).WithContext(ctx).Should(Equal(runs))
			AddReportEntry("100 runs at limit 2, 5 kills, 2 times FLUSHALL", fmt.Sprintf("%s; %s", sinceStart(begin), t.idleTimes()))
			t.expectKept()
			w.expectEachOnce(runs)
			w.noSlots(ctx, class, w.namespace)
		}, NodeTimeout(specTimeout))
	}

	It("holds between two operators that both believe that they own everything", func(ctx context.Context) {
		const runs, limit = 60, 3
		w := newWorld(ctx)
		limited(ctx, w.namespace, limit)
		t := w.watchGates(ctx, limit)
		w.startWorker(ctx, 8, lasting(20*time.Millisecond), "gate.work")
		w.startManager(ctx, "left", "--leader-elect=false")
		w.startManager(ctx, "right", "--leader-elect=false")
		spec := singleStep("gate.work")
		spec.WorkloadClass = w.namespace
		w.create(ctx, runs, spec)
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, runs)
		t.expectKept()
		w.noSlots(ctx, w.namespace, w.namespace)
	}, NodeTimeout(specTimeout))

	It("is edited live: raising it admits at once, lowering it ends nothing", func(ctx context.Context) {
		w := newWorld(ctx)
		p := limited(ctx, w.namespace, 0)
		w.startManager(ctx, "only")
		release := make(chan struct{})
		w.startWorker(ctx, 8, func(context.Context, worker.Job) (any, error) { <-release; return "done", nil }, "gate.work")
		DeferCleanup(func() { close(release) })
		spec := singleStep("gate.work")
		spec.WorkloadClass = w.namespace
		w.create(ctx, 6, spec)
		w.eventuallyAll(ctx, v1alpha1.RunQueued, 6)
		Expect(w.reasons(ctx, w.namespace, v1alpha1.ConditionAdmitted)).To(Equal(map[string]int{"False TenantAtCapacity": 6}))
		edit := func(limit int32) {
			GinkgoHelper()
			Expect(k8s.Patch(ctx, p, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"admission":{"maxConcurrentRuns":%d}}}`, limit)))).To(Succeed())
			Eventually(func() bool {
				seen := &v1alpha1.LockPolicy{}
				Expect(k8s.Get(ctx, client.ObjectKeyFromObject(p), seen)).To(Succeed())
				return seen.Status != nil && seen.Status.ObservedGeneration == p.Generation
			}).WithContext(ctx).WithPolling(pollInterval).Should(BeTrue(), "the operator has seen it")
		}
		edit(4)
		Eventually(w.phases).WithContext(ctx).WithPolling(pollInterval).Should(Equal(map[v1alpha1.RunPhase]int{v1alpha1.RunRunning: 4, v1alpha1.RunQueued: 2}))
		edit(1)
		release <- struct{}{} // one of four ends: nobody may come in
		Eventually(w.phases).WithContext(ctx).WithPolling(pollInterval).Should(HaveKeyWithValue(v1alpha1.RunSucceeded, 1))
		Consistently(w.phases, 2*time.Second, pollInterval).WithContext(ctx).Should(Equal(
			map[v1alpha1.RunPhase]int{v1alpha1.RunRunning: 3, v1alpha1.RunQueued: 2, v1alpha1.RunSucceeded: 1}))
		for range 5 {
			release <- struct{}{}
		}
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 6)
		w.noSlots(ctx, w.namespace, w.namespace)
	}, NodeTimeout(specTimeout))

	It("starves no tenant among many, and hands slots over without polling", func(ctx context.Context) {
		tenants, each := 20, 4
		if text := os.Getenv("ADMISSION_TENANTS"); text != "" { // make bench-admission: the full size
			var err error
			tenants, err = strconv.Atoi(text)
			Expect(err).NotTo(HaveOccurred())
			each = 10
		}
		job := time.Duration(0)
		if text := os.Getenv("ADMISSION_JOB"); text != "" { // how long each run has its slot: without it the operator is never idle
			var err error
			job, err = time.ParseDuration(text)
			Expect(err).NotTo(HaveOccurred())
		}
		w := newWorld(ctx)
		limited(ctx, w.namespace, 1)
		names := make([]string, tenants)
		for i := range names {
			names[i] = fmt.Sprintf("%s-tenant-%04d", w.namespace, i)
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
		Expect(k8s.Patch(ctx, ns, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
			`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationAllowedTenants, strings.Join(names, ","))))).To(Succeed())
		t := w.watchGates(ctx, 1)
		w.startWorker(ctx, max(32, tenants), lasting(job), "gate.work")
		w.startManager(ctx, "only")
		begin := time.Now()
		var wg sync.WaitGroup
		slots := make(chan struct{}, createParallel)
		for i := range tenants * each {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				defer GinkgoRecover()
				spec := singleStep("gate.work")
				spec.WorkloadClass, spec.Tenant = w.namespace, names[i%tenants]
				Expect(k8s.Create(ctx, &v1alpha1.WorkflowRun{
					ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("run-%05d", i)}, Spec: spec,
				})).To(Succeed())
			})
		}
		wg.Wait()
		// By the watch: a list of all runs twice a second would be most of what the API server
		// has to do.
		Eventually(t.done).WithContext(ctx).WithPolling(pollInterval).Should(Equal(tenants * each))
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, tenants*each)
		AddReportEntry(fmt.Sprintf("%d tenants x %d runs of %s, limit 1", tenants, each, job), fmt.Sprintf("%s; %s", sinceStart(begin), t.idleTimes()))
		t.expectKept()
		w.noSlots(ctx, w.namespace, names[0], names[tenants-1])
	}, NodeTimeout(5*specTimeout))
})
