// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
)

const (
	// restTime is how long an operator is watched that has nothing to do: more than the 30 s
	// of its janitors.
	restTime = 35 * time.Second
	// scaleLimit bounds each wait.
	scaleLimit = 20 * time.Minute
)

// waiting is a run that waits for a person, then has one job.
func waiting() *v1alpha1.WorkflowRunSpec {
	return &v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{
		{Name: "ask", Approval: &v1alpha1.Approval{Message: "may it go on?"}}, step("work", "ask"),
	}}
}

// scale measures what runs cost that wait.
func scale(ctx context.Context, st *stage, r *report) (err error) {
	w, err := st.newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	if err := w.prepare(ctx, echo); err != nil {
		return err
	}
	s := &scaling{world: w, report: r}
	if s.operator, err = w.operator(ctx, w.profileArgs()...); err != nil {
		return err
	}
	time.Sleep(3 * time.Second) // it has come to rest
	s.empty, _ = memoryOf(s.operator.PID())
	sizes := []int{st.size(1000, 50), st.size(5000, 100)}
	if st.options.large {
		sizes = append(sizes, 20000)
	}
	for _, n := range sizes {
		if err := s.measure(ctx, n); err != nil {
			return fmt.Errorf("%d runs: %w", n, err)
		}
	}
	r.note("Runs wait for an approval. An operator without runs has %s MiB; memory per run is what is above that, in a process that was just started.", number(s.empty))
	r.note("At rest: %s without anything to do. Recovery counts from the start of the process; a run that was approved while no operator was there must be done.", restTime)
	r.plot(barPlot{title: "Memory of the operator for each run that waits", y: "KiB", table: "runs that wait", names: []string{"per run"}}.of(r, "memory"))
	return nil
}

type scaling struct {
	*world
	report   *report
	operator *devenv.Manager
	empty    float64 // MiB
	there    int     // runs
}

// measure adds runs up to n, looks at the operator at rest, then replaces it.
func (s *scaling) measure(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, scaleLimit)
	defer cancel()
	begin := time.Now()
	if err := s.create(ctx, fmt.Sprintf("wait-%d", n), n-s.there, waiting()); err != nil {
		return err
	}
	if err := s.settled(ctx, n); err != nil {
		return err
	}
	in := s.report.in("runs that wait", fmt.Sprintf("%d", n))
	in.add("created and let in", "/s", float64(n-s.there)/time.Since(begin).Seconds())
	s.there = n
	if err := s.rest(ctx, in, n); err != nil {
		return err
	}
	return s.restart(ctx, in, n)
}

// settled waits until all runs wait and nothing happens any more: no pass is made, and no event is
// left to write.
func (s *scaling) settled(ctx context.Context, n int) error {
	last := -1.0
	return until(ctx, func() (bool, error) {
		time.Sleep(time.Second) // between two looks
		now, err := scrape(ctx, s.operator)
		if err != nil {
			return false, err
		}
		done := now.sum("controller_runtime_reconcile_total", nil) + now.apiWrites()
		same := done == last
		last = done
		return same && int(now.sum("syncopate_runs", labels{"phase": string(v1alpha1.RunRunning)})) >= n, nil
	})
}

func (s *scaling) rest(ctx context.Context, in section, n int) error {
	before, err := scrape(ctx, s.operator)
	if err != nil {
		return err
	}
	cpu := cpuTime(s.operator.PID())
	window := restTime
	if s.options.short {
		window = 3 * time.Second
	}
	time.Sleep(window) // the measurement
	cpu = cpuTime(s.operator.PID()) - cpu
	after, err := scrape(ctx, s.operator)
	if err != nil {
		return err
	}
	now, _ := memoryOf(s.operator.PID())
	rss := in.add("RSS", "MiB", now)
	writes := in.add("API writes at rest", "", after.apiWrites()-before.apiWrites())
	in.add("API requests at rest", "", after.sum("rest_client_requests_total", nil)-before.sum("rest_client_requests_total", nil))
	const passes = "controller_runtime_reconcile_total"
	in.add("passes at rest", "/s", (after.sum(passes, nil)-before.sum(passes, nil))/window.Seconds()).atMost(0.1)
	in.add("CPU at rest", "%", 100*cpu.Seconds()/window.Seconds())
	writes.atMost(0)
	if n <= 1000 {
		rss.atMost(150)
	}
	return nil
}

// restart replaces the operator, with one run approved meanwhile.
func (s *scaling) restart(ctx context.Context, in section, n int) error {
	if err := s.stopOperators(ctx); err != nil {
		return err
	}
	key, err := s.approveOne(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if s.operator, err = s.world.operator(ctx, s.profileArgs()...); err != nil {
		return err
	}
	in.add("ready after", "s", time.Since(begin).Seconds())
	if err := until(ctx, func() (bool, error) {
		var run v1alpha1.WorkflowRun
		err := s.k8s.Get(ctx, key, &run)
		return err == nil && run.Status.Phase == v1alpha1.RunSucceeded, err
	}); err != nil {
		return err
	}
	in.add("approved run done after", "s", time.Since(begin).Seconds())
	profiled := s.profile(ctx, fmt.Sprintf("waiting-%d", n))
	if err := errors.Join(s.settled(ctx, n-1), profiled()); err != nil {
		return err
	}
	in.add("at rest after", "s", time.Since(begin).Seconds())
	now, _ := memoryOf(s.operator.PID())
	in.add("RSS after it", "MiB", now)
	in.add("per run", "KiB", (now-s.empty)*1024/float64(n))
	s.there--
	return nil
}

// approveOne approves the first run that waits.
func (s *scaling) approveOne(ctx context.Context) (key client.ObjectKey, err error) {
	runs, err := s.runs(ctx)
	if err != nil {
		return key, err
	}
	for i := range runs {
		if !runs[i].Unwritten() && runs[i].Status.Phase == v1alpha1.RunRunning {
			return client.ObjectKeyFromObject(&runs[i]), s.approve(ctx, &runs[i])
		}
	}
	return key, fmt.Errorf("%w: none waits", errWrongEnd)
}

func (s *scaling) approve(ctx context.Context, run *v1alpha1.WorkflowRun) error {
	var review authenticationv1.SelfSubjectReview
	if err := s.k8s.Create(ctx, &review); err != nil {
		return fmt.Errorf("ask who we are: %w", err)
	}
	if err := s.k8s.Create(ctx, &v1alpha1.StepApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: run.Namespace, Name: run.Name},
		Spec: v1alpha1.StepApprovalSpec{
			Run: run.Name, RunUID: string(run.UID), Step: "ask", Decision: v1alpha1.Approve, Approver: review.Status.UserInfo.Username,
		},
	}); err != nil {
		return fmt.Errorf("approve: %w", err)
	}
	return nil
}
