// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"testing"
	"time"
)

// begun is an arm of which so many runs began, and those of c ended.
func begun(runs int64, c Counts) Counts {
	c.Runs = runs
	return c
}

// spared is an arm whose runs all ended, of which few were contended.
func spared(ended, contended, busy int64) Counts {
	c := Counts{Runs: ended, Ended: ended, Contended: contended, Busy: busy}
	c.Waits[0], c.Waits[8], c.Latencies[9] = ended-contended, contended, ended
	return c
}

// Runs that end sooner under the candidate are no fault of it; runs that end later, or never, are.
//
// mutation: a ratio of ended runs that fails on both sides, votes that leave out the runs of the
// control which are late, and a pass that does not wait for them make this fail.
func TestArmsWhoseRunsEndAtDifferentTimes(t *testing.T) {
	frozen := Tally{Canary: spared(50, 30, 5), Control: spared(50, 0, 0)}
	tests := map[string]struct {
		state  State
		tally  Tally
		phase  Phase
		reason Reason
		says   string
	}{
		"no run of the control ended":               {progressing(50), Tally{Canary: begun(20, arm(18, 3)), Control: begun(20, Counts{})}, Progressing, ReasonCanaryRuns, "18 runs of the canary ended, and 0 of the control"},
		"few of the control did":                    {progressing(50), Tally{Canary: begun(80, arm(60, 8)), Control: begun(80, arm(15, 2))}, Progressing, ReasonCanaryRuns, "60 runs of the canary ended, and 15 of the control"},
		"as many as are needed, and they are late":  {progressing(50).with(Tally{Canary: arm(50, 5), Control: arm(40, 4)}), Tally{Canary: begun(200, arm(190, 20)), Control: begun(200, arm(90, 10))}, Progressing, ReasonCanaryRuns, "The control's runs have not ended yet"},
		"those of the control that waited are late": {progressing(50).with(frozen), Tally{Canary: begun(104, spared(100, 60, 10)), Control: begun(104, spared(60, 0, 0))}, Progressing, ReasonCanaryRuns, ""},
		"those of the canary that waited are late":  {progressing(50).with(frozen), Tally{Canary: begun(144, spared(100, 60, 10)), Control: begun(144, spared(100, 0, 0))}, RolledBack, ReasonWaitTailWorse, "60 of 100"},
		"few of the canary ended":                   {progressing(50), Tally{Canary: begun(80, arm(15, 2)), Control: begun(80, arm(60, 10))}, RolledBack, ReasonSampleRatioMismatch, "Fewer runs of the canary ended than of the control: 15 of the canary, and 60 of the control"},
		"few of the canary began":                   {progressing(50), Tally{Canary: arm(40, 0), Control: arm(100, 0)}, RolledBack, ReasonSampleRatioMismatch, "40 of the canary, and 100 of the control"},
		"few of the control began":                  {progressing(50), Tally{Canary: arm(100, 0), Control: arm(40, 0)}, RolledBack, ReasonSampleRatioMismatch, "100 of the canary, and 40 of the control"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.state.Wait.Canary, test.state.Wait.Control = Vote{}, Vote{}
			got, _ := Decide(Input{Plan: aPlan(), Spec: newRev, State: test.state, Tally: test.tally, Now: epoch.Add(time.Minute)})
			if got.Phase != test.phase || got.Reason != test.reason || !strings.Contains(got.Message, test.says) {
				t.Errorf("%s, %s (%s); want %s, %s (%s)", got.Phase, got.Reason, got.Message, test.phase, test.reason, test.says)
			}
		})
	}
}

// Contended runs that wait longer under the candidate end later: among those that ended it only
// looks as if it had fewer of them.
//
// mutation: questions that compare the contended runs that ended alone, and questions that count
// all runs of the canary under way as contended, or each that is one more than the control has,
// make this fail.
func TestContendedRunsThatEndLater(t *testing.T) {
	early := Tally{Canary: begun(60, spared(50, 0, 0)), Control: begun(60, spared(50, 15, 2))}
	tests := map[string]struct {
		tally  Tally
		phase  Phase
		reason Reason
	}{
		"they are under way, and more are busy": {Tally{begun(260, spared(200, 45, 22)), begun(260, spared(240, 85, 10)), 780}, RolledBack, ReasonBusyRunsWorse},
		"as many of the control are under way":  {Tally{begun(600, spared(200, 12, 12)), begun(600, spared(200, 85, 20)), 1800}, Progressing, ReasonCanaryRuns},
		"a few more than of the control are":    {Tally{begun(520, spared(200, 12, 12)), begun(490, spared(200, 45, 15)), 1500}, Progressing, ReasonCanaryRuns},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, _ := Decide(Input{Plan: aPlan(), Spec: newRev, State: progressing(20).with(early), Tally: test.tally, Now: epoch.Add(time.Minute)})
			if got.Phase != test.phase || got.Reason != test.reason {
				t.Errorf("%s, %s (%s); want %s, %s", got.Phase, got.Reason, got.Message, test.phase, test.reason)
			}
		})
	}
}

