// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	// loadLimit bounds one load.
	loadLimit = 5 * time.Minute
	// workerConcurrency is how many jobs are with the worker at a time.
	workerConcurrency = 64
)

var errWrongEnd = errors.New("a run did not end as it should")

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// throughput runs loads that exist before the operator begins, and compares with C.
func throughput(ctx context.Context, st *stage, r *report) error {
	thousand, err := fanOut(st.size(1000, 100), 1000)
	if err != nil {
		return err
	}
	five, err := fanOut(5, 5)
	if err != nil {
		return err
	}
	for _, l := range []struct {
		load
		goals func(m *measured)
	}{
		{load{"single step", st.size(1000, 60), 1, chain(1)}, func(m *measured) {
			m.runsToC.atLeast(0.3)
			m.writes.atMost(2)
		}},
		{load{"chain of 5", st.size(300, 20), 5, chain(5)}, func(m *measured) {
			m.stepsToC.atLeast(0.5)
			m.writes.atMost(6)
		}},
		{load{"1 x 1,000", 1, st.size(1000, 100), thousand}, func(m *measured) {
			m.stepsToC.atLeast(1.2)
			m.writes.atMost(60)
		}},
		{load{"200 x 5", st.size(200, 20), 5, five}, func(m *measured) { m.stepsToC.atLeast(0.7) }},
	} {
		m, err := st.drive(ctx, r, l.load)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		l.goals(m)
		m.cpu.atMost(0.8)
	}
	r.note("C: status updates a second on the same objects by %d writers, without an operator; the mean of before and after. All processes share the machine's cores.", writers)
	r.note("A plain client's writes: the CPU time of as many status writes as the operator made, by the client that measures C.")
	r.note("Time runs from the first dispatch to the end of the last step, by the operator's stamps. A job does nothing; up to %d are with the worker at a time.", workerConcurrency)
	r.plot(barPlot{
		title: "Steps a second, as a share of plain status writes a second (C)", y: "steps/s / C", table: "beside C", names: []string{"steps/s / C"},
	}.of(r, "ratio"))
	r.plot(barPlot{
		title: "CPU time of each process for 1,000 steps", y: "CPU-seconds", table: "CPU-seconds per 1,000 steps",
		names: []string{"operator", "kube-apiserver", "etcd", "redis-server", "workers and NATS"}, stacked: true,
	}.of(r, "cpu"))
	return nil
}

// measured are the figures of a load that have goals.
type measured struct{ runsToC, stepsToC, writes, cpu *figure }

// drive measures one load: C, the load, C again.
func (s *stage) drive(ctx context.Context, r *report, l load) (m *measured, err error) {
	w, err := s.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	ceilingTime := time.Duration(s.size(4000, 500)) * time.Millisecond
	before, err := w.ceiling(ctx, l.spec, ceilingTime)
	if err != nil {
		return nil, err
	}
	if err := w.prepare(ctx, echo); err != nil {
		return nil, err
	}
	p, err := w.run(ctx, l)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(w.stopOperators(ctx), w.deleteRuns(ctx)); err != nil {
		return nil, err
	}
	after, err := w.ceiling(ctx, l.spec, ceilingTime)
	if err != nil {
		return nil, err
	}
	return p.report(r, l, before, after), nil
}

// prepare starts the workers and lets a few runs through, so that streams and consumers are there
// and everything has been used once.
func (w *world) prepare(ctx context.Context, h worker.Handler) error {
	bounded, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	if err := w.work(ctx, topic, workerConcurrency, h); err != nil {
		return err
	}
	m, err := w.operator(bounded)
	if err != nil {
		return err
	}
	warm := load{"warm up", 8, 1, chain(1)}
	before := w.executed.Load() // the first may be done before the last is created
	if err := w.create(bounded, "warm", warm.runs, warm.spec); err != nil {
		return err
	}
	if err := w.awaitAll(bounded, m, warm, before); err != nil {
		return err
	}
	return errors.Join(w.stopOperators(ctx), w.deleteRuns(ctx))
}

// passage is what was measured of a load.
type passage struct {
	took          time.Duration
	before, after metrics
	cpu           map[string]time.Duration
	rss, most     float64
}

