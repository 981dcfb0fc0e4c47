// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// tracingPairs are how often a load is played without traces and with them. Which comes first
	// changes from pair to pair, so that what gets slower by itself is on neither side.
	tracingPairs = 7
	// tracingCost is the part of throughput that traces may cost.
	tracingCost = 0.05
)

// tracedTry is what one play came to.
type tracedTry struct {
	peerTry
	spans, lost float64
	collector   float64 // CPU-seconds
}

// tracing compares the operator with itself: without a collector of traces, and with one.
func tracing(ctx context.Context, st *stage, r *report) (err error) {
	if err := st.open(ctx); err != nil {
		return err
	}
	if _, err := st.policy(ctx, everyStep); err != nil {
		return err
	}
	to, err := startCollector(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.stop()) }()
	for _, l := range []load{
		{"one step", st.size(600, 30), 1, chain(1)},
		{"chain of 5", st.size(300, 10), 5, chain(5)},
	} {
		if err := st.playTraced(ctx, r, l, to); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	r.note("Each run has a trace. The load is played %d times without and with, in turn; a ratio is of two plays that follow each other, and the median of all pairs is judged.", st.size(tracingPairs, 2))
	r.note("Runs are created by %d clients while one operator works; the time is from the first creation to the last stored end. CPU time is until the last event.", writers)
	r.note("The collector is a process of its own, which reads spans and forgets them. It shares the machine's cores, so the ratio of rates has its work in it; that of the operator's CPU time has not.")
	return nil
}

// playTraced plays a load in pairs.
func (s *stage) playTraced(ctx context.Context, r *report, l load, to *collector) (err error) {
	w, err := s.newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	if err := w.work(ctx, topic, workerConcurrency, echo); err != nil {
		return err
	}
	tries := map[bool][]tracedTry{}
	for n := range s.size(tracingPairs, 2) {
		for _, traced := range []bool{n%2 == 1, n%2 == 0} {
			t, err := w.playWith(ctx, l, to, traced, fmt.Sprintf("p%d-%t", n, traced))
			if err != nil {
				return err
			}
			tries[traced] = append(tries[traced], t)
		}
	}
	l.reportTraced(r, tries)
	return nil
}

// playWith starts an operator, lets a few runs through, and measures a load.
func (w *world) playWith(ctx context.Context, l load, to *collector, traced bool, prefix string) (t tracedTry, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	var args []string
	if traced {
		args = []string{"--otlp-endpoint", to.url}
	}
	m, err := w.operator(ctx, w.profileArgs(args...)...)
	if err != nil {
		return t, err
	}
	l.spec = l.spec.DeepCopy()
	l.spec.WorkloadClass = classOf(everyStep)
	warm := load{"warm up", 8, 1, chain(1)}
	warm.spec.WorkloadClass = l.spec.WorkloadClass
	if _, err := w.created(ctx, m, warm, "warm-"+prefix); err != nil {
		return t, err
	}
	select {
	case <-ctx.Done():
		return t, context.Cause(ctx)
	case <-time.After(settled):
	}
	profiled := w.profile(ctx, l.name+" "+prefix)
	used := to.cpu()
	before, err := scrape(ctx, m)
	if err != nil {
		return t, err
	}
	if t.peerTry, err = w.created(ctx, m, l, prefix); err != nil {
		return t, err
	}
	after, err := scrape(ctx, m)
	if err != nil {
		return t, err
	}
	const name = "syncopate_trace_spans_total"
	sent := labels{"outcome": "sent"}
	t.spans = after.sum(name, sent) - before.sum(name, sent)
	t.lost = after.sum(name, nil) - before.sum(name, nil) - t.spans
	t.collector = (to.cpu() - used).Seconds()
	return t, errors.Join(profiled(), w.stopOperators(ctx), w.deleteRuns(ctx))
}

// reportTraced puts the plays of a load into the tables.
func (l load) reportTraced(r *report, tries map[bool][]tracedTry) {
	steps := float64(l.runs * l.jobs)
	of := func(traced bool, what func(tracedTry) float64) []float64 {
		var all []float64
		for _, t := range tries[traced] {
			all = append(all, what(t))
		}
		return all
	}
	ratios := func(what func(tracedTry) float64) []float64 {
		all := of(true, what)
		for i, without := range of(false, what) {
			all[i] /= without
		}
		return all
	}
	rate := func(t tracedTry) float64 { return steps / t.ended.Seconds() }
	cpu := func(t tracedTry) float64 { return t.operator / steps * 1000 }

	for _, traced := range []bool{false, true} {
		s := r.in("plays, medians", l.name+", "+map[bool]string{false: "without", true: "with"}[traced])
		s.add("steps", "", steps)
		s.add("steps/s", "", median(of(traced, rate)))
		s.add("operator", "CPU-s / 1,000 steps", median(of(traced, cpu)))
		s.add("kube-apiserver", "CPU-s / 1,000 steps", median(of(traced, func(t tracedTry) float64 { return t.server / steps * 1000 })))
		s.add("collector", "CPU-s / 1,000 steps", median(of(traced, func(t tracedTry) float64 { return t.collector / steps * 1000 })))
		s.add("spans per run", "", median(of(traced, func(t tracedTry) float64 { return t.spans / float64(l.runs) })))
		s.add("spans lost", "", slices.Max(of(traced, func(t tracedTry) float64 { return t.lost })))
	}
	s := r.in("with traces, as a part of without", l.name)
	all := ratios(rate)
	s.add("steps/s", "", median(all)).atLeast(1 - tracingCost)
	s.add("least", "", slices.Min(all))
	s.add("most", "", slices.Max(all))
	all = ratios(cpu)
	s.add("operator's CPU time", "", median(all))
	s.add("CPU least", "", slices.Min(all))
	s.add("CPU most", "", slices.Max(all))
}