// A candidate under which hardly a run finds its lock busy passes by that, and by nothing else.
//
// mutation: evidence that needs contended runs of the canary, runs under way that count as not
// contended, and busy runs as a part of the contended make this fail.
func TestACandidateThatRemovesContention(t *testing.T) {
	before := Tally{Canary: spared(50, 2, 1), Control: spared(50, 30, 9)}
	control := spared(100, 60, 18)
	change := func(c Counts, change func(*Counts)) Counts { change(&c); return c }
	tests := map[string]struct {
		state   State
		tally   Tally
		phase   Phase
		percent int
		reason  Reason
	}{
		"hardly a run is contended":           {progressing(20).with(before), Tally{spared(100, 4, 4), control, 300}, Progressing, 50, ReasonCanaryRuns},
		"none is":                             {progressing(20).with(before), Tally{spared(100, 2, 1), control, 300}, Progressing, 50, ReasonCanaryRuns},
		"they may be among those under way":   {progressing(20).with(before), Tally{begun(160, spared(100, 4, 2)), begun(160, spared(130, 78, 23)), 480}, Progressing, 20, ReasonCanaryRuns},
		"hardly more than the control":        {progressing(20).with(before), Tally{spared(100, 30, 9), spared(100, 45, 13), 300}, Progressing, 20, ReasonCanaryRuns},
		"the control has too few":             {progressing(20).with(before), Tally{spared(100, 4, 2), spared(100, 38, 10), 300}, Progressing, 20, ReasonCanaryRuns},
		"too few ended in this step":          {func() State { s := progressing(20).with(before); s.Begin = Tally{Canary: spared(70, 2, 1)}; return s }(), Tally{spared(100, 4, 2), control, 300}, Progressing, 20, ReasonCanaryRuns},
		"more of all runs are busy":           {progressing(20).with(before), Tally{spared(300, 39, 39), spared(300, 180, 18), 900}, Progressing, 20, ReasonCanaryRuns},
		"far more of all runs are busy":       {progressing(20).with(before), Tally{spared(300, 39, 39), spared(300, 180, 9), 900}, RolledBack, 0, ReasonBusyRunsWorse},
		"results are late, though no lock is": {progressing(20).with(before), Tally{change(spared(100, 4, 2), func(c *Counts) { c.Latencies[9], c.Latencies[12] = 60, 40 }), control, 300}, RolledBack, 0, ReasonLatencyWorse},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, _ := Decide(Input{Plan: aPlan(), Spec: newRev, State: test.state, Tally: test.tally, Now: epoch.Add(time.Minute)})
			if got.Phase != test.phase || got.Percent != test.percent || got.Reason != test.reason {
				t.Errorf("%s at %d percent, %s (%s); want %s at %d, %s", got.Phase, got.Percent, got.Reason, got.Message, test.phase, test.percent, test.reason)
			}
		})
	}
}

