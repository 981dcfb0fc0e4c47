// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	lockpolicy "github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// policy creates a LockPolicy for the time of the spec.
func policy(ctx context.Context, name string, lock v1alpha1.RunLockPolicy, classes ...string) {
	GinkgoHelper()
	apply(ctx, &v1alpha1.LockPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.LockPolicySpec{WorkloadClasses: classes, RunLock: lock},
	})
}

// samplePolicy creates the policy of a sample for the time of the spec, and returns the first
// of its classes.
func samplePolicy(ctx context.Context, file string) string {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(root, "config", "samples", file))
	Expect(err).NotTo(HaveOccurred())
	p := &v1alpha1.LockPolicy{}
	Expect(yaml.UnmarshalStrict(raw, p)).To(Succeed())
	apply(ctx, p)
	return p.Spec.WorkloadClasses[0]
}

func apply(ctx context.Context, p *v1alpha1.LockPolicy) {
	GinkgoHelper()
	Expect(k8s.Create(ctx, p)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, p))).To(Succeed()) })
}

// lockStore is a client for the locks themselves.
func lockStore() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: env.Redis.Addr})
	DeferCleanup(c.Close)
	return c
}

// runs returns all runs of this world.
func (w *world) runs(ctx context.Context) []v1alpha1.WorkflowRun {
	GinkgoHelper()
	var list v1alpha1.WorkflowRunList
	Expect(k8s.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
	return list.Items
}

// reasons counts the runs of a class by status and reason of a condition.
func (w *world) reasons(ctx context.Context, class, condition string) map[string]int {
	GinkgoHelper()
	counts := map[string]int{}
	for _, run := range w.runs(ctx) {
		if run.Spec.WorkloadClass != class {
			continue
		}
		c := &metav1.Condition{}
		if !run.Unwritten() {
			if found := meta.FindStatusCondition(run.Status.Conditions, condition); found != nil {
				c = found
			}
		}
		counts[string(c.Status)+" "+c.Reason]++
	}
	return counts
}

// askedDelays reads from an operator's debug log after how long it meant to try busy locks again.
func askedDelays(m *devenv.Manager) []float64 {
	GinkgoHelper()
	f, err := os.Open(m.Log)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = f.Close() }()
	var delays []float64
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !strings.Contains(lines.Text(), "Run lock busy, tried again later") {
			continue
		}
		var line struct {
			Delay float64 `json:"delay"` // seconds
		}
		Expect(json.Unmarshal(lines.Bytes(), &line)).To(Succeed())
		delays = append(delays, line.Delay)
	}
	Expect(lines.Err()).NotTo(HaveOccurred())
	return delays
}

// deviation is the largest distance between the distribution of samples and the uniform one in
// [low, high]: the statistic of Kolmogorov and Smirnov. It sorts the samples.
func deviation(samples []float64, low, high float64) float64 {
	slices.Sort(samples)
	worst, n := 0.0, float64(len(samples))
	for i, s := range samples {
		want := (s - low) / (high - low)
		worst = max(worst, math.Abs(want-float64(i)/n), math.Abs(want-float64(i+1)/n))
	}
	return worst
}