// run creates the runs while an operator stands by, lets it lead, and waits for the last run.
func (w *world) run(ctx context.Context, l load) (*passage, error) {
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	if err := w.create(ctx, "run", l.runs, l.spec); err != nil {
		return nil, err
	}
	release, err := w.hold(ctx)
	if err != nil {
		return nil, err
	}
	m, err := w.operator(ctx, w.profileArgs("--leader-elect=true", "--ownership=leader")...)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	p := &passage{cpu: map[string]time.Duration{}}
	if p.before, err = scrape(ctx, m); err != nil {
		return nil, errors.Join(err, release())
	}
	pids := w.pids(m)
	p.addCPU(pids, -1)
	profiled := w.profile(ctx, l.name)
	before := w.executed.Load()
	if err := release(); err != nil {
		return nil, err
	}
	if err := w.awaitAll(ctx, m, l, before); err != nil {
		return nil, err
	}
	p.addCPU(pids, 1)
	if err := profiled(); err != nil {
		return nil, err
	}
	if p.after, err = scrape(ctx, m); err != nil {
		return nil, err
	}
	p.rss, p.most = memoryOf(m.PID())
	runs, err := w.runs(ctx)
	if err != nil {
		return nil, err
	}
	begin, end := span(runs)
	p.took = end.Sub(begin)
	return p, allIn(runs, v1alpha1.RunSucceeded)
}

func (w *world) pids(m *devenv.Manager) map[string]int {
	pids := childrenOf(os.Getpid())
	return map[string]int{
		"operator": m.PID(), "kube-apiserver": pids["kube-apiserver"], "etcd": pids["etcd"], "redis-server": pids["redis-server"],
		"workers and NATS": os.Getpid(),
	}
}

func (p *passage) addCPU(pids map[string]int, sign time.Duration) {
	for name, pid := range pids {
		p.cpu[name] += sign * cpuTime(pid)
	}
}

// awaitAll waits until all jobs were done, beyond those before, then until the operator's cache has
// all runs as succeeded. Metrics are not read before: that would cost the operator CPU time
// which is measured.
func (w *world) awaitAll(ctx context.Context, m *devenv.Manager, l load, before int64) error {
	bar := progress(l.name, l.runs*l.jobs)
	err := until(ctx, func() (bool, error) {
		done := int(w.executed.Load() - before)
		_ = bar.Set(min(done, l.runs*l.jobs)) // to stderr
		if done < l.runs*l.jobs {
			return false, nil
		}
		now, err := scrape(ctx, m)
		if err != nil {
			return false, err
		}
		return int(now.sum("syncopate_runs", labels{"phase": string(v1alpha1.RunSucceeded)})) >= l.runs, nil
	})
	return errors.Join(err, bar.Finish())
}

// report puts what was measured into the tables.
func (p *passage) report(r *report, l load, before, after plainWrites) *measured {
	c := (before.perSecond + after.perSecond) / 2
	seconds, runs, steps := p.took.Seconds(), float64(l.runs), float64(l.runs*l.jobs)
	add := func(name string, where labels) float64 { return p.after.sum(name, where) - p.before.sum(name, where) }
	accepted := labels{"outcome": "accepted"}
	m := &measured{}

	s := r.in("beside C", l.name)
	s.add("runs", "", runs)
	s.add("steps", "", steps)
	s.add("took", "s", seconds)
	s.add("runs/s", "", runs/seconds)
	s.add("steps/s", "", steps/seconds)
	s.add("C before", "/s", before.perSecond)
	s.add("C after", "/s", after.perSecond)
	m.runsToC = s.add("runs/s / C", "", runs/seconds/c)
	m.stepsToC = s.add("steps/s / C", "", steps/seconds/c)

	s = r.in("what a run costs", l.name)
	writes := add("syncopate_status_writes_total", accepted)
	m.writes = s.add("status writes per run", "", writes/runs)
	s.add("refused per run", "", (add("syncopate_status_writes_total", labels{"outcome": "refused"})+add("syncopate_status_writes_total", labels{"outcome": "outdated"}))/runs)
	s.add("other API writes per run", "", (p.after.apiWrites()-p.before.apiWrites()-add("syncopate_status_writes_total", nil))/runs)
	s.add("lock takes per run", "", add("syncopate_run_lock_acquisitions_total", labels{"outcome": "acquired"})/runs)
	s.add("results per write", "", between(p.before, p.after, "syncopate_results_per_write", nil).mean())
	s.add("RSS", "MiB", p.rss)
	s.add("most RSS", "MiB", p.most)

	s = r.in("CPU-seconds per 1,000 steps", l.name)
	for _, name := range []string{"operator", "kube-apiserver", "etcd", "redis-server", "workers and NATS"} {
		f := s.add(name, "", p.cpu[name].Seconds()/steps*1000)
		if name == "operator" {
			m.cpu = f
		}
	}
	s.add("a plain client's writes", "", (before.clientCPU+after.clientCPU).Seconds()/2*writes/steps*1000)
	return m
}
