// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strconv"
	"time"
)

// Phase is where a rollout is.
type Phase string

// The phases.
const (
	Stable      Phase = "Stable"      // no candidate; the baseline is what spec says
	Progressing Phase = "Progressing" // the candidate is tried
	Holding     Phase = "Holding"     // likewise, though the step is over without enough evidence
	Promoted    Phase = "Promoted"    // the last candidate is the baseline
	RolledBack  Phase = "RolledBack"  // all runs have the baseline; spec still says otherwise
)

// Verdict is what the counts say of the candidate now.
type Verdict string

// The verdicts.
const (
	NotEnough Verdict = "NotEnough" // goes on
	Pass      Verdict = "Pass"      // next step, or promoted
	Fail      Verdict = "Fail"      // rolled back
)

// Reason is why a rollout is where it is.
type Reason string

// Reasons.
const (
	ReasonInForce             Reason = "InForce"             // no change was tried
	ReasonImmediate           Reason = "Immediate"           // strategy Immediate: in force at once
	ReasonCanaryRuns          Reason = "CanaryRuns"          // a step is under way
	ReasonAllStepsPassed      Reason = "AllStepsPassed"      // promoted
	ReasonPromotedByUser      Reason = "PromotedByUser"      // promoted by a command
	ReasonAbortedByUser       Reason = "AbortedByUser"       // rolled back by a command
	ReasonBusyRunsWorse       Reason = "BusyRunsWorse"       // more runs retried in vain
	ReasonWaitTailWorse       Reason = "WaitTailWorse"       // more runs waited longer than the control's p95
	ReasonLatencyWorse        Reason = "LatencyWorse"        // more runs had a result latency above the control's p95
	ReasonHardGuardrail       Reason = "HardGuardrail"       // a lock abandoned, a fence refused, a dead letter; none, or far fewer, in the control
	ReasonSampleRatioMismatch Reason = "SampleRatioMismatch" // the arms' sizes do not fit, or counts went back
	ReasonInsufficientData    Reason = "InsufficientData"    // a step was over without enough evidence
	ReasonSuperseded          Reason = "Superseded"          // a new edit came
)

// Command is what a user asks for.
type Command string

// Commands.
const (
	NoCommand Command = ""
	Promote   Command = "Promote" // the candidate becomes the baseline now; also one that was rolled back
	Abort     Command = "Abort"   // the candidate is rolled back now
)

// Revision is a version of what is rolled out.
type Revision struct {
	// Hash is that of the content: equal content, equal hash.
	Hash string
	// Generation is the metadata.generation with which it came.
	Generation int64
}

// Is says that the content is the same.
func (r Revision) Is(o Revision) bool { return r.Hash == o.Hash }

// Zero says that there is none.
func (r Revision) Zero() bool { return r.Hash == "" }

// State is all that is remembered between two decisions.
type State struct {
	Phase Phase
	// Baseline is what runs have that are not in the canary.
	Baseline Revision
	// Candidate is what the canary has while Progressing or Holding; afterwards, the last one
	// that was tried.
	Candidate Revision
	// Unit is what the candidate is tried on; empty, as before there were others: Run.
	Unit Unit
	// Percent is the part of the units that is the canary; 0: there is none.
	Percent int
	// First is the percentage with which the candidate began; 0: it has not begun, or an operator
	// that did not remember it began it.
	First int
	// Since is when the step began, or the phase.
	Since   time.Time
	Verdict Verdict
	Reason  Reason
	Message string

	// Seen is the tally of the last decision.
	Seen Tally
	// UnderWay is what was under way then. It is not kept from one decision to the next.
	UnderWay UnderWay
	// Begin is the tally when the step began.
	Begin Tally
	// Wait and Latency are thresholds.
	Wait, Latency Threshold
}

// Threshold is what a wait or a latency must exceed for a vote of yes.
type Threshold struct {
	// Set says that there is one.
	Set bool
	// Bucket is the last one that is not above it.
	Bucket int
	// Canary and Control are the votes when it was set; they do not count.
	Canary, Control Vote
}

// Vote is how many units of an arm were asked a question, and said yes.
type Vote struct{ Yes, Asked int64 }

func (v Vote) minus(o Vote) Vote { return Vote{v.Yes - o.Yes, v.Asked - o.Asked} }

// plus has so many more vote yes.
func (v Vote) plus(yes int64) Vote { return Vote{v.Yes + yes, v.Asked + yes} }

// no are the votes against.
func (v Vote) no() Vote { return Vote{v.Asked - v.Yes, v.Asked} }

// over says that the share of yes is above so many percent of another's.
func (v Vote) over(o Vote, percent int64) bool {
	return float64(v.Yes)*float64(o.Asked)*100 > float64(o.Yes)*float64(v.Asked)*float64(percent)
}

// possible says that no more said yes than were asked.
func (v Vote) possible() bool { return 0 <= v.Yes && v.Yes <= v.Asked }

// Active says that there is a canary.
func (s State) Active() bool {
	return (s.Phase == Progressing || s.Phase == Holding) && !s.Candidate.Zero()
}

// Beyond says that the candidate is on more of the units than the last step of a plan, which was
// lowered since; empty: it is not. It then stays there, as arms whose sizes go down could not be
// compared with those of before.
func (s State) Beyond(p Plan) string {
	if len(p.StepsPercent) == 0 || !s.Active() {
		return ""
	}
	last := p.StepsPercent[len(p.StepsPercent)-1]
	if last >= s.Percent {
		return ""
	}
	return fmt.Sprintf("stepsPercent ends with %d, and the candidate is tried on %d percent of the %s: it stays there, and no evidence promotes it. "+
		"Add a step of %d percent or more, or promote or abort it", last, s.Percent, s.Unit.plural(), s.Percent)
}

// Name tells a revision from one of the same content at another time.
func (r Revision) Name() string { return r.Hash + "-" + strconv.FormatInt(r.Generation, 10) }
