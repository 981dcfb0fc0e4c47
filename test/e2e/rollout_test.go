// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
)

const (
	rolloutTimeout = 12 * time.Minute
	stepsOfARun    = 6
	// someTraffic and hardlyAny are times between two runs of a class.
	someTraffic = 250 * time.Millisecond
	hardlyAny   = 10 * time.Second
	rolloutPoll = time.Second // between looks at a rollout
)

// canaried creates a policy that polls with jitter, and whose edits are tried on a part
// of the runs.
func (w *world) canaried(ctx context.Context, name string, r v1alpha1.LockPolicyRollout) {
	GinkgoHelper()
	r.Strategy = v1alpha1.RolloutStrategyCanary
	apply(ctx, &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.LockPolicySpec{
		WorkloadClasses: []string{name}, Rollout: &r,
		RunLock: v1alpha1.RunLockPolicy{LingerMillis: new(int64), Wait: v1alpha1.LockWait{Mode: v1alpha1.WaitModePoll}},
	}})
	Eventually(func() v1alpha1.RolloutPhase { return rolloutOf(ctx, name).Phase }).WithContext(ctx).Should(BeEquivalentTo("Stable"))
}

// rolloutOf is the rollout of a policy; the zero value until the operator has looked at it.
func rolloutOf(ctx context.Context, name string) v1alpha1.LockPolicyRolloutStatus {
	GinkgoHelper()
	p := &v1alpha1.LockPolicy{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, p)).To(Succeed())
	if p.Status == nil || p.Status.Rollout == nil {
		return v1alpha1.LockPolicyRolloutStatus{}
	}
	return *p.Status.Rollout
}

func edit(ctx context.Context, name string, change func(*v1alpha1.RunLockPolicy)) {
	GinkgoHelper()
	Eventually(func() error {
		p := &v1alpha1.LockPolicy{}
		if err := k8s.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		change(&p.Spec.RunLock)
		return k8s.Update(ctx, p)
	}).WithContext(ctx).Should(Succeed())
}

// traffic creates runs of a class until stop is called. Their steps end at the same time, so all
// operators want their locks.
func (w *world) traffic(ctx context.Context, class, topic string, gap time.Duration) (stop func() int) {
	spec := v1alpha1.WorkflowRunSpec{WorkloadClass: class}
	for i := range stepsOfARun {
		spec.Steps = append(spec.Steps, v1alpha1.Step{Name: fmt.Sprint("s", i), Job: &v1alpha1.Job{Topic: topic}})
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var made atomic.Int64
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(gap)
		defer tick.Stop()
		for ctx.Err() == nil {
			run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("%s-%d", class, made.Load())}, Spec: spec}
			if k8s.Create(context.WithoutCancel(ctx), run) == nil {
				made.Add(1)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	stop = func() int {
		cancel()
		group.Wait()
		return int(made.Load())
	}
	DeferCleanup(func() { stop() })
	return stop
}

// ends waits for the end of a rollout, and shows each step to see. It returns the percentages that
// there were.
func ends(ctx context.Context, name string, see func(name string)) (percents []int32) {
	GinkgoHelper()
	begin := time.Now()
	Eventually(func(g Gomega) {
		r := rolloutOf(ctx, name)
		if r.Percent > 0 && (len(percents) == 0 || percents[len(percents)-1] != r.Percent) {
			percents = append(percents, r.Percent)
			see(name)
		}
		g.Expect(string(r.Phase)).To(Or(Equal("Promoted"), Equal("RolledBack")), "%s: %s", name, r.Message)
	}).WithContext(ctx).WithPolling(rolloutPoll).Should(Succeed())
	see(name)
	r := rolloutOf(ctx, name)
	AddReportEntry(name, fmt.Sprintf("%s, %s after %s, steps %v: %s", r.Phase, r.Reason, sinceStart(begin), percents, r.Message))
	return percents
}

// expectRolledOut compares how a rollout ended.
func expectRolledOut(ctx context.Context, name, phase, reason string) {
	GinkgoHelper()
	p := &v1alpha1.LockPolicy{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, p)).To(Succeed())
	Expect(string(p.Status.Rollout.Phase)).To(Equal(phase), p.Status.Rollout.Message)
	Expect(meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRolledOut)).To(HaveField("Reason", reason))
}

// expectClean waits until all runs have succeeded, and expects that each job was done once, and
// that no run's history forked.
func (w *world) expectClean(ctx context.Context, h *history, runs int) {
	GinkgoHelper()
	w.eventuallyAll(ctx, v1alpha1.RunSucceeded, runs)
	w.expectEachOnce(runs * stepsOfARun)
	h.mu.Lock()
	defer h.mu.Unlock()
	Expect(h.problems).To(BeEmpty())
}