// Of runs that ended lately those may have no vote yet which counts lack; the others voted. What
// counts lack beyond them was deleted.
//
// mutation: runs that ended lately and are left out, or count though counts lack none, or make up
// for those of the other arm, make this fail.
func TestVotesThatAreOnTheirWay(t *testing.T) {
	busier := Tally{Canary: begun(200, arm(198, 20)), Control: begun(200, arm(190, 3)), Rest: 600}
	busier.Canary.Contended, busier.Control.Contended = 25, 15
	alike := busier
	alike.Canary = begun(208, alike.Canary)
	more := alike
	more.Canary.Contended, more.Canary.Busy = 60, 40
	gone := Tally{Canary: begun(160, spared(100, 4, 2)), Control: begun(160, spared(130, 78, 23)), Rest: 480}
	for name, test := range map[string]struct {
		tally    Tally
		underWay UnderWay
		phase    Phase
		percent  int
	}{
		"it is not known what is under way":        {busier, UnderWay{}, Progressing, 20},
		"as many of both arms ended lately":        {busier, UnderWay{Known: true, EndedCanary: 90, EndedControl: 90}, Progressing, 20},
		"as many of both are under way":            {alike, UnderWay{Known: true, Canary: 10, Control: 10}, RolledBack, 0},
		"as many of both, and they ended lately":   {alike, UnderWay{Known: true, EndedCanary: 90, EndedControl: 90}, Progressing, 20},
		"likewise, and far more are busy":          {more, UnderWay{Known: true, EndedCanary: 90, EndedControl: 90}, RolledBack, 0},
		"as many of both were deleted":             {alike, UnderWay{Known: true}, Progressing, 20},
		"contention is gone, all votes are there":  {gone.all(), UnderWay{Known: true, EndedCanary: 90, EndedControl: 90}, Progressing, 50},
		"contention is gone from those that voted": {gone, UnderWay{Known: true, EndedCanary: 70, EndedControl: 70}, Progressing, 20},
		"likewise, and it is not known what ended": {gone, UnderWay{}, Progressing, 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := progressing(20).with(Tally{Canary: spared(50, 2, 1), Control: spared(50, 30, 9)})
			if test.tally != gone && test.tally != gone.all() {
				s = progressing(20).with(Tally{})
			}
			got, _ := Decide(Input{Plan: aPlan(), Spec: newRev, State: s, Tally: test.tally, UnderWay: test.underWay, Now: epoch.Add(time.Minute)})
			if got.Phase != test.phase || got.Percent != test.percent {
				t.Errorf("%s at %d percent, %s (%s); want %s at %d", got.Phase, got.Percent, got.Reason, got.Message, test.phase, test.percent)
			}
		})
	}
}

// Runs of the control that were deleted as they hung never end. No candidate waits for them: it is
// they that it does better. What is under way may still vote.
//
// mutation: a comparison of the runs that ended alone, one that takes what the canary lost as well
// for runs of the control, and one that takes what is under way for gone make this fail.
func TestNobodyWaitsForRunsOfTheControlThatWereDeleted(t *testing.T) {
	arms := func(ended int64) Tally {
		return Tally{Canary: begun(400, spared(400, 4, 1)), Control: begun(400, spared(ended, 60, 18))}
	}
	both := arms(260)
	both.Canary = begun(600, both.Canary)
	both.Control = begun(600, both.Control)
	for name, test := range map[string]struct {
		tally    Tally
		underWay UnderWay
		phase    Phase
		says     string
	}{
		"all that did not end were deleted": {arms(260), UnderWay{Known: true}, Promoted, "passed all steps"},
		"they are under way":                {arms(260), UnderWay{Known: true, Control: 140}, Progressing, "The control's runs have not ended yet: 400 runs of the canary ended, and 260 of the control"},
		"they ended just now":               {arms(260), UnderWay{Known: true, EndedControl: 140}, Progressing, "The control's runs have not ended yet"},
		"it is not known":                   {arms(260), UnderWay{}, Progressing, "The control's runs have not ended yet"},
		"most are under way":                {arms(240), UnderWay{Known: true, Control: 130}, Progressing, "240 of the control, which lost 30 more that were deleted, or whose votes a process of the operator did not report"},
		"as many of the canary were":        {both, UnderWay{Known: true, Control: 140}, Progressing, "The control's runs have not ended yet: 400 runs of the canary ended, and 260 of the control"},
	} {
		t.Run(name, func(t *testing.T) {
			s := progressing(50).with(Tally{Canary: spared(50, 1, 0), Control: spared(50, 10, 3)})
			got, _ := Decide(Input{Plan: aPlan(), Spec: newRev, State: s, Tally: test.tally, UnderWay: test.underWay, Now: epoch.Add(time.Minute)})
			if got.Phase != test.phase || !strings.Contains(got.Message, test.says) {
				t.Errorf("%s (%s); want %s (%s)", got.Phase, got.Message, test.phase, test.says)
			}
		})
	}
}

