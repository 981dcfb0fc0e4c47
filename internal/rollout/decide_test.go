// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"
)

var (
	epoch   = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	oldRev  = Revision{Hash: "91bc", Generation: 1}
	newRev  = Revision{Hash: "4f2a", Generation: 2}
	thirdRe = Revision{Hash: "77aa", Generation: 3}
)

func aPlan() Plan {
	return Plan{
		Canary: true, StepsPercent: []int{5, 20, 50}, MinContendedRuns: 40, MaxStep: time.Hour,
		BusyRunsPercent: 120, WaitTailPercent: 150, LatencyPercent: 120,
	}
}

// arm is an arm with so many runs, all contended, of which some are busy.
func arm(runs, busy int64) Counts {
	c := Counts{Runs: runs, Ended: runs, Contended: runs, Busy: busy}
	c.Waits[8], c.Latencies[9] = runs, runs
	return c
}

// fourTimes is the sum of four tallies.
func fourTimes(t Tally) Tally { return t.Plus(t).Plus(t).Plus(t) }

func progressing(percent int) State {
	return State{Phase: Progressing, Baseline: oldRev, Candidate: newRev, Percent: percent, Since: epoch, Reason: ReasonCanaryRuns}
}

// with is the state once a tally was judged before.
func (s State) with(t Tally) State {
	return s.observe(aPlan(), t)
}

