// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"
	"time"
)

// Input is what a decision is made on.
type Input struct {
	// Plan is how a change is rolled out.
	Plan Plan
	// Spec is the revision that spec asks for.
	Spec Revision
	// Unit is what Spec is tried on, if it is.
	Unit Unit
	// State is that of the decision before; the zero State before the first.
	State State
	// Tally is what was counted for State.Candidate, over all replicas.
	Tally Tally
	// UnderWay is how many of its runs are under way; the zero value: that is not known.
	UnderWay UnderWay
	// Full says that the tally has no place for what is counted from now on.
	Full bool
	// Command is a user's, about State.Candidate.
	Command Command
	// Now is the time.
	Now time.Time
}

// Event is news for users.
type Event struct {
	// Warning says that somebody should look at it.
	Warning bool
	Reason  Reason
	Message string
}

// Decide says what follows, and what to announce. It does not change its input.
func Decide(in Input) (State, []Event) {
	s := in.State
	switch {
	case s.Baseline.Zero():
		return State{Phase: Stable, Baseline: in.Spec, Since: in.Now, Reason: ReasonInForce, Message: "No change was rolled out yet"}, nil
	case in.Spec.Is(s.Baseline):
		return in.stable()
	case !in.Plan.Canary:
		next, events := in.promote(in.Spec, ReasonImmediate, "In force for all runs at once")
		return next, append(in.superseded(), events...)
	case s.Active() && in.Spec.Is(s.Candidate) && in.Unit == s.Unit:
		return in.proceed()
	case !in.Spec.Is(s.Candidate), s.Phase != RolledBack: // the latter, and another unit, are of no decision
		return in.begin()
	case in.Command == Promote:
		return in.promote(s.Candidate, ReasonPromotedByUser, "Promoted by a user after it was rolled back")
	default:
		return s, nil
	}
}

// stable is for a spec that says what is in force.
func (in Input) stable() (State, []Event) {
	s := in.State
	if s.Phase == Stable || s.Phase == Promoted {
		return s, nil
	}
	return State{
		Phase: Stable, Baseline: s.Baseline, Since: in.Now, Reason: ReasonInForce, Message: "Spec says again what is in force",
	}, in.superseded()
}

// superseded announces that a candidate is not tried any more.
func (in Input) superseded() []Event {
	if !in.State.Active() {
		return nil
	}
	text := "Candidate " + in.State.Candidate.Name() + " is superseded by an edit"
	if in.Command != NoCommand {
		text += fmt.Sprintf(": the command to %s it came too late, and does nothing", strings.ToLower(string(in.Command)))
	}
	return []Event{{Warning: true, Reason: ReasonSuperseded, Message: text}}
}

// begin tries a new candidate, whatever became of the one before.
func (in Input) begin() (State, []Event) {
	s := State{
		Phase: Progressing, Baseline: in.State.Baseline, Candidate: in.Spec, Unit: in.Unit, Since: in.Now, Verdict: NotEnough, Reason: ReasonCanaryRuns,
	}
	if fault := in.Plan.Fault(); fault != "" {
		s.Message = "Not tried: " + fault
		return s, in.superseded()
	}
	s, events := in.step(s, in.Plan.StepsPercent[0])
	return s, append(in.superseded(), events...)
}

// step begins a step.
func (in Input) step(s State, percent int) (State, []Event) {
	s.Phase, s.Reason, s.Verdict = Progressing, ReasonCanaryRuns, NotEnough
	if s.Percent == 0 {
		s.First = percent
	}
	s.Percent, s.Since, s.Begin = percent, in.Now, s.Seen
	s.Message = fmt.Sprintf("Candidate %s of %s is tried on %d percent of the %s", s.Candidate.Name(), s.Unit.field(), percent, s.Unit.plural())
	return s, []Event{{Reason: ReasonCanaryRuns, Message: s.Message}}
}

// proceed judges the candidate that is tried.
func (in Input) proceed() (State, []Event) {
	s := in.State
	switch in.Command {
	case Abort:
		return in.rollBack(s, ReasonAbortedByUser, "Aborted by a user")
	case Promote:
		return in.promote(s.Candidate, ReasonPromotedByUser, "Promoted by a user")
	default:
	}
	if fault := in.Plan.Fault(); fault != "" {
		s.Verdict, s.Message = NotEnough, "Not judged: "+fault
		return s, nil
	}
	if s.Percent == 0 { // the plan had a fault until now
		return in.step(s, in.Plan.StepsPercent[0])
	}
	if !in.Tally.right(s.Seen) {
		return in.rollBack(s, ReasonSampleRatioMismatch, "Counts went back, or contradict each other: the data is wrong")
	}
	s = s.observe(in.Plan, in.Tally)
	s.UnderWay = in.UnderWay
	if !s.thresholdsFit() {
		return in.rollBack(s, ReasonSampleRatioMismatch, "Thresholds and counts contradict each other: the data is wrong")
	}
	found := judge(in.Plan, s)
	s.Verdict = found.verdict
	switch found.verdict {
	case Fail:
		return in.rollBack(s, found.reason, found.message)
	case Pass:
		return in.advance(s, found.message)
	default:
		s.Message = found.message
		return in.wait(s)
	}
}