// mutation: a delay that is not spread, or not over the whole range, makes the first entry fail,
// one that is the second.
var _ = Describe("a run lock that somebody else holds", func() {
	const (
		runs  = 100
		asked = 1000
		held  = time.Hour // for longer than the test
	)
	DescribeTable("is tried again as the policy says, and the metrics say the same", func(ctx context.Context, sample, mode string, check func([]float64)) {
		w := newWorld(ctx)
		spec := singleStep("busy.work")
		if sample != "" {
			spec.WorkloadClass = samplePolicy(ctx, sample)
		}
		w.create(ctx, runs, spec)
		store := lockStore()
		var locks []string
		for _, run := range w.runs(ctx) {
			locks = append(locks, "{run:"+string(run.UID)+"}:lock")
			Expect(store.Set(ctx, locks[len(locks)-1], "somebody else", held).Err()).To(Succeed())
		}
		m := w.startManager(ctx, "busy", "--zap-log-level=2") // at 1 lines are sampled
		w.startWorker(ctx, 16, echo, "busy.work")
		Eventually(func(ctx context.Context) (float64, error) {
			families, err := tryScrape(ctx, m)
			return counter(families, "syncopate_lock_busy_retries_total", "reconcile"), err
		}).WithContext(ctx).WithTimeout(specTimeout).WithPolling(time.Second).Should(BeNumerically(">=", asked))
		Expect(store.Del(ctx, locks...).Err()).To(Succeed())
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, runs)

		delays := askedDelays(m)
		families, sum, most, least := scrape(ctx, m), 0.0, slices.Max(delays), slices.Min(delays)
		for _, d := range delays {
			sum += d
		}
		AddReportEntry(mode, fmt.Sprintf("%d delays, %.1f to %.1f ms, mean %.1f ms, distance from uniform %.4f",
			len(delays), least*1000, most*1000, sum/float64(len(delays))*1000, deviation(delays, 0.35, 0.65)))
		check(delays)
		Expect(counter(families, "syncopate_lock_busy_retries_total", "reconcile")).To(BeEquivalentTo(len(delays)))
		histogram := families["syncopate_lock_busy_retry_delay_seconds"].GetMetric()
		Expect(histogram).To(HaveLen(1))
		Expect(histogram[0].GetLabel()).To(ContainElement(HaveField("Value", HaveValue(Equal(mode)))))
		Expect(histogram[0].GetHistogram().GetSampleCount()).To(BeEquivalentTo(len(delays)))
		Expect(histogram[0].GetHistogram().GetSampleSum()).To(BeNumerically("~", sum, 1e-3))
		w.expectEachOnce(runs)
	},
		Entry("spread evenly over 500 ms +-30 %, without any policy", "", "jittered", func(delays []float64) {
			Expect(slices.Min(delays)).To(BeNumerically(">=", 0.35))
			Expect(slices.Max(delays)).To(BeNumerically("<=", 0.65))
			// alpha = 1e-6: sqrt(-ln(alpha/2)/2) / sqrt(n)
			Expect(deviation(delays, 0.35, 0.65)).To(BeNumerically("<", math.Sqrt(-math.Log(1e-6/2)/2)/math.Sqrt(float64(len(delays)))))
		}, NodeTimeout(specTimeout)),
		Entry("after exactly 500 ms, with the sample that rolls jitter back", "lockpolicy-fixed-delay.yaml", "fixed", func(delays []float64) {
			Expect(delays).To(HaveEach(0.5))
		}, NodeTimeout(specTimeout)),
	)
})

// mutation: a lease of scope Run that is given up between passes (Session.Return in
// internal/controller/workflowrun/leases/session.go that always releases) makes this fail, as does
// Continue that fences, and Fence that goes on.
var _ = Describe("Redis that hangs while runs hold their locks", func() {
	It("stops the runs of a strict class, lets those of another go on, and all finish when it is back", func(ctx context.Context) {
		const each = 20
		process := env.Redis.Process()
		if process == nil {
			Skip("needs a real redis-server")
		}
		w := newWorld(ctx)
		lock := func(onFailure v1alpha1.RenewalFailureMode) v1alpha1.RunLockPolicy {
			return v1alpha1.RunLockPolicy{
				TTLSeconds: 6, Scope: v1alpha1.LockScopeRun,
				Renewal: v1alpha1.RenewalPolicy{IntervalMillis: new(int64(1500)), SafetyMarginMillis: new(int64(1500)), OnFailure: onFailure},
			}
		}
		policy(ctx, "strict-class", lock(v1alpha1.RenewalFailureFence), "strict")
		policy(ctx, "steady-class", lock(v1alpha1.RenewalFailureContinue), "steady")
		h := w.record(ctx)
		m := w.startManager(ctx, "hung")
		gate := make(chan struct{})
		w.startWorker(ctx, 3*each, func(ctx context.Context, _ worker.Job) (any, error) {
			select {
			case <-gate:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}, "hung.first")
		w.startWorker(ctx, 3*each, echo, "hung.second")
		for _, class := range []string{"strict", "steady"} {
			for i := range each {
				run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("%s-%02d", class, i)}}
				run.Spec = v1alpha1.WorkflowRunSpec{WorkloadClass: class, Steps: []v1alpha1.Step{
					{Name: "first", Job: &v1alpha1.Job{Topic: "hung.first"}},
					{Name: "second", DependsOn: []string{"first"}, Job: &v1alpha1.Job{Topic: "hung.second"}},
				}}
				Expect(k8s.Create(ctx, run)).To(Succeed())
			}
		}
		eventually := func(class, condition, want string) {
			GinkgoHelper()
			Eventually(w.reasons).WithContext(ctx).WithArguments(class, condition).WithPolling(pollInterval).Should(Equal(map[string]int{want: each}))
		}
		// Renewals show on running runs.
		eventually("strict", v1alpha1.ConditionRunLockRenewed, "True "+v1alpha1.ReasonLockRenewed)
		eventually("steady", v1alpha1.ConditionRunLockRenewed, "True "+v1alpha1.ReasonLockRenewed)
		eventually("strict", v1alpha1.ConditionRunLockAbandoned, "False "+v1alpha1.ReasonNotAbandoned)

		begin := time.Now()
		Expect(process.Signal(syscall.SIGSTOP)).To(Succeed())
		DeferCleanup(func() { Expect(process.Signal(syscall.SIGCONT)).To(Succeed()) })
		eventually("strict", v1alpha1.ConditionRunLockRenewed, "False "+v1alpha1.ReasonLockStoreUnavailable)
		eventually("steady", v1alpha1.ConditionRunLockRenewed, "False "+v1alpha1.ReasonContinuingUnlocked)
		known := sinceStart(begin)
		for reason, n := range w.reasons(ctx, "strict", v1alpha1.ConditionRunLockAbandoned) {
			Expect(reason).To(Or(Equal("True "+v1alpha1.ReasonRenewalFailuresExceeded), Equal("True "+v1alpha1.ReasonLeaseDeadlineReached)), "of %d runs", n)
		}
		Expect(w.reasons(ctx, "steady", v1alpha1.ConditionRunLockAbandoned)).To(Equal(map[string]int{"False " + v1alpha1.ReasonNotAbandoned: each}))
		families := scrape(ctx, m)
		Expect(counter(families, "syncopate_run_lock_abandoned_total", "")).To(BeEquivalentTo(each))
		Expect(families["syncopate_run_locks_unlocked"].GetMetric()[0].GetGauge().GetValue()).To(BeEquivalentTo(each))

		close(gate) // 40 results arrive
		Eventually(w.phases).WithContext(ctx).WithPolling(pollInterval).Should(HaveKeyWithValue(v1alpha1.RunSucceeded, each), "the other class goes on")
		Consistently(w.phases).WithContext(ctx).WithPolling(pollInterval).Should(Equal(map[v1alpha1.RunPhase]int{v1alpha1.RunSucceeded: each, v1alpha1.RunRunning: each}))
		Expect(w.executions()).To(HaveLen(3*each), "no second step of the strict class")
		for _, run := range w.runs(ctx) {
			if run.Spec.WorkloadClass == "strict" {
				Expect(run.Status.Steps[1].Attempt).To(BeZero(), "nothing of the strict class is dispatched")
			}
		}

		back := time.Now()
		Expect(process.Signal(syscall.SIGCONT)).To(Succeed())
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 2*each)
		AddReportEntry("Redis hung", fmt.Sprintf("conditions told after %s, all finished %s after it went on", known, sinceStart(back)))
		w.expectEachOnce(2 * 2 * each)
		Expect(m.Done()).NotTo(BeClosed(), "no restart")
		h.mu.Lock()
		defer h.mu.Unlock()
		Expect(h.problems).To(BeEmpty())
	}, NodeTimeout(specTimeout))
})