// mutation: counts that are added as they are, and thresholds that are not compared with what is
// counted, make this fail.
func TestDecide(t *testing.T) {
	early, later := Tally{Canary: arm(50, 10), Control: arm(50, 10), Rest: 900}, Tally{Canary: arm(100, 20), Control: arm(100, 20), Rest: 1800}
	half := Tally{Canary: arm(100, 20), Control: arm(100, 20)}
	change := func(t Tally, change func(*Tally)) Tally { change(&t); return t }
	faulty := aPlan()
	faulty.StepsPercent = []int{20, 5}
	immediate, hold, fromTwenty := aPlan(), aPlan(), aPlan()
	immediate.Canary, hold.Hold, fromTwenty.StepsPercent = false, true, []int{20, 50}
	tests := map[string]struct {
		in      Input
		phase   Phase
		percent int
		reason  Reason
		events  []Reason
	}{
		"the first spec is the baseline":          {Input{Spec: oldRev}, Stable, 0, ReasonInForce, nil},
		"an edit begins the first step":           {Input{Spec: newRev, State: State{Phase: Stable, Baseline: oldRev}}, Progressing, 5, ReasonCanaryRuns, []Reason{ReasonCanaryRuns}},
		"strategy Immediate is in force at once":  {Input{Plan: immediate, Spec: newRev, State: State{Phase: Stable, Baseline: oldRev}}, Promoted, 0, ReasonImmediate, []Reason{ReasonImmediate}},
		"too few runs go on":                      {Input{Spec: newRev, State: progressing(5), Tally: Tally{Canary: arm(10, 2), Control: arm(10, 2), Rest: 180}}, Progressing, 5, ReasonCanaryRuns, nil},
		"thresholds need votes after they froze":  {Input{Spec: newRev, State: progressing(5), Tally: early}, Progressing, 5, ReasonCanaryRuns, nil},
		"enough evidence is the next step":        {Input{Spec: newRev, State: progressing(5).with(early), Tally: later}, Progressing, 20, ReasonCanaryRuns, []Reason{ReasonCanaryRuns}},
		"the last step is the promotion":          {Input{Spec: newRev, State: progressing(50).with(Tally{Canary: arm(50, 10), Control: arm(50, 10)}), Tally: half}, Promoted, 0, ReasonAllStepsPassed, []Reason{ReasonAllStepsPassed}},
		"each step needs runs of its own":         {Input{Spec: newRev, State: func() State { s := progressing(20).with(later); s.Begin = later; return s }(), Tally: later}, Progressing, 20, ReasonCanaryRuns, nil},
		"busy runs":                               {Input{Spec: newRev, State: progressing(5).with(early), Tally: change(later, func(t *Tally) { t.Canary.Busy = 60 })}, RolledBack, 0, ReasonBusyRunsWorse, []Reason{ReasonBusyRunsWorse}},
		"busy runs that lean do not pass":         {Input{Spec: newRev, State: progressing(5).with(early), Tally: change(later, func(t *Tally) { t.Canary.Busy = 38 })}, Progressing, 5, ReasonCanaryRuns, nil},
		"waits":                                   {Input{Spec: newRev, State: progressing(5).with(early), Tally: change(later, func(t *Tally) { t.Canary.Waits[8], t.Canary.Waits[12] = 70, 30 })}, RolledBack, 0, ReasonWaitTailWorse, []Reason{ReasonWaitTailWorse}},
		"waits before the threshold do not count": {Input{Spec: newRev, State: progressing(5), Tally: change(later, func(t *Tally) { t.Canary.Waits[8], t.Canary.Waits[12] = 70, 30 })}, Progressing, 5, ReasonCanaryRuns, nil},
		"latencies":                               {Input{Spec: newRev, State: progressing(5).with(early), Tally: change(later, func(t *Tally) { t.Canary.Latencies[9], t.Canary.Latencies[12] = 70, 30 })}, RolledBack, 0, ReasonLatencyWorse, []Reason{ReasonLatencyWorse}},
		"a lock that is abandoned":                {Input{Spec: newRev, State: progressing(5), Tally: change(early, func(t *Tally) { t.Canary.Abandoned = 1 })}, RolledBack, 0, ReasonHardGuardrail, []Reason{ReasonHardGuardrail}},
		"one of the control, too":                 {Input{Spec: newRev, State: progressing(5), Tally: change(early, func(t *Tally) { t.Canary.Abandoned, t.Control.Abandoned = 1, 1 })}, Progressing, 5, ReasonCanaryRuns, nil},
		"many of the canary, one of the control":  {Input{Spec: newRev, State: progressing(5), Tally: change(early, func(t *Tally) { t.Canary.DeadLettered, t.Control.DeadLettered = 25, 1 })}, RolledBack, 0, ReasonHardGuardrail, []Reason{ReasonHardGuardrail}},
		"many of both arms":                       {Input{Spec: newRev, State: progressing(5).with(early), Tally: change(later, func(t *Tally) { t.Canary.Abandoned, t.Control.Abandoned = 40, 35 })}, Progressing, 20, ReasonCanaryRuns, []Reason{ReasonCanaryRuns}},
		"more of the canary do not pass":          {Input{Spec: newRev, State: progressing(5).with(early), Tally: change(later, func(t *Tally) { t.Canary.Abandoned, t.Control.Abandoned = 7, 1 })}, Progressing, 5, ReasonCanaryRuns, nil},
		"more events than any truth":              {Input{Spec: newRev, State: progressing(5), Tally: change(early, func(t *Tally) { t.Canary.FenceRefused, t.Control.FenceRefused = mostRuns, mostRuns })}, RolledBack, 0, ReasonSampleRatioMismatch, []Reason{ReasonSampleRatioMismatch}},
		"a fence that is refused":                 {Input{Spec: newRev, State: progressing(5), Tally: change(early, func(t *Tally) { t.Canary.FenceRefused = 1 })}, RolledBack, 0, ReasonHardGuardrail, []Reason{ReasonHardGuardrail}},
		"a dead letter":                           {Input{Spec: newRev, State: progressing(5), Tally: change(early, func(t *Tally) { t.Canary.DeadLettered = 1 })}, RolledBack, 0, ReasonHardGuardrail, []Reason{ReasonHardGuardrail}},
		"arms that began with different numbers":  {Input{Spec: newRev, State: progressing(50), Tally: Tally{Canary: arm(40, 0), Control: arm(100, 0)}}, RolledBack, 0, ReasonSampleRatioMismatch, []Reason{ReasonSampleRatioMismatch}},
		"runs of the canary that do not end":      {Input{Spec: newRev, State: progressing(50), Tally: change(half, func(t *Tally) { t.Canary = arm(40, 0); t.Canary.Runs = 100 })}, RolledBack, 0, ReasonSampleRatioMismatch, []Reason{ReasonSampleRatioMismatch}},
		"a canary beyond its percentage":          {Input{Spec: newRev, State: progressing(5), Tally: change(later, func(t *Tally) { t.Rest = 400 })}, RolledBack, 0, ReasonSampleRatioMismatch, []Reason{ReasonSampleRatioMismatch}},
		"a canary below its percentage":           {Input{Spec: newRev, State: progressing(5), Tally: change(later, func(t *Tally) { t.Rest = 9000 })}, RolledBack, 0, ReasonSampleRatioMismatch, []Reason{ReasonSampleRatioMismatch}},
		"counts that go back":                     {Input{Spec: newRev, State: progressing(5).with(later), Tally: early}, RolledBack, 0, ReasonSampleRatioMismatch, []Reason{ReasonSampleRatioMismatch}},
		"counts that contradict each other":       {Input{Spec: newRev, State: progressing(5), Tally: change(early, func(t *Tally) { t.Canary.Busy = 51 })}, RolledBack, 0, ReasonSampleRatioMismatch, []Reason{ReasonSampleRatioMismatch}},
		"counts beyond any truth":                 {Input{Spec: newRev, State: progressing(50), Tally: Tally{Canary: arm(mostRuns, 0), Control: arm(mostRuns, 0)}}, RolledBack, 0, ReasonSampleRatioMismatch, []Reason{ReasonSampleRatioMismatch}},
		"counts whose sum is beyond a number":     {Input{Spec: newRev, State: progressing(50), Tally: fourTimes(Tally{Canary: arm(1<<62, 0), Control: arm(1<<62, 0)})}, RolledBack, 0, ReasonSampleRatioMismatch, []Reason{ReasonSampleRatioMismatch}},
		"counts as large as can be":               {Input{Spec: newRev, State: progressing(50), Tally: Tally{Canary: arm(mostRuns-1, 1<<39), Control: arm(mostRuns-1, 1<<39)}}, Progressing, 50, ReasonCanaryRuns, nil},
		"more was asked before than is counted":   {Input{Spec: newRev, State: func() State { s := progressing(5).with(early); s.Latency.Control.Asked = 1000; return s }(), Tally: later}, RolledBack, 0, ReasonSampleRatioMismatch, []Reason{ReasonSampleRatioMismatch}},
		"a candidate that is missing":             {Input{Spec: newRev, State: State{Phase: Progressing, Baseline: oldRev, Percent: 20}, Tally: later}, Progressing, 5, ReasonCanaryRuns, []Reason{ReasonCanaryRuns}},
		"a phase that does not fit":               {Input{Spec: newRev, State: State{Phase: Stable, Baseline: oldRev, Candidate: newRev}}, Progressing, 5, ReasonCanaryRuns, []Reason{ReasonCanaryRuns}},
		"neither candidate nor edit":              {Input{Spec: oldRev, State: State{Phase: Holding, Baseline: oldRev, Percent: 20}}, Stable, 0, ReasonInForce, nil},
		"too little for too long":                 {Input{Spec: newRev, State: progressing(5), Now: epoch.Add(time.Hour)}, RolledBack, 0, ReasonInsufficientData, []Reason{ReasonInsufficientData}},
		"too little for too long, and Hold":       {Input{Plan: hold, Spec: newRev, State: progressing(5), Now: epoch.Add(time.Hour)}, Holding, 5, ReasonInsufficientData, []Reason{ReasonInsufficientData}},
		"a hold ends with evidence":               {Input{Plan: hold, Spec: newRev, State: func() State { s := progressing(5).with(early); s.Phase = Holding; return s }(), Tally: later}, Progressing, 20, ReasonCanaryRuns, []Reason{ReasonCanaryRuns}},
		"a hold ends when the plan holds no more": {Input{Spec: newRev, State: func() State { s := progressing(5); s.Phase = Holding; return s }(), Now: epoch.Add(time.Hour)}, RolledBack, 0, ReasonInsufficientData, []Reason{ReasonInsufficientData}},
		"a hold lasts while the plan holds":       {Input{Plan: hold, Spec: newRev, State: func() State { s := progressing(5); s.Phase = Holding; return s }(), Now: epoch.Add(time.Hour)}, Holding, 5, ReasonCanaryRuns, nil},
		"nobody counts any more":                  {Input{Plan: hold, Full: true, Spec: newRev, State: func() State { s := progressing(5); s.Phase = Holding; return s }()}, RolledBack, 0, ReasonInsufficientData, []Reason{ReasonInsufficientData}},
		"nobody counts any more, and need not":    {Input{Full: true, Spec: newRev, State: progressing(5).with(early), Tally: later}, Progressing, 20, ReasonCanaryRuns, []Reason{ReasonCanaryRuns}},
		"a plan that begins with more":            {Input{Plan: fromTwenty, Spec: newRev, State: func() State { s := progressing(20).with(early); s.First = 5; return s }(), Tally: later}, Progressing, 50, ReasonCanaryRuns, []Reason{ReasonCanaryRuns}},
		"a plan that begins with more, of before": {Input{Plan: fromTwenty, Spec: newRev, State: progressing(20).with(early), Tally: later}, RolledBack, 0, ReasonSampleRatioMismatch, []Reason{ReasonSampleRatioMismatch}},
		"a clock that went back ends nothing":     {Input{Spec: newRev, State: progressing(5), Now: epoch.Add(-100 * time.Hour)}, Progressing, 5, ReasonCanaryRuns, nil},
		"an edit supersedes":                      {Input{Spec: thirdRe, State: progressing(20)}, Progressing, 5, ReasonCanaryRuns, []Reason{ReasonSuperseded, ReasonCanaryRuns}},
		"an edit back supersedes":                 {Input{Spec: oldRev, State: progressing(20)}, Stable, 0, ReasonInForce, []Reason{ReasonSuperseded}},
		"Immediate supersedes":                    {Input{Plan: immediate, Spec: newRev, State: progressing(20)}, Promoted, 0, ReasonImmediate, []Reason{ReasonSuperseded, ReasonImmediate}},
		"a user promotes":                         {Input{Spec: newRev, State: progressing(5), Command: Promote}, Promoted, 0, ReasonPromotedByUser, []Reason{ReasonPromotedByUser}},
		"a user aborts":                           {Input{Spec: newRev, State: progressing(5), Command: Abort}, RolledBack, 0, ReasonAbortedByUser, []Reason{ReasonAbortedByUser}},
		"what was rolled back stays so":           {Input{Spec: newRev, State: State{Phase: RolledBack, Baseline: oldRev, Candidate: newRev, Reason: ReasonBusyRunsWorse}, Tally: later}, RolledBack, 0, ReasonBusyRunsWorse, nil},
		"a user promotes it all the same":         {Input{Spec: newRev, State: State{Phase: RolledBack, Baseline: oldRev, Candidate: newRev}, Command: Promote}, Promoted, 0, ReasonPromotedByUser, []Reason{ReasonPromotedByUser}},
		"a plan with a fault begins nothing":      {Input{Plan: faulty, Spec: newRev, State: State{Phase: Stable, Baseline: oldRev}}, Progressing, 0, ReasonCanaryRuns, nil},
		"a plan with a fault judges nothing":      {Input{Plan: faulty, Spec: newRev, State: progressing(5).with(early), Tally: later}, Progressing, 5, ReasonCanaryRuns, nil},
		"a plan that was mended begins":           {Input{Spec: newRev, State: progressing(0)}, Progressing, 5, ReasonCanaryRuns, []Reason{ReasonCanaryRuns}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := test.in
			if in.Plan.MinContendedRuns == 0 {
				in.Plan = aPlan()
			}
			if in.Now.IsZero() {
				in.Now = epoch.Add(time.Minute)
			}
			got, events := Decide(in)
			if got.Phase != test.phase || got.Percent != test.percent || got.Reason != test.reason {
				t.Errorf("%s at %d percent, %s (%s); want %s at %d, %s", got.Phase, got.Percent, got.Reason, got.Message, test.phase, test.percent, test.reason)
			}
			var reasons []Reason
			for _, e := range events {
				reasons = append(reasons, e.Reason)
			}
			if len(reasons) != len(test.events) {
				t.Fatalf("events %v; want %v", events, test.events)
			}
			for i := range reasons {
				if reasons[i] != test.events[i] {
					t.Errorf("events %v; want %v", events, test.events)
				}
			}
		})
	}
}