// Users delete runs for two reasons: any of both arms, and those that hang, of which the candidate
// has fewer. What was deleted may have been busy. So it is no evidence against who loses fewer, and
// what chance does to both is no more. What the control clearly lost more does not hold a candidate
// up, either.
//
// mutation: a control whose deleted runs count only beyond those of the canary where that is hardly
// chance, evidence that leaves out what both arms lost, a canary that only looks busier by
// them and waits for ever, and a message without their numbers make this fail.
func TestDeletedRunsMayHaveBeenBusy(t *testing.T) {
	tally := func(lost, ofControl int64, canary, control Counts) Tally {
		return Tally{Canary: begun(canary.Ended+lost, canary), Control: begun(control.Ended+ofControl, control)}
	}
	for name, test := range map[string]struct {
		tally    Tally
		underWay UnderWay
		phase    Phase
		reason   Reason
		says     string
	}{
		"the control lost more, which may be chance": {tally(330, 380, spared(670, 400, 60), spared(620, 350, 15)), UnderWay{Known: true}, Progressing, ReasonCanaryRuns, "Not sure yet: 60 of 400 runs of the canary found the lock busy again when they tried it again, and 15 of 350 of the control; 330 runs of the canary and 380 of the control have no vote: they were deleted, or a process of the operator did not report their votes"},
		"a few were, and it lost a few more":         {tally(30, 50, spared(670, 400, 60), spared(650, 380, 15)), UnderWay{Known: true}, Progressing, ReasonCanaryRuns, "Not sure yet: 60 of 400 runs"},
		"both lost as many":                          {tally(330, 330, spared(670, 400, 60), spared(670, 400, 15)), UnderWay{Known: true}, Progressing, ReasonCanaryRuns, "Not sure yet: 60 of 400 runs"},
		"both lost few":                              {tally(5, 5, spared(670, 400, 60), spared(670, 400, 15)), UnderWay{Known: true}, RolledBack, ReasonBusyRunsWorse, "15 of 400 of the control; 5 runs of the canary and 5 of the control have no vote"},
		"nobody deletes":                             {tally(0, 0, spared(670, 400, 60), spared(670, 400, 15)), UnderWay{Known: true}, RolledBack, ReasonBusyRunsWorse, "and 15 of 400 of the control"},
		"only the canary lost some":                  {tally(60, 0, spared(670, 400, 30), spared(670, 400, 26)), UnderWay{Known: true}, Promoted, ReasonAllStepsPassed, ""},
		"the control lost those that were busy":      {tally(0, 60, spared(400, 240, 60), spared(340, 180, 5)), UnderWay{Known: true}, Promoted, ReasonAllStepsPassed, ""},
		"they are under way":                         {tally(0, 60, spared(400, 240, 60), spared(340, 180, 5)), UnderWay{Known: true, Control: 60}, Progressing, ReasonCanaryRuns, "Not sure yet: 60 of 240 runs"},
		"it lost some, and is better all the same":   {tally(0, 60, spared(400, 240, 130), spared(340, 180, 5)), UnderWay{Known: true}, RolledBack, ReasonBusyRunsWorse, "0 runs of the canary and 60 of the control have no vote"},
		"it hardly lost more":                        {tally(300, 330, spared(670, 400, 60), spared(640, 370, 15)), UnderWay{Known: true}, Progressing, ReasonCanaryRuns, "Not sure yet"},
		"all contended ones were deleted":            {tally(0, 200, spared(400, 200, 60), spared(200, 30, 0)), UnderWay{Known: true}, Progressing, ReasonCanaryRuns, "0 runs of the canary and 200 of the control have no vote: they were deleted, or a process of the operator did not report their votes. If runs of the control were deleted as they hung, promote the candidate yourself"},
	} {
		t.Run(name, func(t *testing.T) {
			s := progressing(50).with(Tally{Canary: spared(50, 30, 0), Control: spared(50, 30, 0)})
			s.Wait.Canary, s.Wait.Control = Vote{}, Vote{}
			got, _ := Decide(Input{Plan: aPlan(), Spec: newRev, State: s, Tally: test.tally, UnderWay: test.underWay, Now: epoch.Add(time.Minute)})
			if got.Phase != test.phase || got.Reason != test.reason || !strings.Contains(got.Message, test.says) {
				t.Errorf("%s, %s (%s); want %s, %s (%s)", got.Phase, got.Reason, got.Message, test.phase, test.reason, test.says)
			}
			if strings.Contains(got.Message, "have no vote") && test.tally.Canary.unended()+test.tally.Control.unended() == 0 {
				t.Errorf("nothing was deleted: %s", got.Message)
			}
		})
	}
}

