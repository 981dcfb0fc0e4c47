// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Plan is how a change is rolled out.
type Plan struct {
	// Canary says that a change is tried on a part of the units; else it is in force at once.
	Canary bool
	// StepsPercent are the parts of the units, in percent: rising, each from 1 to 50.
	StepsPercent []int
	// MinContendedRuns is how many contended runs must have ended in each arm, in each step; of
	// tenant-minutes, see the package documentation. At least 1.
	MinContendedRuns int64
	// MaxStep is how long a step may take.
	MaxStep time.Duration
	// Hold says that a step with too little evidence goes on after MaxStep; else the candidate
	// is rolled back.
	Hold bool
	// BusyRunsPercent, WaitTailPercent and LatencyPercent are how many votes of the canary are
	// borne, in percent of the control's: at least 100. From Off on the votes are not judged.
	BusyRunsPercent, WaitTailPercent, LatencyPercent int64
}

// Off is the percentage of a guardrail that is switched off: the most that the API server takes.
const Off = 10000

// maxPercent leaves room for a control of the same size.
const maxPercent = slots / 2

// Fault says why a plan cannot be followed; empty: it can. The API server refuses such plans; a
// candidate under one is never promoted by evidence, should one come here all the same.
func (p Plan) Fault() string {
	last := 0
	for _, percent := range p.StepsPercent {
		if percent <= last || percent > maxPercent {
			return "stepsPercent must rise, from 1 at least to 50 at most"
		}
		last = percent
	}
	switch {
	case last == 0:
		return "stepsPercent is empty"
	case p.MinContendedRuns < 1:
		return "minContendedRuns must be 1 at least"
	case p.MaxStep <= 0:
		return "maxStepMinutes must be 1 at least"
	case min(p.BusyRunsPercent, p.WaitTailPercent, p.LatencyPercent) < 100:
		return "guardrails must be 100 percent at least"
	}
	return ""
}
