// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/test/hostile"
)

const (
	// neighbourPace is the time between two runs of the neighbours, for each namespace that does
	// harm beside them: so they ask for a quarter of what two cores can do beside one, and for a
	// quarter of an equal share beside seven.
	neighbourPace = 100 * time.Millisecond
	// neighbourPatience is how long after the last one was created their runs are waited for.
	neighbourPatience = 45 * time.Second
	// fairRatio is what neighbours may wait beside harm, in parts of what they wait without.
	fairRatio = 1.5
	// hotRatio is the same for a run that does much work, and no harm.
	hotRatio = 1.2
	// memoryGoal of an operator, in MiB; the shipped pod has 512.
	memoryGoal = 400
)

// hostilePlay measures neighbours with and without each kind of harm beside them, and
// with all together.
func hostilePlay(ctx context.Context, st *stage, r *report) error {
	all := hostile.Kinds()
	kinds := all
	if st.options.kinds != "" {
		wanted := strings.Split(st.options.kinds, ",")
		kinds = slices.DeleteFunc(slices.Clone(all), func(k hostile.Kind) bool { return !slices.Contains(wanted, k.Name) })
	}
	for _, k := range kinds {
		if err := st.beside(ctx, r, k.Name, k); err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
		r.note("%s: %s.", k.Name, k.About)
	}
	if hot := hostile.HotRun(); st.options.kinds == "" || slices.Contains(strings.Split(st.options.kinds, ","), hot.Name) {
		if err := st.beside(ctx, r, hot.Name, hot); err != nil {
			return fmt.Errorf("%s: %w", hot.Name, err)
		}
		r.note("%s: %s. It does no harm.", hot.Name, hot.About)
	}
	if len(kinds) > 1 || st.options.kinds == "together" {
		if err := st.beside(ctx, r, "all together", all...); err != nil {
			return fmt.Errorf("all together: %w", err)
		}
	}
	r.note("Neighbours: chains of 2 of four tenants in a namespace of their own, one each %s for each kind of harm, for %s without it, then as long beside it; from creation to the end as a watch sees it; three times as long for all together. What had not ended %s later counts so.",
		neighbourPace, st.neighbourTime(1), neighbourPatience)
	r.note("The reference is what is without harm. Of kinds that change owners it is about as many changes beside a tenant who does no harm, and of all together as many as refused-results has: neighbours feel a change, whoever is to blame.")
	r.note("One operator without leader election, and two for the moment of a change of owner. Beyond %d MiB it is killed and started again.", hostile.MemoryLimit)
	r.plot(barPlot{title: "Neighbours' p99 beside harm, in parts of the reference", y: "ratio", table: "neighbours", names: []string{"p99 ratio"}}.of(r, "ratio"))
	r.plot(barPlot{title: "The most memory of an operator", y: "MiB", table: "operator", names: []string{"most RSS"}}.of(r, "memory"))
	return nil
}

// neighbourTime is how long neighbours are measured beside so many kinds of harm. Beside several
// they create runs at a slower pace, so it takes longer to see as many.
func (s *stage) neighbourTime(kinds int) time.Duration {
	return time.Duration(s.size(20, 4)*min(kinds, 3)) * time.Second
}