var _ = Describe("Redis that loses all its data while two operators work", func() {
	It("costs neither results nor order: fences rise, stale writers are refused, and not in a loop", func(ctx context.Context) {
		const (
			runs    = 60
			steps   = 4
			flushes = 5
		)
		w := newWorld(ctx)
		h := w.record(ctx)
		left, right := w.startManager(ctx, "left"), w.startManager(ctx, "right")
		w.startWorker(ctx, 16, echo, "flushed.work")
		var spec v1alpha1.WorkflowRunSpec
		for i := range steps {
			s := v1alpha1.Step{Name: fmt.Sprintf("s%d", i), Job: &v1alpha1.Job{Topic: "flushed.work"}}
			if i > 0 {
				s.DependsOn = []string{fmt.Sprintf("s%d", i-1)}
			}
			spec.Steps = append(spec.Steps, s)
		}
		w.create(ctx, runs, spec)
		store := lockStore()
		for i := range flushes {
			w.atLeastExecuted(ctx, (i+1)*runs*steps/(flushes+1))
			Expect(store.FlushAll(ctx).Err()).To(Succeed())
		}
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, runs)
		w.expectEachOnce(runs * steps)

		refused := 0.0
		for _, m := range []*devenv.Manager{left, right} {
			refused += counter(scrape(ctx, m), "syncopate_fence_rejections_total", "fence_rule")
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		AddReportEntry("data lost", fmt.Sprintf("%d times, %d status writes, %.0f refused by the fence rules", flushes, h.writes, refused))
		Expect(h.problems).To(BeEmpty())
		Expect(refused).To(BeNumerically("<=", runs*flushes), "no loop of refusals")

		stale := w.runs(ctx)[0]
		stale.Status.Fence = new(*stale.Status.Fence - 1)
		err := k8s.Status().Update(ctx, &stale)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "a lower fence written by hand: %v", err)
		Expect(err).To(MatchError(ContainSubstring("stale writer")))
	}, NodeTimeout(specTimeout))
})