// Three operators that share runs, so locks are really busy. Each play takes minutes:
// make test-rollout.
//
// mutation: a vote that does not count, an arm that is not pinned, or a candidate that all runs
// have at once make these fail.
var _ = Describe("a LockPolicy that rolls out by canary", func() {
	three := func(ctx context.Context, w *world) []*devenv.Manager {
		var all []*devenv.Manager
		for _, name := range []string{"one", "two", "three"} {
			all = append(all, w.startManager(ctx, name))
		}
		return all
	}
	few := v1alpha1.LockPolicyRollout{StepsPercent: []int32{20, 50}, MinContendedRuns: 25, MaxStepMinutes: 1}
	plan := v1alpha1.LockPolicyRollout{StepsPercent: []int32{20, 50}, MinContendedRuns: 25, MaxStepMinutes: 5}
	fixed := func(l *v1alpha1.RunLockPolicy) { l.BusyRetry.Mode = v1alpha1.JitterModeFixed }
	handOff := func(l *v1alpha1.RunLockPolicy) { l.Wait.Mode = v1alpha1.WaitModeHandOff }
	BeforeEach(func() {
		if os.Getenv("ROLLOUT") == "" {
			Skip("takes minutes: make test-rollout")
		}
	})

	It("takes back a fixed delay, promotes hand-off through all steps, and does not decide without data", func(ctx context.Context) {
		w := newWorld(ctx)
		h := w.record(ctx)
		three(ctx, w)
		w.startWorker(ctx, 64, echo, "rollout.work")
		p := w.buildPlugin(ctx)
		status := func(name string) { p.call(ctx, "rollout", "status", name) }
		w.canaried(ctx, "reports", plan)
		w.canaried(ctx, "invoices", plan)
		w.canaried(ctx, "archive", few)

		runs := 0
		lonely := w.traffic(ctx, "archive", "rollout.work", hardlyAny)
		edit(ctx, "archive", handOff)
		busy := w.traffic(ctx, "reports", "rollout.work", someTraffic)
		edit(ctx, "reports", fixed)
		ends(ctx, "reports", status)
		expectRolledOut(ctx, "reports", "RolledBack", v1alpha1.ReasonBusyRunsWorse)
		Expect(p.call(ctx, "rollout", "history", "reports")).To(ContainSubstring(v1alpha1.ReasonBusyRunsWorse))
		runs += busy()

		ends(ctx, "archive", status)
		expectRolledOut(ctx, "archive", "RolledBack", v1alpha1.ReasonInsufficientData)
		runs += lonely()

		busy = w.traffic(ctx, "invoices", "rollout.work", someTraffic)
		edit(ctx, "invoices", handOff)
		Expect(ends(ctx, "invoices", status)).To(Equal([]int32{20, 50}))
		expectRolledOut(ctx, "invoices", "Promoted", v1alpha1.ReasonAllStepsPassed)
		Expect(p.call(ctx, "rollout", "history", "invoices")).To(ContainSubstring(v1alpha1.ReasonAllStepsPassed))
		runs += busy()
		w.expectClean(ctx, h, runs)
	}, NodeTimeout(rolloutTimeout))

	It("ends the same way though an operator is killed at each step", func(ctx context.Context) {
		w := newWorld(ctx)
		h := w.record(ctx)
		operators := three(ctx, w)
		w.startWorker(ctx, 64, echo, "killed.work")
		w.canaried(ctx, "killed-fixed", plan)
		w.canaried(ctx, "killed-hand-off", plan)
		w.canaried(ctx, "killed-few", few)
		killed := 0
		kill := func(string) {
			Expect(operators[killed%len(operators)].Kill()).To(Succeed())
			operators[killed%len(operators)] = w.startManager(ctx, fmt.Sprint("next-", killed))
			killed++
		}
		runs := 0
		for name, change := range map[string]func(*v1alpha1.RunLockPolicy){"killed-fixed": fixed, "killed-hand-off": handOff, "killed-few": handOff} {
			gap := someTraffic
			if name == "killed-few" {
				gap = hardlyAny
			}
			stop := w.traffic(ctx, name, "killed.work", gap)
			edit(ctx, name, change)
			ends(ctx, name, kill) // at each step, and at the end
			runs += stop()
		}
		AddReportEntry("operators killed", killed)
		expectRolledOut(ctx, "killed-few", "RolledBack", v1alpha1.ReasonInsufficientData)
		expectRolledOut(ctx, "killed-fixed", "RolledBack", v1alpha1.ReasonBusyRunsWorse)
		expectRolledOut(ctx, "killed-hand-off", "Promoted", v1alpha1.ReasonAllStepsPassed)
		w.expectClean(ctx, h, runs)
	}, NodeTimeout(rolloutTimeout))
})
