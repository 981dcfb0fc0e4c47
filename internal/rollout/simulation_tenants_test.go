// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

const simulatedHours = 10 // of each rollout of tenant-minutes

// hotel is the tenants of a policy: of very unequal load, each with storms of its own that last for
// minutes, in which more starts are busy again and wait longer.
type hotel struct {
	rnd   *rand.Rand
	storm []bool
}

// admissionScenario is a rollout of tenant-minutes.
type admissionScenario struct {
	name      string
	tenants   int
	busy      float64 // of contended minutes of the baseline, outside storms
	candidate behaviour
	never     Arm // the lock of this arm is never busy: it has none
	plan      Plan
	off       [2]float64 // of the busy minutes of the baseline, and of the candidate, are put off
}

// minute plays one of a tenant, and counts its vote. The first tenant has some 300 starts a minute,
// the tenth one 10.
func (h *hotel) minute(c *Counts, s admissionScenario, tenant int, b behaviour, off float64, locked bool) {
	if h.storm[tenant] = h.rnd.Float64() < map[bool]float64{true: 0.8, false: 0.05}[h.storm[tenant]]; h.storm[tenant] {
		s.busy = min(1, s.busy*1.5)
	}
	load := 300 * math.Pow(float64(tenant+1), -1.5)
	starts := load * math.Exp(h.rnd.NormFloat64()-0.5) // some minutes have none
	if starts < 1 {
		return
	}
	wait, contended := time.Duration(0), locked && h.rnd.Float64() < 1-math.Exp(-starts/30)
	if contended {
		c.Contended++
		tries := 1.0
		if h.rnd.Float64() < s.busy*b.busy {
			c.Busy++
			for tries = 2; h.rnd.Float64() < 0.6; tries++ { // who lost a race loses the next ones, too
			}
		}
		wait = time.Duration(tries * b.tail * (0.7 + 0.6*h.rnd.Float64()) * float64(10*time.Millisecond))
		if tries > 1 && off > 0 && h.rnd.Float64() < off {
			wait = 2 * Bounds[len(Bounds)-1] // as ballot.PutOff
		}
	}
	c.Runs++
	c.Ended++
	c.Waits.Add(wait)
}

// play simulates a rollout that is judged after each minute.
func (s admissionScenario) play(seed uint64) (state State, tally Tally) {
	h := &hotel{rnd: rand.New(rand.NewPCG(simulationSeed, seed)), storm: make([]bool, s.tenants)}
	spec := Revision{Hash: fmt.Sprintf("%08x", seed), Generation: 2}
	state = State{Phase: Stable, Baseline: Revision{Hash: "old", Generation: 1}}
	for period := range int64(simulatedHours * 60) {
		state, _ = Decide(Input{Plan: s.plan, Spec: spec, Unit: TenantMinute, State: state, Tally: tally, Now: BeginOf(period)})
		if !state.Active() {
			break
		}
		for tenant := range s.tenants {
			arm := ArmOf(NameOf(fmt.Sprint("tenant-", tenant), period), state.Candidate.Name(), state.Percent)
			locked := s.never == Rest || arm != s.never && (arm != Rest || s.never == Canary)
			switch arm {
			case Canary:
				h.minute(&tally.Canary, s, tenant, s.candidate, s.off[1], locked)
			case Control:
				h.minute(&tally.Control, s, tenant, same, s.off[0], locked)
			case Rest:
				rest := &Counts{}
				h.minute(rest, s, tenant, same, s.off[0], locked)
				tally.Rest += rest.Runs
			}
		}
	}
	return state, tally
}

// repeat plays a scenario with many seeds, and gives its row.
func (s admissionScenario) repeat(times int) (row string, rolledBack, promoted int, voted int64) {
	states, tallies := make([]State, times), make([]Tally, times)
	var group sync.WaitGroup
	for part := range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := part; i < times; i += runtime.GOMAXPROCS(0) {
				states[i], tallies[i] = s.play(uint64(i))
			}
		})
	}
	group.Wait()
	var minutes, busy []int64
	for i, state := range states {
		switch {
		case state.Phase == Promoted:
			promoted++
		case state.Phase == RolledBack && state.Reason != ReasonInsufficientData:
			rolledBack++
			minutes = append(minutes, tallies[i].Canary.Ended+tallies[i].Control.Ended)
			busy = append(busy, tallies[i].Canary.Busy+tallies[i].Control.Busy)
		}
	}
	percent := func(n int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(times)) }
	found := " | "
	if voted = median(minutes); rolledBack*2 > times {
		found = fmt.Sprintf("%d | %d", median(busy), voted)
	}
	return fmt.Sprintf("| %s | %d | %.0f %% | %s | %s | %s | %s |", s.name, s.tenants, 100*s.busy,
		percent(rolledBack), percent(promoted), percent(times-rolledBack-promoted), found), rolledBack, promoted, voted
}