// mutation: the CRD's fence rule made always true, and a validity beyond the TTL, each
// make this fail.
var _ = Describe("a holder that slept beyond its TTL", func() {
	It("cannot write after another has written, 100 of 100 times", func(ctx context.Context) {
		const rounds = 100
		w := newWorld(ctx)
		w.create(ctx, 1, singleStep("asleep.work"))
		store := lockStore()
		holder := func() *lockmgr.Manager {
			m := lockmgr.New(store, lockmgr.Options{})
			DeferCleanup(m.Close)
			return m
		}
		sleeper, other := holder(), holder()
		// No renewal is due within the TTL, so to the lock the holder is as good as asleep.
		lock := lockpolicy.RunLock{TTL: 100 * time.Millisecond, Wait: lockpolicy.Wait{Poll: true}, Renewal: lockpolicy.Renewal{
			Interval: time.Hour, Timeout: time.Second, MaxConsecutiveFailures: 1, Margin: 10 * time.Millisecond,
		}}
		take := func(m *lockmgr.Manager) *lockmgr.Lease {
			GinkgoHelper()
			var lease *lockmgr.Lease
			Eventually(func(g Gomega) {
				run := w.runs(ctx)[0]
				r := lockmgr.Request{RunUID: string(run.UID), Policy: lock}
				if !run.Unwritten() && run.Status.Fence != nil {
					r.Floor, r.FloorLeaseID = *run.Status.Fence, run.Status.Lock.LeaseID
				}
				var err error
				lease, err = m.Acquire(ctx, r)
				g.Expect(err).NotTo(HaveOccurred())
			}).WithContext(ctx).WithPolling(pollInterval / 10).Should(Succeed())
			return lease
		}
		write := func(l *lockmgr.Lease) error {
			run := w.runs(ctx)[0] // with the latest resourceVersion, so that nothing but the fence is in the way
			run.Status = &v1alpha1.WorkflowRunStatus{Fence: new(l.Fence()), Lock: &v1alpha1.RunLockStatus{LeaseID: l.ID()}}
			return k8s.Status().Update(ctx, &run)
		}
		stopped, refused := 0, 0
		for range rounds {
			asleep := take(sleeper)
			Expect(write(asleep)).To(Succeed())
			awake := take(other)
			Expect(write(awake)).To(Succeed())
			if errors.Is(asleep.Err(), lockmgr.ErrLeaseLost) {
				stopped++
			}
			if err := write(asleep); apierrors.IsInvalid(err) && strings.Contains(err.Error(), "stale writer") {
				refused++
			}
			asleep.Release(ctx)
			awake.Drop(ctx)
		}
		AddReportEntry("stale writes", fmt.Sprintf("%d of %d stopped by the lease, %d of %d refused by the API server", stopped, rounds, refused, rounds))
		Expect(stopped).To(Equal(rounds))
		Expect(refused).To(Equal(rounds))
	}, NodeTimeout(specTimeout))
})

// mutation: a breaker that is never open makes this fail: each run asks for itself.
var _ = Describe("an operator that cannot log in to Redis", func() {
	It("says why in conditions, dispatches nothing, and does not hammer it", func(ctx context.Context) {
		const runs = 40 // more than are worked on at the same time: the first of them may all ask before one knows
		w := newWorld(ctx)
		m := w.launchManager(ctx, "misled", "--redis-tls")
		w.create(ctx, runs, singleStep("misled.work"))
		w.startWorker(ctx, 4, echo, "misled.work")
		Eventually(w.reasons).WithContext(ctx).WithArguments("default", v1alpha1.ConditionRunLockRenewed).WithPolling(pollInterval).
			Should(Equal(map[string]int{"False " + v1alpha1.ReasonLockStoreUnavailable: runs}))
		for _, run := range w.runs(ctx) {
			c := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionRunLockRenewed)
			Expect(c.Message).To(ContainSubstring("TLS"), "the cause, with what to look at")
		}
		begin := time.Now()
		Consistently(w.executions).WithContext(ctx).WithPolling(pollInterval).WithTimeout(3 * time.Second).Should(BeEmpty())
		tries := counter(scrape(ctx, m), "syncopate_run_lock_acquisitions_total", "error")
		AddReportEntry("tries", fmt.Sprintf("%.0f within %s and the start", tries, sinceStart(begin)))
		Expect(tries).To(BeNumerically("<", runs), "no spin")
		Expect(readyz(ctx, m)()).To(ContainSubstring("[-]redis"))
	}, NodeTimeout(specTimeout))
})

// atLeastExecuted waits until some jobs were run.
func (w *world) atLeastExecuted(ctx context.Context, want int) {
	GinkgoHelper()
	Eventually(func() int { return len(w.executions()) }).WithContext(ctx).WithPolling(pollInterval / 10).Should(BeNumerically(">=", want))
}
