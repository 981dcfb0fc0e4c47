// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"testing"
	"time"
)

// putOff is an arm of tenant-minutes, half of them contended, of which some were put off.
func putOff(voted, busy, off int64) Counts {
	c := Counts{Runs: voted, Ended: voted, Contended: voted / 2, Busy: busy}
	c.Waits[0], c.Waits[9], c.Waits[len(Bounds)] = voted/2, voted/2-off, off
	return c
}

// hung is an arm of runs of which all were contended, and some waited for more than a minute, or
// for their result.
func hung(runs, waits, latencies int64) Counts {
	c := Counts{Runs: runs, Ended: runs, Contended: runs, Busy: runs / 10}
	c.Waits[8], c.Waits[len(Bounds)] = runs-waits, waits
	c.Latencies[9], c.Latencies[len(Bounds)] = runs-latencies, latencies
	return c
}

// Where one in twenty values of the control is above all bounds, those of the canary that are are
// still more. A threshold of before that nothing can exceed is set anew.
//
// mutation: a threshold in the last bucket makes all of this fail; one that is kept because it is
// set, or votes of before that count, the rows of a stored one.
func TestAControlWhoseTailIsAboveAllBounds(t *testing.T) {
	last := len(Bounds)
	minutes := Tally{Canary: putOff(100, 45, 8), Control: putOff(100, 45, 8)}
	later := Tally{Canary: putOff(500, 245, 208), Control: putOff(500, 225, 40)}
	alike := Tally{Canary: putOff(500, 225, 40), Control: putOff(500, 225, 40)}
	runs := Tally{Canary: hung(100, 10, 10), Control: hung(100, 10, 10)}
	of := func(u Unit, early Tally) State {
		s := progressing(50)
		s.Unit = u
		return s.observe(aPlan(), early)
	}
	stored := func(seen Tally) State {
		s := of(TenantMinute, seen)
		s.Wait = Threshold{Set: true, Bucket: last, Canary: Vote{0, 50}, Control: Vote{0, 50}}
		return s
	}
	for name, test := range map[string]struct {
		state  State
		tally  Tally
		phase  Phase
		reason Reason
		says   string
	}{
		"more are put off":           {of(TenantMinute, minutes), later, RolledBack, ReasonWaitTailWorse, "200 of 400 tenant-minutes of the canary waited longer for the lock than 1m0s, or were put off, and 32 of 400 of the control"},
		"no more are":                {of(TenantMinute, minutes), alike, Promoted, ReasonAllStepsPassed, ""},
		"more runs wait":             {of(Run, runs), Tally{Canary: hung(500, 250, 50), Control: hung(500, 50, 50)}, RolledBack, ReasonWaitTailWorse, "240 of 400 runs of the canary waited longer for the lock than 1m0s, and 40 of 400 of the control"},
		"more results are late":      {of(Run, runs), Tally{Canary: hung(500, 50, 250), Control: hung(500, 50, 50)}, RolledBack, ReasonLatencyWorse, "240 of 400 runs of the canary had a result latency above 1m0s, and 40 of 400 of the control"},
		"a stored one is set anew":   {stored(minutes), later, Progressing, ReasonCanaryRuns, "40 of each are needed"},
		"and then more are put off":  {stored(minutes).observe(aPlan(), minutes), later, RolledBack, ReasonWaitTailWorse, "200 of 400"},
		"and then they are not more": {stored(minutes).observe(aPlan(), minutes), alike, Promoted, ReasonAllStepsPassed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := Decide(Input{Plan: aPlan(), Spec: newRev, Unit: test.state.Unit, State: test.state, Tally: test.tally, Now: epoch.Add(time.Minute)})
			if got.Phase != test.phase || got.Reason != test.reason || !strings.Contains(got.Message, test.says) {
				t.Errorf("%s, %s (%s); want %s, %s (%s)", got.Phase, got.Reason, got.Message, test.phase, test.reason, test.says)
			}
		})
	}
}

