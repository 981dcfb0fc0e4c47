// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Modes of checkpoints, as LockPolicies name them.
const (
	everyStep = "EveryStep"
	coalesced = "Coalesced"
)

// maxRepetitions bounds -repetitions.
const maxRepetitions = 20

var errNoMode = errors.New("no such mode of checkpoints: need " + everyStep + " or " + coalesced)

// peerLoad is a load of the suite, and its goals by mode.
type peerLoad struct {
	load
	ofSteps bool // judged by steps, not by runs
	goals   map[string]peerGoals
}

// peerGoals are the goals of a load; 0: none.
type peerGoals struct{ toC, writes, cpu float64 }

func peerLoads(st *stage) ([]peerLoad, error) {
	wide, err := fanOut(300, 300)
	if err != nil {
		return nil, err
	}
	return []peerLoad{
		{load{"A one step", st.size(1000, 40), 1, chain(1)}, false, map[string]peerGoals{coalesced: {0.33, 3, 1.5}}},
		{load{"B chain of 5", st.size(300, 20), 5, chain(5)}, true, map[string]peerGoals{coalesced: {0.75, 4, 0.8}}},
		{load{"B chain of 20", st.size(50, 5), 20, chain(20)}, true, map[string]peerGoals{coalesced: {1.5, 0, 0}}},
		{load{"C fan-out 300", st.size(10, 2), 300, wide}, true, map[string]peerGoals{everyStep: {3.7, 0, 0}, coalesced: {3.7, 0, 0}}},
	}, nil
}

// peerTry is what one repetition of a load in a mode came to.
type peerTry struct {
	c      float64 // plain status patches a second, before and after
	ended  time.Duration
	silent time.Duration // until the last event
	status, events, others,
	operator, server, etcd float64 // CPU-seconds
}

// peerShape plays the loads of benchmarks of other engines: runs are created while the operator
// works, and the clock runs from the first creation to the last end that is stored.
func peerShape(ctx context.Context, st *stage, r *report) error {
	loads, err := peerLoads(st)
	if err != nil {
		return err
	}
	modes, err := st.modes(ctx, r)
	if err != nil {
		return err
	}
	tries := map[string][]peerTry{}
	for n := range st.options.repetitions {
		for _, l := range loads {
			if err := st.playPeer(ctx, l, modes, tries); err != nil {
				return fmt.Errorf("%s, repetition %d: %w", l.name, n+1, err)
			}
		}
	}
	for _, l := range loads {
		for _, mode := range modes {
			l.report(r, mode, tries[l.name+", "+mode])
		}
	}
	r.note("Runs are created by %d clients while one operator works. The time is from the first creation to the last end as a watch has it; events are awaited, and what they cost is counted.", writers)
	r.note("The operator has worked for %s before, as one does: it knows by then that no other has driven the runs of the load.", settled)
	r.note("C: status patches a second on the same objects by %d clients, without an operator; the mean of before and after. Values are medians of %d repetitions; least and most are of the ratio that is judged.", writers, st.options.repetitions)
	r.note("API writes are those that the API server counted, without the creation by the client.")
	r.plot(barPlot{
		title: "Created to ended, as a share of plain status patches a second (C)", y: "a second / C", table: "created to ended", names: []string{"judged / C"},
	}.of(r, "ratio"))
	return nil
}

// modes are the modes of checkpoints that are measured: those that were asked for, as far as the
// API has them.
func (s *stage) modes(ctx context.Context, r *report) ([]string, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	var modes []string
	for mode := range strings.SplitSeq(s.options.modes, ",") {
		if mode != everyStep && mode != coalesced {
			return nil, fmt.Errorf("%w, not %q", errNoMode, mode)
		}
		known, err := s.policy(ctx, mode)
		if err != nil {
			return nil, err
		}
		if mode == coalesced && !known {
			r.note("This version has no checkpoint mode %s.", mode)
			continue
		}
		modes = append(modes, mode)
	}
	return modes, nil
}

// classOf is the workload class of the runs of a mode.
func classOf(mode string) string { return "bench-" + strings.ToLower(mode) }

// policy makes the LockPolicy of a mode, and says whether the API has modes.
func (s *stage) policy(ctx context.Context, mode string) (known bool, err error) {
	p := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"workloadClasses": []any{classOf(mode)}, "checkpoint": map[string]any{"mode": mode},
	}}}
	p.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("LockPolicy"))
	p.SetName(classOf(mode))
	if err := s.k8s.Create(ctx, p); err != nil {
		return false, fmt.Errorf("create the policy of %s: %w", mode, err)
	}
	stored, _, err := unstructured.NestedString(p.Object, "spec", "checkpoint", "mode")
	return stored == mode, err
}

