// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/pkg/worker"
	"github.com/syncopate-dev/syncopate/test/hostile"
)

const (
	// failoverStep is how long a job takes: a run hears of its next job as often, while somebody
	// drives it. 60 runs write 30 statuses a second then, which leaves two cores time to spare:
	// where they have none, runs stand still with nobody ended.
	failoverStep = 2 * time.Second
	// failoverSteps is how many steps a run has. They last beyond every take-over.
	failoverSteps = 30
	// failoverSettle is the wait until replicas have shared the partitions, and runs are
	// on their way.
	failoverSettle = 12 * time.Second
	// failoverWatch is how long runs are watched after a replica ended.
	failoverWatch = 25 * time.Second
)

// shape is replicas of one kind, and how one of them ends.
type shape struct {
	name     string
	replicas int
	args     []string
	end      func(context.Context, *devenv.Manager) error
	p50, p99 time.Duration // goals; 0: none
}

// failover measures for how long runs stand still when a replica ends.
func failover(ctx context.Context, st *stage, r *report) error {
	kill := func(_ context.Context, m *devenv.Manager) error { return m.Kill() }
	stop := func(ctx context.Context, m *devenv.Manager) error { return m.Terminate(ctx) }
	shards, leads := []string{"--leader-elect=true", "--ownership=shards"}, []string{"--leader-elect=true", "--ownership=leader"}
	for _, s := range []shape{
		{"3 share, SIGKILL", 3, shards, kill, 8 * time.Second, 12 * time.Second},
		{"3 share, SIGTERM", 3, shards, stop, 0, time.Second},
		{"1 of 2 leads, SIGKILL", 2, leads, kill, 0, 0},
		{"1 of 2 leads, SIGTERM", 2, leads, stop, 0, 0},
	} {
		if err := s.measure(ctx, st, r); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	r.note("%d runs of %d steps one after the other; a job takes %s. One replica ends in the middle. Of each run that it drove: the time from its end to the next job in a worker's hands, the job that was under way included; and how long it stood still, which is that without the job under way.", st.size(60, 12), failoverSteps, failoverStep)
	r.note("Others: runs of other replicas; their longest time between two jobs after that end, and in as long before it.")
	return nil
}

// stint is when a job was in a worker's hands.
type stint struct{ begin, end time.Time }

// starts are the jobs of each run.
type starts struct {
	mu    sync.Mutex
	byRun map[string][]stint
}

// note notes a job that begins, and gives what to call when it ends.
func (s *starts) note(run string) (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.byRun[run])
	s.byRun[run] = append(s.byRun[run], stint{begin: time.Now()})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.byRun[run][n].end = time.Now()
	}
}

// longest is the longest time between two jobs of a run in a span, its ends included.
func (s *starts) longest(run string, from, to time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, longest := from, time.Duration(0)
	for _, job := range s.byRun[run] {
		if job.begin.Before(from) || job.begin.After(to) {
			continue
		}
		longest, last = max(longest, job.begin.Sub(last)), job.begin
	}
	return max(longest, to.Sub(last))
}

// next is the time from a moment to the next job of a run, and for how much of it no
// worker had one.
func (s *starts) next(run string, from time.Time) (gap, still time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := from
	for _, job := range s.byRun[run] {
		if job.begin.After(from) {
			return job.begin.Sub(from), job.begin.Sub(idle), true
		}
		if job.end.After(idle) {
			idle = job.end
		}
	}
	return 0, 0, false
}

func (s shape) measure(ctx context.Context, st *stage, r *report) (err error) {
	w, err := st.newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	began, err := s.begin(ctx, w)
	if err != nil {
		return err
	}
	driver, err := w.drivers(ctx)
	if err != nil {
		return err
	}
	victim := w.operators[0]
	if mostly(driver) == w.operatorName(1) { // where one leads, that one
		victim = w.operators[1]
	}
	name := w.operatorName(slices.Index(w.operators, victim))
	at := time.Now()
	if err := s.end(ctx, victim); err != nil {
		return err
	}
	took := time.Since(at)
	w.operators = slices.DeleteFunc(w.operators, func(m *devenv.Manager) bool { return m == victim })
	time.Sleep(failoverWatch)
	s.report(r, began, driver, name, at, took)
	return nil
}

// begin starts replicas and a worker, and runs that they drive.
func (s shape) begin(ctx context.Context, w *world) (*starts, error) {
	if err := hostile.ForgetOwners(ctx, w.k8s); err != nil {
		return nil, err
	}
	began := &starts{byRun: map[string][]stint{}}
	if err := w.work(ctx, topic, 4*workerConcurrency, func(ctx context.Context, job worker.Job) (any, error) {
		defer began.note(job.ID.RunUID)()
		time.Sleep(failoverStep) // the workload
		return echo(ctx, job)
	}); err != nil {
		return nil, err
	}
	for range s.replicas {
		if _, err := w.operator(ctx, s.args...); err != nil {
			return nil, err
		}
	}
	time.Sleep(failoverSettle)
	if err := w.create(ctx, "run", w.size(60, 12), chain(failoverSteps)); err != nil {
		return nil, err
	}
	time.Sleep(failoverSettle)
	return began, nil
}

// report is about a replica that ended at a moment, and of which it is known which runs it drove.
func (s shape) report(r *report, began *starts, driver map[string]string, name string, at time.Time, took time.Duration) {
	const leaving = 50 * time.Millisecond // what had left with the end itself does not count
	var gaps, stills, after, before []time.Duration
	for run, by := range driver {
		if by != name {
			after = append(after, began.longest(run, at, at.Add(failoverSettle)))
			before = append(before, began.longest(run, at.Add(-failoverSettle), at))
			continue
		}
		gap, still, ok := began.next(run, at.Add(leaving))
		if !ok {
			gap, still = failoverWatch, failoverWatch
		}
		gaps, stills = append(gaps, gap+leaving), append(stills, still)
	}
	in := r.in("runs of the replica that ended", s.name)
	in.add("runs", "", float64(len(gaps)))
	p50 := in.add("p50", "s", percentile(gaps, 50).Seconds())
	p99 := in.add("p99", "s", percentile(gaps, 99).Seconds())
	still := in.add("stood still p99", "s", percentile(stills, 99).Seconds())
	in.add("it ended within", "s", took.Seconds())
	if s.p50 > 0 {
		p50.atMost(s.p50.Seconds())
		p99.atMost(s.p99.Seconds())
	} else if s.p99 > 0 {
		still.atMost(s.p99.Seconds())
	}
	if len(after) > 0 {
		in := r.in("runs of the others", s.name)
		in.add("runs", "", float64(len(after)))
		usual := in.add("p99 before", "s", percentile(before, 99).Seconds())
		in.add("p99 after", "s", percentile(after, 99).Seconds()).atMost(2 * usual.Value)
	}
}

// drivers are the replicas that last wrote each run, by the UID of the run.
func (w *world) drivers(ctx context.Context) (map[string]string, error) {
	runs, err := w.runs(ctx)
	if err != nil {
		return nil, err
	}
	driver := map[string]string{}
	for i := range runs {
		if s := runs[i].Status; s != nil && s.Lock != nil {
			driver[string(runs[i].UID)] = s.Lock.Holder
		}
	}
	return driver, nil
}

// mostly is the replica that drives most.
func mostly(driver map[string]string) (most string) {
	count := map[string]int{}
	for _, by := range driver {
		if count[by]++; count[by] > count[most] {
			most = by
		}
	}
	return most
}