// A step that a wrong clock began lasts no longer than one that begins now.
//
// mutation: wait without that makes this fail.
func TestAStepThatBeginsInACenturyEnds(t *testing.T) {
	s := progressing(5)
	s.Since = epoch.AddDate(100, 0, 0)
	now := epoch
	for range 2 {
		if s.Phase != Progressing {
			t.Fatalf("%s: %s", s.Phase, s.Message)
		}
		s, _ = Decide(Input{Plan: aPlan(), Spec: newRev, State: s, Now: now})
		now = now.Add(time.Hour)
	}
	if s.Phase != RolledBack || s.Reason != ReasonInsufficientData {
		t.Errorf("%s: %s", s.Phase, s.Message)
	}
}

// One that a clock began that was ahead by less than a step may take is noticed, too: until then no
// tenant-minute is in an arm.
//
// mutation: wait that compares with the length of a step only makes this fail.
func TestAStepThatBeginsLaterBeginsNow(t *testing.T) {
	for ahead, noticed := range map[time.Duration]bool{time.Minute: false, 50 * time.Minute: true, 90 * time.Minute: true} {
		s := progressing(5)
		s.Since = epoch.Add(ahead)
		s, _ = Decide(Input{Plan: aPlan(), Spec: newRev, State: s, Now: epoch})
		if want := map[bool]time.Time{false: epoch.Add(ahead), true: epoch}[noticed]; !s.Since.Equal(want) {
			t.Errorf("a step that was begun by a clock ahead by %s begins %s after now", ahead, s.Since.Sub(epoch))
		}
	}
}