// admissionScenarios are the rows of the table.
func admissionScenarios() []admissionScenario {
	steps := Plan{
		Canary: true, StepsPercent: []int{20, 50}, MinContendedRuns: 40, MaxStep: simulatedHours * time.Hour, Hold: true,
		BusyRunsPercent: 120, WaitTailPercent: 150, LatencyPercent: 120,
	}
	watched := steps // never has enough to go on, so it is judged until the end
	watched.StepsPercent, watched.MinContendedRuns = []int{50}, simulatedHours*60*20
	tails := watched // thresholds need less
	tails.MinContendedRuns = 200
	times := func(busy float64) behaviour { return behaviour{busy, 1, 1, 1} }
	none := [2]float64{}
	return []admissionScenario{
		{"no difference, steps 20, 50", 10, usualBusy, same, Rest, steps, none},
		{"no difference, steps 20, 50", 10, 0.1, same, Rest, steps, none},
		{"no difference, half of the minutes, judged each minute", 10, usualBusy, same, Rest, watched, none},
		{"no difference, half of the minutes, judged each minute", 2, usualBusy, same, Rest, watched, none},
		{"no difference in waits, either, half of the minutes", 10, usualBusy, same, Rest, tails, none},
		{"busy x 2, steps 20, 50", 10, usualBusy, times(2), Rest, steps, none},
		{"busy x 2, half of the minutes", 10, usualBusy, times(2), Rest, watched, none},
		{"busy x 2, half of the minutes", 2, usualBusy, times(2), Rest, watched, none},
		{"busy x 3, half of the minutes", 10, usualBusy, times(3), Rest, watched, none},
		{"busy x 3, half of the minutes", 10, 0.1, times(3), Rest, watched, none},
		{"waits x 3, half of the minutes", 10, usualBusy, behaviour{1, 3, 1, 1}, Rest, tails, none},
		{"a tenth put off -> half put off, half of the minutes", 10, 0.9, same, Rest, tails, [2]float64{0.18, 0.9}},
		{"a tenth put off, no difference, steps 20, 50", 10, 0.9, same, Rest, steps, [2]float64{0.18, 0.18}},
		{"seven in ten put off -> nearly all, half of the minutes", 2, 1, same, Rest, tails, [2]float64{0.7, 1}},
		{"seven in ten put off, no difference, half of the minutes", 2, 1, same, Rest, tails, [2]float64{0.7, 0.7}},
		{"Lock -> Atomic, steps 20, 50", 10, usualBusy, same, Canary, steps, none},
		{"Atomic -> Lock, steps 20, 50", 10, usualBusy, same, Control, steps, none},
	}
}

// The same as of runs, for tenant-minutes: tenants of very unequal load, of which the storms of one
// last for minutes, so that its minutes depend on each other.
//
// mutation: a coin that is thrown for the tenant only, so that each is in one arm for good, and
// evidence of contended minutes in both arms make this fail.
func TestRolloutsOfAdmissionBySimulation(t *testing.T) {
	norace.Only(t)
	times := 100
	if *update {
		times = 1000
	}
	var rows []string
	for _, s := range admissionScenarios() {
		row, rolledBack, promoted, voted := s.repeat(times)
		rows = append(rows, row)
		t.Log(row)
		same := s.candidate == same && s.off[0] == s.off[1]
		switch {
		case same && s.never != Control && rolledBack*100 > times:
			t.Errorf("%s: %d of %d are rolled back; 1 %% is borne", s.name, rolledBack, times)
		case s.never == Canary && promoted*100 < times*95:
			t.Errorf("%s: %d of %d are promoted", s.name, promoted, times)
		case s.never == Control && promoted > 0:
			t.Errorf("%s: %d of %d are promoted", s.name, promoted, times)
		case !same && s.plan.StepsPercent[0] == 50 && rolledBack*100 < times*95:
			t.Errorf("%s: only %d of %d were found", s.name, rolledBack, times)
		case s.plan.StepsPercent[0] == 50 && s.busy == usualBusy && voted > map[float64]int64{2: 400, 3: 150}[s.candidate.busy] && s.candidate.busy > 1:
			t.Errorf("%s: found after %d tenant-minutes", s.name, voted)
		}
	}
	if *update {
		const head = "| rollouts | tenants | busy | rolled back | promoted | neither | busy minutes | tenant-minutes |\n|---|---|---|---|---|---|---|---|\n"
		writeTable(t, "tenants", fmt.Sprintf("%d rollouts a row, %d hours each, seed %d.", times, simulatedHours, simulationSeed), head, rows)
	}
}
