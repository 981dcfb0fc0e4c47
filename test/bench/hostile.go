// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/test/hostile"
)

const (
	// neighbourPace is the time between two runs of the neighbours, for each namespace that does
	// harm beside them: so they ask for nearly a half of what two cores can do beside one, and for
	// nearly a half of an equal share beside seven.
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
func hostilePlay(ctx context.Context, st *stage, r *report) (err error) {
	kinds, hot := st.kindsAskedFor()
	y, err := st.openYard(ctx)
	defer func() { err = errors.Join(err, y.close()) }()
	if err != nil {
		return err
	}
	for _, k := range kinds {
		if err := st.beside(ctx, r, y, k.Name, k); err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
		r.note("%s: %s.", k.Name, k.About)
	}
	for _, k := range hot {
		if err := st.beside(ctx, r, y, k.Name, k); err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
		r.note("%s: %s. It does no harm.", k.Name, k.About)
	}
	if kinds, name := st.kindsTogether(kinds); len(kinds) > 0 {
		if err := st.beside(ctx, r, y, name, kinds...); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	r.note("Neighbours: chains of 2 of four tenants in a namespace of their own, one each %s for each kind of harm, for %s without it, then as long beside it; from creation to the end as a watch sees it; for all together %s, at a slower pace. What had not ended %s later counts so.",
		neighbourPace, st.neighbourTime(1), st.neighbourTime(len(hostile.Kinds())), neighbourPatience)
	r.note("The reference is what is without harm. Of kinds that change owners it is about as many changes beside a tenant who does no harm, and of all together as many as refused-results has: neighbours feel a change, whoever is to blame.")
	r.note("Elsewhere: the same harm in another installation on the same machine, with an API server, NATS, Redis and an operator of its own. What neighbours wait then is the machine's part. Beside kinds that change owners there are the reference's changes here, too. The harm's clients are a process of their own that takes only what others leave (nice 19).")
	r.note("One operator, and two for the moment of a change of owner, which share the runs. Beyond %d MiB it is killed and started again.", hostile.MemoryLimit)
	r.plot(barPlot{title: "Neighbours' p99 beside harm, in parts of the reference, and of elsewhere", y: "ratio", table: "neighbours", names: []string{"p99 ratio", "to elsewhere"}}.of(r, "ratio"))
	r.plot(barPlot{title: "The most memory of an operator", y: "MiB", table: "operator", names: []string{"most RSS"}}.of(r, "memory"))
	return nil
}

// allTogether is the case of all kinds at once.
const allTogether = "all together"

// leastKinds: beside one kind of harm neighbours are measured for as long as beside three. Else
// they create 200 runs, whose p99 is two of them and a matter of luck.
const leastKinds = 3

// kindsAskedFor are those that do harm, and the one that does none.
func (s *stage) kindsAskedFor() (kinds, hot []hostile.Kind) {
	wanted := strings.Split(s.options.kinds, ",")
	asked := func(k hostile.Kind) bool { return s.options.kinds == "" || slices.Contains(wanted, k.Name) }
	for _, k := range append(hostile.Kinds(), hostile.LongSpecs()) {
		if asked(k) {
			kinds = append(kinds, k)
		}
	}
	if k := hostile.HotRun(); asked(k) {
		hot = append(hot, k)
	}
	return kinds, hot
}

// kindsTogether are those that are to be measured all at once, with their name: all, or those that
// were asked for; none: it was one at most.
func (s *stage) kindsTogether(asked []hostile.Kind) (kinds []hostile.Kind, name string) {
	all := hostile.Kinds()
	switch {
	case s.options.kinds == "together", len(asked) > len(all):
		return all, allTogether
	case len(asked) < 2:
		return nil, ""
	}
	return asked, strconv.Itoa(len(asked)) + " together"
}

// neighbourTime is how long neighbours are measured beside so many kinds of harm. Beside several
// they create runs at a slower pace, so it takes longer to see as many.
func (s *stage) neighbourTime(kinds int) time.Duration {
	return time.Duration(s.size(20, 4)*max(leastKinds, kinds)) * time.Second
}

// yard has the servers of another installation, on the same machine. Harm done there takes as much
// of the machine, and nothing of the installation that is measured.
type yard struct {
	env *devenv.Env
	k8s client.WithWatch
}

func (s *stage) openYard(ctx context.Context) (*yard, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.dir, "yard-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	env, k8s, err := startEnv(ctx, s.options.root, dir)
	return &yard{env, k8s}, err
}

func (y *yard) close() error {
	if y == nil || y.env == nil {
		return nil
	}
	return y.env.Stop()
}

// beside is one row of the table.
type beside struct {
	*stage
	kinds []hostile.Kind
	scene *hostile.Scene
	n     *hostile.Neighbours

	without, elsewhere, reference, with sighting
	changes, found, away                hostile.Finding
	notSucceeded                        int // neighbours' runs right after harm
}

// sighting is one measurement of the neighbours.
type sighting struct {
	hostile.Latencies
	cores   map[string]float64
	changes int // of owner, here
	times   int // how many measurements these are, where there are several
}

// phase is a measurement with its name in the tables.
type phase struct {
	name string
	sighting
}

// beside measures in a scene of its own: without harm, with the same harm in the yard, and beside
// the kinds.
func (s *stage) beside(ctx context.Context, r *report, y *yard, name string, kinds ...hostile.Kind) error {
	return s.inScene(ctx, time.Duration(len(kinds))*neighbourPace, kinds, func(b *beside) error {
		if err := b.measureAll(ctx, y); err != nil {
			return err
		}
		progressLine(name, b.reference.Latencies, b.with.Latencies, b.scene, b.found)
		b.tellNeighbours(r, name)
		b.tellOperator(r, name)
		b.tellCores(r, name)
		return nil
	})
}

// inScene opens a scene with neighbours, who run at a pace, for a measurement beside kinds.
func (s *stage) inScene(ctx context.Context, pace time.Duration, kinds []hostile.Kind, measure func(*beside) error) (err error) {
	s.worlds++
	b := &beside{stage: s, kinds: kinds, scene: &hostile.Scene{Env: s.env, Client: s.k8s, Binary: s.binary, Name: fmt.Sprintf("hostile-%d", s.worlds)}}
	defer func() { err = errors.Join(err, b.scene.Close(ctx)) }()
	if err := hostile.Open(ctx, b.scene); err != nil {
		return err
	}
	b.n, err = b.scene.Neighbours(ctx, pace)
	if b.n != nil {
		defer func() { err = errors.Join(err, b.n.Close(ctx)) }()
	}
	if err != nil {
		return err
	}
	if _, err := b.n.Measure(ctx, 2*time.Second, neighbourPatience); err != nil { // connections, caches
		return err
	}
	return measure(b)
}

func (b *beside) measureAll(ctx context.Context, y *yard) (err error) {
	if b.without, err = b.measure(ctx, noProcess, b.neighbourTime(len(b.kinds))); err != nil {
		return err
	}
	if b.elsewhere, err = b.inYard(ctx, y, hostile.Many, b.neighbourTime(len(b.kinds))); err != nil {
		return fmt.Errorf("elsewhere: %w", err)
	}
	b.reference = b.without
	if calm := b.thatChanges(); len(calm) > 0 {
		if b.reference, b.changes, err = b.measureBeside(ctx, b.neighbourTime(len(b.kinds)), b.calm(hostile.Many), calm...); err != nil {
			return err
		}
	}
	b.with, b.found, err = b.measureBeside(ctx, b.neighbourTime(len(b.kinds)), b.dose(hostile.Many), b.kinds...)
	return err
}

// thatChanges are those of the kinds that change owners, at most one.
func (b *beside) thatChanges() []hostile.Kind {
	i := slices.IndexFunc(b.kinds, func(k hostile.Kind) bool {
		_, changes := k.Calm()
		return changes
	})
	if i < 0 {
		return nil
	}
	return b.kinds[i : i+1]
}

// inYard measures for a time while the kinds are under way in the yard. Those that change owners
// change them there, so beside them there are the reference's changes here.
func (b *beside) inYard(ctx context.Context, y *yard, size hostile.Size, d time.Duration) (m sighting, err error) {
	away := &hostile.Scene{Env: y.env, Client: y.k8s, Binary: b.binary, Name: b.scene.Name}
	defer func() { err = errors.Join(err, away.Close(ctx)) }()
	if err := hostile.Open(ctx, away); err != nil {
		return m, err
	}
	harm, stop, err := b.harm(ctx, away, b.dose(size), b.kinds...)
	defer func() {
		var stopErr error
		b.away, stopErr = stop(ctx)
		err = errors.Join(err, stopErr)
	}()
	if err != nil {
		return m, err
	}
	if calm := b.thatChanges(); len(calm) > 0 {
		_, end, calmErr := b.harm(ctx, b.scene, b.calm(size), calm...)
		defer func() {
			_, stopErr := end(ctx)
			err = errors.Join(err, stopErr)
		}()
		if calmErr != nil {
			return m, calmErr
		}
	}
	return b.measure(ctx, harm, d)
}

// dose is how kinds are to be played.
func (s *stage) dose(size hostile.Size) hostile.Dose {
	if s.options.short {
		size = hostile.Few
	}
	return hostile.Dose{Size: size}
}

// calm is what kinds are compared with, of a size.
func (s *stage) calm(size hostile.Size) hostile.Dose {
	d := s.dose(size)
	d.Calm = true
	return d
}

// harm has a process do kinds in a scene. It has to be stopped, also with an error.
func (b *beside) harm(ctx context.Context, where *hostile.Scene, dose hostile.Dose, kinds ...hostile.Kind) (pid int, stop func(context.Context) (hostile.Finding, error), err error) {
	nothing := func(context.Context) (hostile.Finding, error) { return hostile.Finding{}, nil }
	self, err := os.Executable()
	if err != nil {
		return 0, nothing, fmt.Errorf("find this program: %w", err)
	}
	harm, err := where.AttackApart(ctx, exec.CommandContext(ctx, "nice", "-n", "19", self), dose, kinds...)
	if harm == nil {
		return 0, nothing, err
	}
	return harm.PID(), harm.Stop, err
}

// measureBeside measures for a time while kinds are under way beside the neighbours.
func (b *beside) measureBeside(ctx context.Context, d time.Duration, dose hostile.Dose, kinds ...hostile.Kind) (m sighting, found hostile.Finding, err error) {
	pid, stop, err := b.harm(ctx, b.scene, dose, kinds...)
	defer func() {
		var stopErr error
		found, stopErr = stop(ctx)
		err = errors.Join(err, stopErr)
	}()
	if err != nil {
		return m, found, err
	}
	m, err = b.measure(ctx, pid, d)
	return m, found, err
}

func (b *beside) measure(ctx context.Context, harm int, d time.Duration) (m sighting, err error) {
	before, started, begin := cpuUseNow(harm), b.scene.Operators.Started(), time.Now()
	if m.Latencies, err = b.n.Measure(ctx, d, neighbourPatience); err != nil {
		return m, err
	}
	m.cores, m.changes = cpuUseNow(harm).since(before, time.Since(begin)), b.scene.Operators.Started()-started
	return m, nil
}

func (b *beside) tellNeighbours(r *report, name string) {
	s := r.in("neighbours", name)
	s.add("runs", "", float64(b.with.Runs))
	s.add("p50 without", "ms", millis(b.without.P50))
	s.add("p99 without", "ms", millis(b.without.P99))
	s.add("p99 elsewhere", "ms", millis(b.elsewhere.P99))
	s.add("p99 reference", "ms", millis(b.reference.P99))
	s.add("p50 beside", "ms", millis(b.with.P50))
	s.add("p99 beside", "ms", millis(b.with.P99))
	s.add("p50 ratio", "", b.with.P50.Seconds()/b.reference.P50.Seconds())
	goal := fairRatio
	if name == hostile.HotRun().Name {
		goal = hotRatio
	}
	s.add("p99 ratio", "", b.with.P99.Seconds()/b.reference.P99.Seconds()).atMost(goal)
	s.add("to elsewhere", "", b.with.P99.Seconds()/b.elsewhere.P99.Seconds()).atMost(goal)
	s.add("not succeeded", "", float64(len(b.with.Unfinished)+len(b.with.Failed))).atMost(0)
	s = r.in("changes of owner", name)
	s.add("elsewhere", "", float64(b.elsewhere.changes))
	s.add("reference", "", float64(b.reference.changes))
	s.add("beside", "", float64(b.with.changes))
	tellStages(r, name, phase{"elsewhere", b.elsewhere}, phase{"reference", b.reference}, phase{"beside", b.with})
}

func tellStages(r *report, name string, phases ...phase) {
	s := r.in("p99 by stage", name)
	for _, p := range phases {
		s.add("create "+p.name, "ms", millis(p.Stages.Create))
		s.add("first "+p.name, "ms", millis(p.Stages.First))
		s.add("next "+p.name, "ms", millis(p.Stages.Next))
		s.add("end "+p.name, "ms", millis(p.Stages.End))
	}
}

func (b *beside) tellOperator(r *report, name string) {
	killed, ended := b.scene.Operators.Deaths()
	s := r.in("operator", name)
	s.add("most RSS", "MiB", b.scene.Operators.Peak()).atMost(memoryGoal)
	s.add("killed for it", "", float64(killed)).atMost(0)
	s.add("ended badly", "", float64(ended)).atMost(0)
	s.add("rounds", "", float64(b.found.Rounds)).atLeast(1)
	all := b.found.With(b.changes).With(b.away)
	s.add("timely results lost", "", float64(len(all.Lost))).atMost(0)
	s.add("dispatched twice", "", float64(len(all.Twice)+len(b.n.Twice()))).atMost(0)
}

// tellCores says who used the processors beside the harm.
func (b *beside) tellCores(r *report, name string) {
	b.tellCoresOf(r, name, phase{"without", b.without}, phase{"elsewhere", b.elsewhere}, phase{"beside", b.with})
}

func (b *beside) tellCoresOf(r *report, name string, phases ...phase) {
	s := r.in("cores in use", name)
	for _, p := range phases {
		sum := 0.0
		for _, v := range p.cores {
			sum += v
		}
		s.add(p.name, "", sum)
	}
	for _, part := range parts {
		s.add(part, "", b.with.cores[part])
	}
}