// A run that was deleted as it waited for its lock says nothing of results. It may say something of
// waits, but not if it was gone before there was a threshold. So what the control lost more
// excuses a busy canary only. A candidate that passes by that says so.
//
// mutation: a question of results or waits that takes what the control lost more for votes, and a
// promotion that does not tell of them, or tells of them where it passed without, make this fail.
func TestWhatTheControlLostExcusesNoLateResult(t *testing.T) {
	votes := func(runs, busy, waits, latencies int64) Counts {
		c := spared(runs, runs/2, busy)
		c.Waits[8], c.Waits[9] = runs/2-waits, waits
		c.Latencies[9], c.Latencies[12] = runs-latencies, latencies
		return c
	}
	const told = "60 of the control have no vote"
	for name, test := range map[string]struct {
		canary, control Counts
		lost            int64
		phase           Phase
		says            string
		tells           bool
	}{
		"results are late":              {votes(400, 40, 10, 74), votes(340, 34, 10, 17), 60, Progressing, "Not sure yet: 74 of 400 runs of the canary had a result latency", true},
		"likewise, and none was lost":   {votes(400, 40, 10, 74), votes(400, 40, 10, 17), 0, RolledBack, "74 of 400 runs of the canary had a result latency", false},
		"waits are long":                {votes(400, 40, 74, 10), votes(340, 34, 17, 10), 60, Progressing, "Not sure yet: 74 of 400 runs of the canary waited longer", true},
		"runs are busy":                 {votes(400, 80, 10, 10), votes(340, 30, 10, 10), 60, Promoted, "passed all steps", true},
		"nothing is worse":              {votes(400, 40, 10, 10), votes(340, 34, 10, 10), 60, Promoted, "passed all steps", false},
		"as many are busy without them": {votes(400, 30, 10, 10), votes(340, 30, 10, 10), 60, Promoted, "passed all steps", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := progressing(50).with(Tally{Canary: spared(50, 30, 0), Control: spared(50, 30, 0)})
			s.Wait.Canary, s.Wait.Control, s.Latency.Canary, s.Latency.Control = Vote{}, Vote{}, Vote{}, Vote{}
			tally := Tally{Canary: test.canary, Control: begun(test.control.Ended+test.lost, test.control)}
			got, _ := Decide(Input{Plan: aPlan(), Spec: newRev, State: s, Tally: tally, UnderWay: UnderWay{Known: true}, Now: epoch.Add(time.Minute)})
			if got.Phase != test.phase || !strings.Contains(got.Message, test.says) || strings.Contains(got.Message, told) != test.tells {
				t.Errorf("%s (%s); want %s (%s), and that it tells of deleted ones: %t", got.Phase, got.Message, test.phase, test.says, test.tells)
			}
		})
	}
}

// A canary of which many were deleted is told so: nobody finds them among those that go on.
//
// mutation: unevenArms that does not tell of them, or tells of those that are under way, makes this
// fail.
func TestACanaryWhoseRunsWereDeletedIsToldSo(t *testing.T) {
	tally := Tally{Canary: begun(400, arm(260, 20)), Control: arm(400, 30)}
	for says, underWay := range map[string]UnderWay{
		"Fewer runs of the canary ended than of the control: 260 of the canary, and 400 of the control; 140 of the canary were deleted, or a process of the operator did not report their votes": {Known: true},
		"Fewer runs of the canary ended than of the control: 260 of the canary, and 400 of the control; 60 of the canary were deleted, or a process of the operator did not report their votes":  {Known: true, Canary: 80},
		"Fewer runs of the canary ended than of the control: 260 of the canary, and 400 of the control":                                                                                          {Known: true, Canary: 140},
	} {
		got, _ := Decide(Input{Plan: aPlan(), Spec: newRev, State: progressing(50), Tally: tally, UnderWay: underWay, Now: epoch.Add(time.Minute)})
		if got.Reason != ReasonSampleRatioMismatch || got.Message != says {
			t.Errorf("%s, %s; want %s", got.Reason, got.Message, says)
		}
	}
}

// all has each run of the canary vote, as those did that voted.
func (t Tally) all() Tally {
	t.Canary = begun(t.Canary.Runs, spared(t.Canary.Runs, t.Canary.Contended, t.Canary.Busy))
	return t
}
