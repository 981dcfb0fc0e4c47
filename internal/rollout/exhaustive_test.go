// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

// world is a node of the exploration: what is stored, what spec says, and what was counted.
type world struct {
	state State
	spec  Revision
	plan  int // index of plans
	tally Tally
	now   time.Duration // since epoch
	last  Command       // not yet decided on
	edits int64
}

// plans are a good one, one that holds, one with its steps out of order, one without a minimum,
// Immediate, one with other steps, and one whose only step is below theirs.
func plans() []Plan {
	good := aPlan()
	good.StepsPercent, good.MinContendedRuns = []int{20, 50}, 2
	hold, disordered, unfounded, immediate, others, lowered := good, good, good, good, good, good
	hold.Hold = true
	disordered.StepsPercent = []int{50, 20}
	unfounded.MinContendedRuns = 0
	immediate.Canary = false
	others.StepsPercent = []int{5, 50}
	lowered.StepsPercent = []int{5}
	return []Plan{good, hold, disordered, unfounded, immediate, others, lowered}
}

// moves are all that can happen between two decisions.
func moves() map[string]func(world) world {
	m := map[string]func(world) world{
		"nothing":                 func(w world) world { return w },
		"an hour":                 func(w world) world { w.now += time.Hour; return w },
		"another replica's clock": func(w world) world { w.now -= 2 * time.Hour; return w },
		"promote":                 func(w world) world { w.last = Promote; return w },
		"abort":                   func(w world) world { w.last = Abort; return w },
		"counts back":             func(w world) world { w.tally.Canary.Ended--; w.tally.Canary.Waits[8]--; return w },
	}
	for _, hash := range []string{"a", "b", "c"} {
		m["edit to "+hash] = func(w world) world {
			w.edits++
			w.spec = Revision{Hash: hash, Generation: w.edits}
			return w
		}
	}
	for i := range plans() {
		m[fmt.Sprint("plan ", i)] = func(w world) world { w.plan = i; return w }
	}
	for name, more := range map[string]Tally{
		"good runs":  {Canary: arm(3, 1), Control: arm(3, 1), Rest: 6},
		"bad runs":   {Canary: arm(30, 30), Control: arm(30, 0), Rest: 60},
		"lost runs":  {Canary: arm(1, 0), Control: arm(60, 0), Rest: 60},
		"a fence":    {Canary: Counts{Runs: 1, Ended: 1, FenceRefused: 1}, Control: Counts{Runs: 1, Ended: 1}, Rest: 3},
		"spared":     {Canary: spared(12, 0, 0), Control: spared(12, 12, 3), Rest: 24},
		"runs begin": {Canary: Counts{Runs: 5}, Control: Counts{Runs: 5}, Rest: 10},
		"only rest":  {Rest: 2},
		"no control": {Canary: arm(2, 0), Rest: 2},
	} {
		m[name] = func(w world) world {
			if w.state.Active() {
				w.tally = w.tally.Plus(more)
			}
			return w
		}
	}
	return m
}

// decide makes a move and the decision after it, and says what rule was broken.
func (w world) decide(move func(world) world) (next world, broken string) {
	w = move(w)
	in := Input{Plan: plans()[w.plan], Spec: w.spec, Unit: unitOf(w.spec), State: w.state, Tally: w.tally, Command: w.last, Now: epoch.Add(w.now)}
	s, _ := Decide(in)
	broken = violation(in, s)
	if !s.Candidate.Is(w.state.Candidate) || s.Candidate.Generation != w.state.Candidate.Generation || !s.Active() {
		w.tally = Tally{} // counts are kept by candidate
		if s.Active() {
			s.Seen = Tally{}
		}
	}
	w.state, w.last = s, NoCommand
	return w, broken
}

// unitOf has one of the three contents tried on tenant-minutes.
func unitOf(r Revision) Unit {
	if r.Hash == "c" {
		return TenantMinute
	}
	return Run
}

// violation is the rule that a decision breaks; empty: none.
func violation(in Input, s State) string {
	before := in.State
	moved := !before.Baseline.Zero() && s.Baseline != before.Baseline
	switch {
	case moved && in.Plan.Canary && in.Command != Promote && !evidence(in):
		return "promoted without evidence"
	case moved && in.Plan.Canary && in.Command != Promote && before.Percent > in.Plan.StepsPercent[len(in.Plan.StepsPercent)-1]:
		return "promoted beyond the last step of the plan"
	case moved && !s.Baseline.Is(in.Spec):
		return "promoted what nobody wants"
	case s.Active() && (!s.Candidate.Is(in.Spec) || s.Candidate.Is(s.Baseline)):
		return "tries another candidate than that of spec"
	case s.Active() && s.Unit != in.Unit:
		return "tried on another unit"
	case !s.Active() && s.Percent != 0:
		return "a canary without a candidate"
	case s.Percent > before.Percent && before.Percent > 0 && s.Candidate == before.Candidate && !evidence(in):
		return "a step without evidence"
	case before.Phase == RolledBack && s.Active() && s.Candidate == before.Candidate:
		return "a candidate that was rolled back is tried again"
	case s.Percent > maxPercent:
		return "no room for a control"
	case s.Percent > 0 && (s.First == 0 || s.First > s.Percent):
		return "the percentage at the begin is forgotten"
	case s.Phase == Holding && !in.Plan.Hold && in.Plan.Fault() == "" && in.Now.Sub(s.Since) >= in.Plan.MaxStep:
		return "holds what its plan does not hold"
	}
	return ""
}

// evidence is the least that a pass needs, told apart from judge on purpose.
func evidence(in Input) bool {
	c, o := in.Tally.Canary, in.Tally.Control
	b := in.State.Begin
	least := in.Plan.MinContendedRuns
	contended := c.Contended-b.Canary.Contended >= least
	spared := c.Ended-b.Canary.Ended >= least && (in.Unit == TenantMinute || (c.Contended+max(0, c.Runs-c.Ended))*4 < o.Contended*3)
	return in.Plan.Fault() == "" && (contended || spared) && o.Contended-b.Control.Contended >= least &&
		c.Busy <= 3+o.Busy*2 && c.FenceRefused == 0 && c.Ended >= in.State.Seen.Canary.Ended && in.Command != Abort
}

// All that can happen, in any order, up to a depth: no promotion without evidence, never two
// candidates at once.
//
// mutation: a Pass without lacking, an advance that promotes beyond the last step of the plan,
// counts that are not compared with those seen, and an edit that keeps the percentage make this
// fail.
func TestEveryOrderOfEvents(t *testing.T) {
	norace.Only(t)
	start := world{spec: Revision{Hash: "a", Generation: 1}, edits: 1}
	seen, level := map[world]bool{start: true}, []world{start}
	all := moves()
	reached := map[Phase]int{}
	for range 6 {
		var next []world
		for _, w := range level {
			for name, move := range all {
				to, broken := w.decide(move)
				if broken != "" {
					t.Fatalf("%s: %s\nfrom %+v\nto   %+v", name, broken, w, to.state)
				}
				if to.state.Message = ""; !seen[to] {
					seen[to] = true
					next = append(next, to)
					reached[to.state.Phase]++
				}
			}
		}
		level = next
	}
	t.Logf("%d states: %v", len(seen), reached)
	for _, phase := range []Phase{Stable, Progressing, Promoted, RolledBack, Holding} {
		if reached[phase] == 0 {
			t.Errorf("%s was never reached", phase)
		}
	}
}
