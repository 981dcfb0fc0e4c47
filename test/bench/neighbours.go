// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/test/hostile"
)

const (
	// quietPace is the time between two runs of the neighbours beside one run of a kind, and beside
	// one of each: so they ask for a quarter of what two cores can do.
	quietPace = 200 * time.Millisecond
	// quietTurns is how often neighbours are measured without and beside, in turn: what changes on
	// the machine meanwhile changes both.
	quietTurns = 2
	// lull is how long neighbours run after harm before they are measured without it: what the harm
	// has left is being cleared away, and belongs to neither.
	lull = 10 * time.Second
)

// neighboursPlay measures neighbours while one run of each kind is under way, by itself and all
// kinds together.
func neighboursPlay(ctx context.Context, st *stage, r *report) error {
	if err := st.open(ctx); err != nil {
		return err
	}
	kinds, hot := st.kindsAskedFor()
	for _, k := range slices.Concat(kinds, hot) {
		if err := st.besideOne(ctx, r, k.Name, k); err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
		r.note("%s: %s.", k.Name, k.About)
	}
	if kinds, name := st.kindsTogether(kinds); len(kinds) > 0 {
		if err := st.besideOne(ctx, r, name, kinds...); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	r.note("One run of the kind is under way at a time, as large as it may be, and when it ends the next; of all together one of each. The sentences above tell what kinds are, also where they name many.")
	r.note("Neighbours: chains of 2 of four tenants in a namespace of their own, one each %s, at a random moment of it; from creation to the end as a watch sees it. They are measured for %s without harm, %s beside it, %s without, %s later, and all that %d times. What had not ended %s after the last one counts so.",
		quietPace, st.quietTime()/2, st.quietTime(), st.quietTime()/2, lull, quietTurns, neighbourPatience)
	r.note("The reference is what is without harm. Of kinds that change owners, and of all together, it is changes of owner beside a tenant who does no harm, as many or some more, for as long: neighbours feel a change, whoever is to blame.")
	r.note("Elsewhere: the same harm for %s, in the middle, in another installation on the same machine, with an API server, NATS, Redis and an operator of its own, which are there for that time only. What neighbours wait then is the machine's part.", st.quietTime())
	r.note("The harm's clients are a process of their own that takes only what others leave (nice 19). One operator, and two for the moment of a change of owner, which share the runs.")
	r.plot(barPlot{title: "Neighbours' p99 beside one run of a kind, in parts of the reference, and of elsewhere", y: "ratio", table: "neighbours", names: []string{"p99 ratio", "to elsewhere"}}.of(r, "ratio"))
	return nil
}

// quietTime is how long neighbours are measured in one turn.
func (s *stage) quietTime() time.Duration { return time.Duration(s.size(45, 4)) * time.Second }

// besideOne measures in a scene of its own.
func (s *stage) besideOne(ctx context.Context, r *report, name string, kinds ...hostile.Kind) error {
	return s.inScene(ctx, quietPace, kinds, func(b *beside) error {
		for i := range quietTurns {
			if i == quietTurns/2 {
				if err := b.awhileElsewhere(ctx); err != nil {
					return fmt.Errorf("elsewhere: %w", err)
				}
			}
			if err := b.turn(ctx); err != nil {
				return err
			}
		}
		if len(b.thatChanges()) == 0 {
			b.reference = b.without
		}
		progressLine(name, b.reference.Latencies, b.with.Latencies, b.scene, b.found)
		b.tellQuiet(r, name)
		b.tellOperator(r, name)
		b.tellCoresOf(r, name, phase{"without", b.without}, phase{"reference", b.reference}, phase{"elsewhere", b.elsewhere}, phase{"beside", b.with})
		return nil
	})
}

// awhileElsewhere measures in the middle of all turns, for as long as one of them, while the kinds
// are under way in a yard. Its servers are there for that time only.
func (b *beside) awhileElsewhere(ctx context.Context) (err error) {
	y, err := b.openYard(ctx)
	defer func() { err = errors.Join(err, y.close()) }()
	if err != nil {
		return err
	}
	b.elsewhere, err = b.inYard(ctx, y, hostile.One, b.quietTime())
	return err
}

// turn measures without harm, beside it, and without it again.
func (b *beside) turn(ctx context.Context) error {
	half := b.quietTime() / 2
	before, err := b.measure(ctx, noProcess, half)
	if err != nil {
		return err
	}
	b.without = b.without.with(before)
	if calm := b.thatChanges(); len(calm) > 0 {
		m, found, err := b.measureBeside(ctx, b.quietTime(), b.calm(hostile.One), calm...)
		if err != nil {
			return err
		}
		b.reference, b.changes = b.reference.with(m), b.changes.With(found)
	}
	m, found, err := b.measureBeside(ctx, b.quietTime(), b.dose(hostile.One), b.kinds...)
	if err != nil {
		return err
	}
	b.with, b.found = b.with.with(m), b.found.With(found)
	rest, err := b.n.Measure(ctx, min(lull, b.quietTime()), neighbourPatience)
	if err != nil {
		return err
	}
	b.notSucceeded += len(rest.Unfinished) + len(rest.Failed) // they count, their times do not
	after, err := b.measure(ctx, noProcess, half)
	b.without = b.without.with(after)
	return err
}

// with adds another measurement of the same.
func (m sighting) with(other sighting) sighting {
	sum := sighting{Latencies: m.With(other.Latencies), cores: map[string]float64{}, changes: m.changes + other.changes, times: m.times + 1}
	for part, cores := range other.cores {
		sum.cores[part] = (m.cores[part]*float64(m.times) + cores) / float64(sum.times)
	}
	return sum
}

func (b *beside) tellQuiet(r *report, name string) {
	goal := fairRatio
	if name == hostile.HotRun().Name {
		goal = hotRatio
	}
	s := r.in("neighbours", name)
	s.add("runs", "", float64(b.with.Runs))
	s.add("p50 without", "ms", millis(b.without.P50))
	s.add("p99 without", "ms", millis(b.without.P99))
	s.add("p99 reference", "ms", millis(b.reference.P99))
	s.add("p99 elsewhere", "ms", millis(b.elsewhere.P99))
	s.add("p50 beside", "ms", millis(b.with.P50))
	s.add("p99 beside", "ms", millis(b.with.P99))
	s.add("p50 ratio", "", b.with.P50.Seconds()/b.reference.P50.Seconds())
	s.add("p99 ratio", "", b.with.P99.Seconds()/b.reference.P99.Seconds()).atMost(goal)
	s.add("to elsewhere", "", b.with.P99.Seconds()/b.elsewhere.P99.Seconds()).atMost(goal)
	s.add("not succeeded", "", float64(b.notSucceeded+len(b.with.Unfinished)+len(b.with.Failed))).atMost(0)
	s = r.in("changes of owner", name)
	s.add("reference", "", float64(b.reference.changes))
	s.add("elsewhere", "", float64(b.elsewhere.changes))
	s.add("beside", "", float64(b.with.changes))
	tellStages(r, name, phase{"reference", b.reference}, phase{"elsewhere", b.elsewhere}, phase{"beside", b.with})
}
