// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	// jobTime is how long a job takes. Less than the pause after a write (10 ms) would
	// measure that pause.
	jobTime     = 40 * time.Millisecond
	chainLength = 5
)

// stages are the parts of the way from a result to the next job, in order.
func stages() []string { return []string{"consume and decide", "lock", "write", "publish", "deliver"} }

// latency measures the way from a result to the next job, with one run at a time and at half of
// what the machine can do.
func latency(ctx context.Context, st *stage, r *report) (err error) {
	w, err := st.newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	write, err := w.oneByOne(ctx, chain(chainLength), st.size(200, 30))
	if err != nil {
		return err
	}
	var takes atomic.Int64 // of a job, in nanoseconds
	if err := w.prepare(ctx, func(ctx context.Context, job worker.Job) (any, error) {
		time.Sleep(time.Duration(takes.Load())) // the workload
		return echo(ctx, job)
	}); err != nil {
		return err
	}
	capacity, err := w.capacity(ctx)
	if err != nil {
		return err
	}
	l := &latencies{world: w, report: r, write: write}
	if l.operator, err = w.operator(ctx, w.profileArgs()...); err != nil {
		return err
	}
	takes.Store(int64(jobTime))
	if err := l.measure(ctx, "at rest", func() error { return w.oneAfterAnother(ctx, st.size(60, 5)) }); err != nil {
		return err
	}
	rate := capacity / 2 / chainLength
	profiled := w.profile(ctx, "latency")
	if err := l.measure(ctx, "half load", func() error { return w.openLoop(ctx, rate, time.Duration(st.size(20, 3))*time.Second) }); err != nil {
		return err
	}
	r.note("Half load: %s new chains of %d a second; saturated the machine does %s steps/s. A job takes %s. The status write is by one client that does nothing else.", number(rate), chainLength, number(capacity), jobTime)
	r.note("From the moment when NATS tells of a result to the moment when it tells that the next job's worker started; both are seen by the same subscriber.")
	r.note("Stages are means. write: the API server's own time; lock: the operator's histogram; consume and decide: the rest until a watch has the status; publish and deliver: until NATS tells of the job, and of its worker.")
	r.plot(barPlot{title: "Result to next job, by stage", y: "ms, mean", table: "stages (mean)", names: stages(), stacked: true}.of(r, "stages"))
	r.plot(linePlot{title: "Result to next job", x: "ms", y: "share of jobs that came within", series: l.lines}.of("distribution"))
	return profiled()
}

// capacity is how many steps of chains a second are done when there are many at once.
func (w *world) capacity(ctx context.Context) (float64, error) {
	l := load{"saturated", w.size(100, 10), chainLength, chain(chainLength)}
	p, err := w.run(ctx, l)
	if err != nil {
		return 0, err
	}
	return float64(l.runs*l.jobs) / p.took.Seconds(), errors.Join(w.stopOperators(ctx), w.deleteRuns(ctx))
}

// oneAfterAnother runs chains, one at a time.
func (w *world) oneAfterAnother(ctx context.Context, n int) error {
	bar := progress("at rest", n)
	for i := range n {
		before := w.executed.Load()
		if err := w.createOne(ctx, fmt.Sprintf("rest-%03d", i), chain(chainLength)); err != nil {
			return err
		}
		if err := until(ctx, func() (bool, error) { return w.executed.Load()-before >= chainLength, nil }); err != nil {
			return err
		}
		_ = bar.Add(1) // to stderr
	}
	return bar.Finish()
}

// openLoop creates chains at a rate, whatever becomes of them, and waits for the last one.
func (w *world) openLoop(ctx context.Context, perSecond float64, d time.Duration) error {
	n := max(1, int(perSecond*d.Seconds()))
	bar := progress("half load", n)
	tick := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer tick.Stop()
	before := w.executed.Load()
	created := make(chan error, n)
	for i := range n {
		<-tick.C
		go func() { created <- w.createOne(ctx, fmt.Sprintf("half-%05d", i), chain(chainLength)) }()
		_ = bar.Add(1) // to stderr
	}
	var errs []error
	for range n {
		errs = append(errs, <-created)
	}
	if err := errors.Join(append(errs, bar.Finish())...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	return until(ctx, func() (bool, error) { return w.executed.Load()-before >= int64(n*chainLength), nil })
}

// latencies are measured with one operator.
type latencies struct {
	*world
	report   *report
	operator *devenv.Manager
	write    float64 // one plain status write, in milliseconds
	lines    []series
}

// measure listens while a load runs, and reports what it heard.
func (l *latencies) measure(ctx context.Context, name string, run func() error) error {
	t, err := l.listen(ctx)
	if err != nil {
		return err
	}
	before, err := l.look(ctx)
	if err != nil {
		return errors.Join(err, t.close())
	}
	if err := run(); err != nil {
		return errors.Join(err, t.close())
	}
	after, err := l.look(ctx)
	if err := errors.Join(err, t.close()); err != nil {
		return err
	}
	l.tell(name, t.gaps(), before, after)
	return nil
}

// sight is what operator and API server say of themselves at a moment.
type sight struct{ operator, server metrics }

func (l *latencies) look(ctx context.Context) (sight, error) {
	m, err := scrape(ctx, l.operator)
	if err != nil {
		return sight{}, err
	}
	server, err := scrapeServer(ctx, l.env.Config)
	return sight{m, server}, err
}

func (l *latencies) tell(name string, gaps []gap, before, after sight) {
	all := make([]float64, 0, len(gaps))
	var written, published, delivered float64
	for _, g := range gaps {
		all = append(all, millis(g.started.Sub(g.result)))
		written += millis(g.written.Sub(g.result))
		published += millis(g.job.Sub(g.written))
		delivered += millis(g.started.Sub(g.job))
	}
	n := float64(max(1, len(gaps)))
	s := l.report.in("result to next job", name)
	s.add("jobs", "", float64(len(gaps)))
	p50 := percentile(all, 50)
	s.add("p50", "ms", p50)
	s.add("p95", "ms", percentile(all, 95))
	s.add("p99", "ms", percentile(all, 99))
	s.add("one status write", "ms", l.write)
	if ratio := s.add("p50 / status write", "", p50/l.write); name == "at rest" {
		ratio.atMost(2)
	}
	lock := 1000 * between(before.operator, after.operator, "syncopate_run_lock_wait_seconds", labels{"outcome": "acquired"}).sum / n
	write := 1000 * between(before.server, after.server, "apiserver_request_duration_seconds",
		labels{"resource": "workflowruns", "subresource": "status", "verb": "PUT"}).mean()
	s = l.report.in("stages (mean)", name)
	for i, v := range []float64{max(0, written/n-lock-write), lock, write, published / n, delivered / n} {
		s.add(stages()[i], "ms", v)
	}
	s.add("together", "ms", (written+published+delivered)/n)
	points := make(plotter.XYs, len(all))
	for i, v := range all {
		points[i] = plotter.XY{X: v, Y: float64(i+1) / float64(len(all))}
	}
	l.lines = append(l.lines, series{name: name, points: points})
}

// stepName is that of a chain's i-th step, from 0.
func stepName(i int) string { return chain(i + 1).Steps[i].Name }