// observe takes the tally in, and freezes thresholds once the control has enough values.
func (s State) observe(p Plan, t Tally) State {
	s.Seen = t
	s.Wait = s.Wait.frozen(t.Canary.Waits, t.Control.Waits, p.MinContendedRuns)
	s.Latency = s.Latency.frozen(t.Canary.Latencies, t.Control.Latencies, p.MinContendedRuns)
	return s
}

// frozen sets the threshold, once the control has so many values. Nothing exceeds the last bucket,
// so one that is there would ask nothing. An older operator may have stored such a one: it is set
// anew, which makes no false alarm, as it has accused nobody.
func (t Threshold) frozen(canary, control Histogram, least int64) Threshold {
	if t.Set && t.Bucket <= lastBound || control.total() < least {
		return t
	}
	t = Threshold{Set: true, Bucket: min(control.tail(), lastBound)}
	t.Canary, t.Control = t.votes(canary), t.votes(control)
	return t
}

// thresholdsFit says that what was counted until a threshold was set is a part of what
// is counted now.
func (s State) thresholdsFit() bool {
	fits := func(t Threshold, canary, control Histogram) bool {
		return !t.Set || t.votes(canary).minus(t.Canary).possible() && t.votes(control).minus(t.Control).possible()
	}
	return fits(s.Wait, s.Seen.Canary.Waits, s.Seen.Control.Waits) && fits(s.Latency, s.Seen.Canary.Latencies, s.Seen.Control.Latencies)
}

func (t Threshold) votes(h Histogram) Vote { return Vote{Yes: h.above(t.Bucket), Asked: h.total()} }

// advance goes to the next step; after the last one the candidate is promoted. One that is beyond
// the last step waits for a user: who lowers the steps wants fewer units under it, not all. The
// excuse is what a promotion tells of.
func (in Input) advance(s State, excuse string) (State, []Event) {
	if text := s.Beyond(in.Plan); text != "" {
		s.Verdict, s.Message = NotEnough, text
		return in.wait(s)
	}
	for _, percent := range in.Plan.StepsPercent {
		if percent > s.Percent {
			return in.step(s, percent)
		}
	}
	in.State = s
	return in.promote(s.Candidate, ReasonAllStepsPassed, fmt.Sprintf("Candidate %s passed all steps%s", s.Candidate.Name(), excuse))
}

// mostAhead is by how much the clock of another replica may be ahead that began a step.
const mostAhead = 3 * Period

// wait goes on with a step, unless it is over. A step that begins long from now on was begun by a
// clock that was wrong: it begins now, or nothing would be tried, and nothing end it, for as long.
func (in Input) wait(s State) (State, []Event) {
	if in.Full {
		return in.rollBack(s, ReasonInsufficientData, "As many processes of the operator have counted as have a place in status: "+s.Message)
	}
	if s.Since.Sub(in.Now) > min(mostAhead, in.Plan.MaxStep) {
		s.Since = in.Now
	}
	if s.Phase == Holding && in.Plan.Hold || in.Now.Sub(s.Since) < in.Plan.MaxStep {
		return s, nil
	}
	text := fmt.Sprintf("Step of %d percent is over after %s: %s", s.Percent, in.Plan.MaxStep, s.Message)
	if !in.Plan.Hold {
		return in.rollBack(s, ReasonInsufficientData, text)
	}
	s.Phase, s.Reason, s.Message = Holding, ReasonInsufficientData, text
	return s, []Event{{Warning: true, Reason: ReasonInsufficientData, Message: text}}
}

func (in Input) rollBack(s State, reason Reason, text string) (State, []Event) {
	s.Phase, s.Percent, s.First, s.Since, s.Reason, s.Message = RolledBack, 0, 0, in.Now, reason, text
	if s.Verdict != Fail {
		s.Verdict = NotEnough
	}
	return s, []Event{{Warning: true, Reason: reason, Message: "Candidate " + s.Candidate.Name() + " is rolled back: " + text}}
}

func (in Input) promote(r Revision, reason Reason, text string) (State, []Event) {
	return State{
		Phase: Promoted, Baseline: r, Candidate: r, Unit: in.State.Unit, Since: in.Now, Verdict: in.State.Verdict, Reason: reason, Message: text,
		Seen: in.State.Seen,
	}, []Event{{Reason: reason, Message: text}}
}
