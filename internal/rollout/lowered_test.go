// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"testing"
	"time"
)

// Who lowers stepsPercent while a candidate is tried wants fewer runs under it, not all. So a
// candidate beyond the last step of its plan is not promoted by evidence. It is told so, and its
// step ends as one without enough evidence.
//
// mutation: advance that promotes where no step is above, one that goes on with a step below, and a
// candidate that is not told, or not ended, make this fail.
func TestACandidateBeyondTheLastStepOfItsPlan(t *testing.T) {
	const beyond = "stepsPercent ends with 10, and the candidate is tried on 20 percent of the runs: it stays there, and no evidence promotes it. " +
		"Add a step of 20 percent or more, or promote or abort it"
	early, later := Tally{Canary: arm(50, 10), Control: arm(50, 10), Rest: 150}, Tally{Canary: arm(100, 20), Control: arm(100, 20), Rest: 300}
	worse := later
	worse.Canary.Busy = 60
	lowered := aPlan()
	lowered.StepsPercent = []int{5, 10}
	holds, same, more := lowered, lowered, lowered
	holds.Hold, same.StepsPercent, more.StepsPercent = true, []int{5, 20}, []int{5, 30}
	held := progressing(20).with(early)
	held.Phase, held.Reason = Holding, ReasonInsufficientData
	for name, test := range map[string]struct {
		in      Input
		phase   Phase
		percent int
		reason  Reason
		says    string
		warned  bool
	}{
		"evidence for it":                  {Input{Plan: lowered, Tally: later}, Progressing, 20, ReasonCanaryRuns, beyond, false},
		"evidence against it":              {Input{Plan: lowered, Tally: worse}, RolledBack, 0, ReasonBusyRunsWorse, "60 of 100", true},
		"its step is over":                 {Input{Plan: lowered, Tally: later, Now: epoch.Add(time.Hour)}, RolledBack, 0, ReasonInsufficientData, "Step of 20 percent is over after 1h0m0s: " + beyond, true},
		"its step is over, and Hold":       {Input{Plan: holds, Tally: later, Now: epoch.Add(time.Hour)}, Holding, 20, ReasonInsufficientData, "Step of 20 percent is over after 1h0m0s: " + beyond, true},
		"it is held":                       {Input{Plan: holds, State: held, Tally: later, Now: epoch.Add(2 * time.Hour)}, Holding, 20, ReasonInsufficientData, beyond, false},
		"it is held, and a step is added":  {Input{Plan: more, State: held, Tally: later, Now: epoch.Add(2 * time.Hour)}, Progressing, 30, ReasonCanaryRuns, "", false},
		"the last step is its own":         {Input{Plan: same, Tally: later}, Promoted, 0, ReasonAllStepsPassed, "", false},
		"a user promotes it":               {Input{Plan: lowered, Tally: later, Command: Promote}, Promoted, 0, ReasonPromotedByUser, "", false},
		"nobody counts any more":           {Input{Plan: holds, Tally: later, Full: true}, RolledBack, 0, ReasonInsufficientData, beyond, true},
		"there is not enough evidence yet": {Input{Plan: lowered, Tally: early}, Progressing, 20, ReasonCanaryRuns, "Too few", false},
	} {
		t.Run(name, func(t *testing.T) {
			in := test.in
			in.Spec = newRev
			if in.State.Phase == "" {
				in.State = progressing(20).with(early)
			}
			if in.Now.IsZero() {
				in.Now = epoch.Add(time.Minute)
			}
			got, events := Decide(in)
			if got.Phase != test.phase || got.Percent != test.percent || got.Reason != test.reason || !strings.Contains(got.Message, test.says) {
				t.Errorf("%s at %d percent, %s (%s); want %s at %d, %s (%s)", got.Phase, got.Percent, got.Reason, got.Message, test.phase, test.percent, test.reason, test.says)
			}
			if warned := len(events) == 1 && events[0].Warning; warned != test.warned {
				t.Errorf("events %+v; want a warning: %t", events, test.warned)
			}
			if got.Phase == Progressing && got.Percent == 20 && got.Verdict != NotEnough {
				t.Errorf("the verdict is %s", got.Verdict)
			}
		})
	}
}