// beside measures in a scene of its own: first without harm, then beside the kinds.
func (s *stage) beside(ctx context.Context, r *report, name string, kinds ...hostile.Kind) (err error) {
	if err := s.open(ctx); err != nil {
		return err
	}
	s.worlds++
	sc := &hostile.Scene{Env: s.env, Client: s.k8s, Binary: s.binary, Name: fmt.Sprintf("hostile-%d", s.worlds)}
	defer func() { err = errors.Join(err, sc.Close(ctx)) }()
	if err := hostile.Open(ctx, sc); err != nil {
		return err
	}
	n, err := sc.Neighbours(ctx, time.Duration(len(kinds))*neighbourPace)
	if n != nil {
		defer func() { err = errors.Join(err, n.Close(ctx)) }()
	}
	if err != nil {
		return err
	}
	if _, err := n.Measure(ctx, 2*time.Second, neighbourPatience); err != nil { // connections, caches
		return err
	}
	without, err := n.Measure(ctx, s.neighbourTime(len(kinds)), neighbourPatience)
	if err != nil {
		return err
	}
	reference, changes, err := s.measureCalm(ctx, sc, n, without, kinds)
	if err != nil {
		return err
	}
	with, found, err := s.measureBeside(ctx, sc, n, kinds)
	if err != nil {
		return err
	}
	progressLine(name, reference, with, sc, found)
	tellNeighbours(r, name, without, reference, with)
	r.in("neighbours", name).add("changes of owner in it", "", float64(changes.Rounds))
	found.Lost, found.Twice = append(found.Lost, changes.Lost...), append(found.Twice, changes.Twice...)
	tellOperator(r, name, sc, found, n)
	return nil
}

// measureCalm measures what kinds are compared with: what is without them, unless
// they change owners.
func (s *stage) measureCalm(ctx context.Context, sc *hostile.Scene, n *hostile.Neighbours, without hostile.Latencies, kinds []hostile.Kind) (hostile.Latencies, hostile.Finding, error) {
	for _, k := range kinds {
		if calm, changes := k.Calm(); changes {
			return s.measureBeside(ctx, sc, n, []hostile.Kind{calm})
		}
	}
	return without, hostile.Finding{}, nil
}

// measureBeside measures while all kinds are under way.
func (s *stage) measureBeside(ctx context.Context, sc *hostile.Scene, n *hostile.Neighbours, kinds []hostile.Kind) (with hostile.Latencies, found hostile.Finding, err error) {
	var attacks []*hostile.Attack
	defer func() {
		for _, a := range attacks {
			f, stopErr := a.Stop(ctx)
			found.Rounds += f.Rounds
			found.Lost, found.Twice = append(found.Lost, f.Lost...), append(found.Twice, f.Twice...)
			err = errors.Join(err, stopErr)
		}
	}()
	if attacks, err = sc.Attacks(ctx, s.options.short, kinds...); err != nil {
		return with, found, err
	}
	with, err = n.Measure(ctx, s.neighbourTime(len(kinds)), neighbourPatience)
	return with, found, err
}

func tellNeighbours(r *report, name string, without, reference, with hostile.Latencies) {
	s := r.in("neighbours", name)
	s.add("runs", "", float64(with.Runs))
	s.add("p50 without", "ms", millis(without.P50))
	s.add("p99 without", "ms", millis(without.P99))
	s.add("p99 reference", "ms", millis(reference.P99))
	s.add("p50 beside", "ms", millis(with.P50))
	s.add("p99 beside", "ms", millis(with.P99))
	s.add("p50 ratio", "", with.P50.Seconds()/reference.P50.Seconds())
	goal := fairRatio
	if name == hostile.HotRun().Name {
		goal = hotRatio
	}
	s.add("p99 ratio", "", with.P99.Seconds()/reference.P99.Seconds()).atMost(goal)
	s.add("not succeeded", "", float64(len(with.Unfinished)+len(with.Failed))).atMost(0)
}

func tellOperator(r *report, name string, sc *hostile.Scene, found hostile.Finding, n *hostile.Neighbours) {
	killed, ended := sc.Operators.Deaths()
	s := r.in("operator", name)
	s.add("most RSS", "MiB", sc.Operators.Peak()).atMost(memoryGoal)
	s.add("killed for it", "", float64(killed)).atMost(0)
	s.add("ended badly", "", float64(ended)).atMost(0)
	s.add("rounds", "", float64(found.Rounds)).atLeast(1)
	s.add("timely results lost", "", float64(len(found.Lost))).atMost(0)
	s.add("dispatched twice", "", float64(len(found.Twice)+len(n.Twice()))).atMost(0)
}