// Where most of the control vote yes there is no room for half as many again. There those that do
// not are compared. A wide guardrail means what it says: beside it the others say nothing.
//
// mutation: beyond that compares the yes alone, or the others whatever part of the canary votes
// yes, or takes each one more for beyond, and a guardrail that is off and asks all the same make
// this fail.
func TestAControlThatMostlyVotesYes(t *testing.T) {
	minutes := func(off int64) (State, Tally) {
		s := progressing(50)
		s.Unit = TenantMinute
		before := putOffOf(100, 70)
		s = s.observe(aPlan(), Tally{Canary: before, Control: before})
		return s, Tally{Canary: before.Plus(putOffOf(10000, off)), Control: before.Plus(putOffOf(10000, 7000))}
	}
	all, allOff := minutes(10000)
	few, fewOff := minutes(7400)
	runs := progressing(50).with(Tally{Canary: arm(50, 45), Control: arm(50, 45)})
	alike := hung(100, 1, 1)
	late := func(canary, control int64) Tally {
		return Tally{Canary: alike.Plus(hung(500, 5, canary)), Control: alike.Plus(hung(500, 5, control))}
	}
	results := progressing(50).with(Tally{Canary: alike, Control: alike})
	for name, test := range map[string]struct {
		state   State
		tally   Tally
		percent int64 // of each guardrail; 0: the defaults
		phase   Phase
		reason  Reason
	}{
		"all are put off":                   {all, allOff, 0, RolledBack, ReasonWaitTailWorse},
		"a few more are, for certain":       {few, fewOff, 0, Promoted, ReasonAllStepsPassed},
		"all runs are busy":                 {runs, Tally{Canary: arm(900, 900), Control: arm(900, 780)}, 0, RolledBack, ReasonBusyRunsWorse},
		"a few more of them are":            {runs, Tally{Canary: arm(9000, 7800), Control: arm(9000, 7600)}, 0, Promoted, ReasonAllStepsPassed},
		"all of both are":                   {runs, Tally{Canary: arm(900, 900), Control: arm(900, 900)}, 0, Promoted, ReasonAllStepsPassed},
		"more of the control are":           {runs, Tally{Canary: arm(900, 780), Control: arm(900, 900)}, 0, Promoted, ReasonAllStepsPassed},
		"twice as many are borne: of 70 %":  {all, allOff, 200, RolledBack, ReasonWaitTailWorse},
		"likewise, all runs beside 30 %":    {runs, Tally{Canary: arm(500, 500), Control: arm(500, 150)}, 200, RolledBack, ReasonBusyRunsWorse},
		"five times as many: of 70 %":       {all, allOff, 500, Promoted, ReasonAllStepsPassed},
		"likewise, of 30 % of the runs":     {runs, Tally{Canary: arm(500, 480), Control: arm(500, 150)}, 500, Promoted, ReasonAllStepsPassed},
		"likewise, of 10 %":                 {runs, Tally{Canary: arm(500, 480), Control: arm(500, 50)}, 500, RolledBack, ReasonBusyRunsWorse},
		"ten times as many":                 {runs, Tally{Canary: arm(500, 480), Control: arm(500, 150)}, 1000, Promoted, ReasonAllStepsPassed},
		"twenty times as many: of 6 %":      {results, late(498, 30), 2000, Promoted, ReasonAllStepsPassed},
		"likewise, of 1 %":                  {results, late(498, 5), 2000, RolledBack, ReasonLatencyWorse},
		"all but off: none of the control":  {results, late(498, 0), 9999, RolledBack, ReasonLatencyWorse},
		"off: hardly any of the control is": {results, late(498, 20), 10000, Promoted, ReasonAllStepsPassed},
		"off: none of the control is":       {results, late(498, 0), 10000, Promoted, ReasonAllStepsPassed},
		"off, and no result is known":       {progressing(50), Tally{Canary: arm(400, 360), Control: fewResults(400, 1)}, 10000, Promoted, ReasonAllStepsPassed},
		"not off, and no result is known":   {progressing(50), Tally{Canary: arm(400, 1), Control: fewResults(400, 1)}, 9999, Progressing, ReasonCanaryRuns},
	} {
		t.Run(name, func(t *testing.T) {
			plan := aPlan()
			if p := test.percent; p > 0 {
				plan.BusyRunsPercent, plan.WaitTailPercent, plan.LatencyPercent = p, p, p
			}
			got, _ := Decide(Input{Plan: plan, Spec: newRev, Unit: test.state.Unit, State: test.state, Tally: test.tally, Now: epoch.Add(time.Minute)})
			if got.Phase != test.phase || got.Reason != test.reason {
				t.Errorf("%s, %s (%s); want %s, %s", got.Phase, got.Reason, got.Message, test.phase, test.reason)
			}
		})
	}
}

// Votes that are missing are taken for yes of the control. That takes accusations away, and makes
// none: with each guardrail, a canary that is not beyond it beside some votes is not beside more.
//
// mutation: beyond that compares the others from a share of the control on makes this fail.
func TestMoreYesOfTheControlAccuseNobody(t *testing.T) {
	for _, percent := range []int64{100, 120, 150, 180, 200, 240, 250, 500, 2000, Off - 1} {
		for canary := range int64(101) {
			accused := true
			for yes := range int64(101) {
				q := question{canary: Vote{canary, 100}, control: Vote{yes, 100}, borne: percent}
				if q.beyond() && !accused {
					t.Errorf("%d percent: %d of 100 are beyond %d, and not beyond fewer", percent, canary, yes)
				}
				accused = q.beyond()
			}
		}
	}
}

// fewResults is an arm of contended runs, of which few had a result.
func fewResults(runs, busy int64) Counts {
	c := arm(runs, busy)
	c.Latencies = Histogram{9: 5}
	return c
}

// putOffOf is an arm of tenant-minutes that were all contended and busy, of which some
// were put off.
func putOffOf(voted, off int64) Counts {
	c := Counts{Runs: voted, Ended: voted, Contended: voted, Busy: voted}
	c.Waits[9], c.Waits[len(Bounds)] = voted-off, off
	return c
}

// A p95 between the last two bounds, and one above both, have the same threshold: its name is true
// of both.
//
// mutation: a last bound that is called the control's p95 makes this fail.
func TestTheLastBoundIsNamed(t *testing.T) {
	for bucket, want := range map[int]string{lastBound - 1: "the control's p95", lastBound: "1m0s", lastBound + 1: "1m0s"} {
		var waits Histogram
		waits[bucket] = 100
		s := progressing(50).with(Tally{Canary: Counts{Runs: 100, Ended: 100, Contended: 100, Waits: waits}, Control: Counts{Runs: 100, Ended: 100, Contended: 100, Waits: waits}})
		if got := s.Wait.name(); got != want {
			t.Errorf("bucket %d: %q; want %q", bucket, got, want)
		}
	}
}