// What a candidate began with is kept from step to step, and by nothing else.
//
// mutation: step that sets it each time makes this fail.
func TestThePercentageThatACandidateBeganWith(t *testing.T) {
	s := State{Phase: Stable, Baseline: oldRev}
	decide := func(in Input) {
		in.Plan, in.State, in.Now = aPlan(), s, epoch
		s, _ = Decide(in)
	}
	early, later := Tally{Canary: arm(50, 10), Control: arm(50, 10), Rest: 900}, Tally{Canary: arm(100, 20), Control: arm(100, 20), Rest: 1800}
	decide(Input{Spec: newRev})
	decide(Input{Spec: newRev, Tally: early})
	if decide(Input{Spec: newRev, Tally: later}); s.Percent != 20 || s.First != 5 {
		t.Errorf("%d percent, began with %d: %s", s.Percent, s.First, s.Message)
	}
	if decide(Input{Spec: newRev, Command: Abort}); s.First != 0 {
		t.Errorf("rolled back, and began with %d", s.First)
	}
}

func TestFaultsOfPlans(t *testing.T) {
	tests := map[string]func(*Plan){
		"no steps":               func(p *Plan) { p.StepsPercent = nil },
		"a step of nothing":      func(p *Plan) { p.StepsPercent = []int{0, 20} },
		"steps out of order":     func(p *Plan) { p.StepsPercent = []int{20, 5} },
		"the same step twice":    func(p *Plan) { p.StepsPercent = []int{5, 5} },
		"no room for a control":  func(p *Plan) { p.StepsPercent = []int{5, 51} },
		"no minimum":             func(p *Plan) { p.MinContendedRuns = 0 },
		"no time":                func(p *Plan) { p.MaxStep = 0 },
		"fewer than the control": func(p *Plan) { p.LatencyPercent = 99 },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			p := aPlan()
			if p.Fault() != "" {
				t.Fatal(p.Fault())
			}
			if change(&p); p.Fault() == "" {
				t.Error("no fault was found")
			}
		})
	}
}

func TestQuantiles(t *testing.T) {
	var h Histogram
	if h.Quantile(0.95) != 0 {
		t.Error("a quantile of nothing")
	}
	for range 95 {
		h.Add(3 * time.Millisecond)
	}
	for range 5 {
		h.Add(time.Hour)
	}
	if h.Quantile(0.5) != 5*time.Millisecond || h.Quantile(0.99) != time.Minute || h.tail() != 2 || h.above(2) != 5 {
		t.Errorf("%v: p50 %s, p99 %s, tail %d", h, h.Quantile(0.5), h.Quantile(0.99), h.tail())
	}
}