// playPeer measures one load once, in each mode, between two measurements of C.
func (s *stage) playPeer(ctx context.Context, l peerLoad, modes []string, tries map[string][]peerTry) (err error) {
	w, err := s.newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	ceilingTime := time.Duration(s.size(4000, 500)) * time.Millisecond
	before, err := w.plain(ctx, l.spec, ceilingTime, w.patchStatus)
	if err != nil {
		return err
	}
	if err := w.work(ctx, topic, workerConcurrency, echo); err != nil {
		return err
	}
	var played []peerTry
	for _, mode := range modes {
		t, err := w.playMode(ctx, l.load, mode)
		if err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
		played = append(played, t)
	}
	after, err := w.plain(ctx, l.spec, ceilingTime, w.patchStatus)
	if err != nil {
		return err
	}
	for i, mode := range modes {
		played[i].c = (before.perSecond + after.perSecond) / 2
		tries[l.name+", "+mode] = append(tries[l.name+", "+mode], played[i])
	}
	return nil
}

// settled is how long an operator drives runs before it is measured: longer than the 10 s after
// which it knows that no other process has worked on the runs that are created (ADR 45).
const settled = 11 * time.Second

// playMode starts an operator, lets a few runs through, and measures a load.
func (w *world) playMode(ctx context.Context, l load, mode string) (t peerTry, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	m, err := w.operator(ctx, w.profileArgs()...)
	if err != nil {
		return t, err
	}
	l.spec = l.spec.DeepCopy()
	l.spec.WorkloadClass = classOf(mode)
	warm := load{"warm up", 8, 1, chain(1)}
	warm.spec.WorkloadClass = l.spec.WorkloadClass
	if _, err := w.created(ctx, m, warm, "warm-"+strings.ToLower(mode)); err != nil {
		return t, err
	}
	select {
	case <-ctx.Done():
		return t, context.Cause(ctx)
	case <-time.After(settled):
	}
	profiled := w.profile(ctx, l.name+" "+mode)
	if t, err = w.created(ctx, m, l, strings.ToLower(mode)); err != nil {
		return t, err
	}
	return t, errors.Join(profiled(), w.stopOperators(ctx), w.deleteRuns(ctx))
}

// report puts the repetitions of a load in a mode into the tables.
func (l peerLoad) report(r *report, mode string, tries []peerTry) {
	name, runs, steps := l.name+", "+mode, float64(l.runs), float64(l.runs*l.jobs)
	count := runs
	if l.ofSteps {
		count = steps
	}
	ratios := each(tries, func(t peerTry) float64 { return count / t.ended.Seconds() / t.c })
	took := median(each(tries, func(t peerTry) float64 { return t.ended.Seconds() }))
	goals := l.goals[mode]

	s := r.in("created to ended", name)
	s.add("runs", "", runs)
	s.add("steps", "", steps)
	s.add("took", "s", took)
	s.add("runs/s", "", runs/took)
	s.add("steps/s", "", steps/took)
	s.add("C", "/s", median(each(tries, func(t peerTry) float64 { return t.c })))
	toC := s.add("judged / C", "", median(ratios))
	s.add("least", "", slices.Min(ratios))
	s.add("most", "", slices.Max(ratios))
	s.add("events over", "s", median(each(tries, func(t peerTry) float64 { return t.silent.Seconds() })))

	s = r.in("API writes per run", name)
	s.add("status", "", median(each(tries, func(t peerTry) float64 { return t.status / runs })))
	s.add("events", "", median(each(tries, func(t peerTry) float64 { return t.events / runs })))
	s.add("others", "", median(each(tries, func(t peerTry) float64 { return t.others / runs })))
	writes := s.add("all", "", median(each(tries, func(t peerTry) float64 { return (t.status + t.events + t.others) / runs })))

	s = r.in("CPU-seconds until the last event, per 1,000 runs (A) or steps", name)
	cpu := s.add("operator", "", median(each(tries, func(t peerTry) float64 { return t.operator / count * 1000 })))
	s.add("kube-apiserver", "", median(each(tries, func(t peerTry) float64 { return t.server / count * 1000 })))
	s.add("etcd", "", median(each(tries, func(t peerTry) float64 { return t.etcd / count * 1000 })))

	if goals.toC > 0 {
		toC.atLeast(goals.toC)
	}
	if goals.writes > 0 {
		writes.atMost(goals.writes)
	}
	if goals.cpu > 0 {
		cpu.atMost(goals.cpu)
	}
}

// each is a figure of each repetition.
func each(tries []peerTry, of func(peerTry) float64) []float64 {
	all := make([]float64, len(tries))
	for i, t := range tries {
		all[i] = of(t)
	}
	return all
}

// median is the middle one, or the lower one of the two in the middle.
func median(all []float64) float64 { return percentile(slices.Clone(all), 50) }
