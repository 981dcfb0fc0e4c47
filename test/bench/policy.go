// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"gonum.org/v1/plot/plotter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	// replicas is how many operators share the runs, without leader election: that is what
	// makes locks busy.
	replicas = 3
	// policyClass is the workload class of the runs, and the name of its policy.
	policyClass = "reports"
	// settleTime is how long after a change of the policy it is in force everywhere.
	settleTime = 3 * time.Second
	// policyRate is how many chains a second begin, throughout.
	policyRate = 3
)

// policyChange follows the roll-out of docs/locks.md under one load: a policy is changed while
// runs go on.
func policyChange(ctx context.Context, st *stage, r *report) (err error) {
	w, err := st.newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	if err := w.prepare(ctx, func(ctx context.Context, job worker.Job) (any, error) {
		time.Sleep(jobTime) // the workload
		return echo(ctx, job)
	}); err != nil {
		return err
	}
	policy, err := w.pollingPolicy(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.k8s.Delete(ctx, policy)) }()
	for range replicas {
		if _, err := w.operator(ctx); err != nil {
			return err
		}
	}
	p := &rollout{world: w, report: r, policy: policy, begin: time.Now()}
	if err := p.underLoad(ctx, time.Duration(st.size(25, 3))*time.Second); err != nil {
		return err
	}
	r.note("%d operators without leader election share %s new chains of %d a second; jobs take %s. The policy polls every 500 ms without jitter at first, lingerMillis 0, and is changed twice; no restart.",
		replicas, number(policyRate), chainLength, jobTime)
	r.note("p95 as histogram_quantile estimates it from the operators' histograms.")
	r.plot(linePlot{title: "Busy retries a second while the policy is changed", x: "s", y: "retries/s", series: p.retries}.of("retries"))
	r.plot(barPlot{title: "p95 while the policy is changed", y: "ms", table: "by policy", names: []string{"p95 lock wait", "p95 result to status"}}.of(r, "p95"))
	return nil
}

// pollingPolicy creates the policy as it is before the roll-out.
func (w *world) pollingPolicy(ctx context.Context) (*v1alpha1.LockPolicy, error) {
	policy := &v1alpha1.LockPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policyClass},
		Spec: v1alpha1.LockPolicySpec{WorkloadClasses: []string{policyClass}, RunLock: v1alpha1.RunLockPolicy{
			LingerMillis: new(int64(0)), Wait: v1alpha1.LockWait{Mode: v1alpha1.WaitModePoll}, BusyRetry: v1alpha1.BusyRetry{Mode: v1alpha1.JitterModeFixed},
		}},
	}
	if err := w.k8s.Create(ctx, policy); err != nil {
		return nil, fmt.Errorf("create policy: %w", err)
	}
	return policy, nil
}

// rollout changes a policy under load.
type rollout struct {
	*world
	report  *report
	policy  *v1alpha1.LockPolicy
	begin   time.Time
	retries []series
}

// underLoad measures each policy for some time, while chains begin at the same rate throughout.
func (p *rollout) underLoad(ctx context.Context, each time.Duration) (err error) {
	loading, stop := context.WithCancel(ctx)
	var load sync.WaitGroup
	var failed error
	load.Go(func() { failed = p.keepCreating(loading) })
	defer func() {
		stop()
		load.Wait()
		err = errors.Join(err, failed)
	}()
	for _, phase := range []struct {
		name   string
		change func(*v1alpha1.RunLockPolicy)
	}{
		{"Poll fixed", func(*v1alpha1.RunLockPolicy) {}},
		{"Poll jittered", func(l *v1alpha1.RunLockPolicy) { l.BusyRetry.Mode = v1alpha1.JitterModeJittered }},
		{"HandOff", func(l *v1alpha1.RunLockPolicy) { l.Wait.Mode = v1alpha1.WaitModeHandOff }},
	} {
		fmt.Fprintf(os.Stderr, "%s: %s\n", phase.name, each)
		before := p.policy.DeepCopy()
		phase.change(&p.policy.Spec.RunLock)
		if err := p.k8s.Patch(ctx, p.policy, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("change the policy: %w", err)
		}
		time.Sleep(settleTime)
		if err := p.measure(ctx, phase.name, each); err != nil {
			return err
		}
	}
	return nil
}

// keepCreating begins chains until ctx ends.
func (p *rollout) keepCreating(ctx context.Context) error {
	tick := time.NewTicker(time.Second / policyRate)
	defer tick.Stop()
	spec := chain(chainLength)
	spec.WorkloadClass = policyClass
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := p.createOne(ctx, fmt.Sprintf("report-%05d", i), spec); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// measure looks at the operators once a second for some time.
func (p *rollout) measure(ctx context.Context, name string, d time.Duration) error {
	before, err := scrape(ctx, p.operators...)
	if err != nil {
		return err
	}
	const retries = "syncopate_lock_busy_retries_total"
	executed, last, begin := p.executed.Load(), before.sum(retries, nil), time.Now()
	var points plotter.XYs
	after := before
	for time.Since(begin) < d {
		time.Sleep(time.Second) // the measurement
		if after, err = scrape(ctx, p.operators...); err != nil {
			return err
		}
		now := after.sum(retries, nil)
		points = append(points, plotter.XY{X: time.Since(p.begin).Seconds(), Y: now - last})
		last = now
	}
	took := time.Since(begin)
	p.retries = append(p.retries, series{name: name, points: points})
	s := p.report.in("by policy", name)
	wait := between(before, after, "syncopate_run_lock_wait_seconds", labels{"outcome": "acquired", "policy": policyClass})
	s.add("jobs", "/s", float64(p.executed.Load()-executed)/took.Seconds())
	s.add("lock takes", "/s", wait.count/took.Seconds())
	s.add("busy retries", "/min", (after.sum(retries, nil)-before.sum(retries, nil))/took.Minutes())
	s.add("p95 lock wait", "ms", 1000*wait.quantile(0.95))
	s.add("p99 lock wait", "ms", 1000*wait.quantile(0.99))
	result := between(before, after, "syncopate_job_result_latency_seconds", nil)
	s.add("p50 result to status", "ms", 1000*result.quantile(0.50))
	s.add("p95 result to status", "ms", 1000*result.quantile(0.95))
	s.add("p99 result to status", "ms", 1000*result.quantile(0.99))
	writes := func(outcome string) float64 {
		where := labels{"outcome": outcome}
		return after.sum("syncopate_status_writes_total", where) - before.sum("syncopate_status_writes_total", where)
	}
	s.add("status writes", "/s", writes("accepted")/took.Seconds())
	s.add("refused writes", "/min", (writes("refused")+writes("outdated"))/took.Minutes())
	const lookUps = "syncopate_job_recoveries_total"
	s.add("jobs looked up", "/s", (after.sum(lookUps, nil)-before.sum(lookUps, nil))/took.Seconds())
	return nil
}
