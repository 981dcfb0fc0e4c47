// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Evidence needed, as logarithms of 1/alpha: of a hundred rollouts without a difference one at most
// is rolled back by chance.
var (
	busyLimit = math.Log(200)  // 0.5 %
	tailLimit = math.Log(500)  // 0.2 %, of waits and of latencies
	rareLimit = math.Log(6000) // 0.1 % of six checks: three of sample ratios, three of hard events
	// leaning is evidence that is no proof, and too much for a pass.
	leaning = math.Log(3)
)

// finding is what counts say of a candidate.
type finding struct {
	verdict Verdict
	reason  Reason
	message string
}

// judge judges a candidate by what was counted so far.
func judge(p Plan, s State) finding {
	for _, check := range []func(Plan, State) (finding, bool){hardGuardrails, sampleRatio, votes, lacking} {
		if f, ok := check(p, s); ok {
			return f
		}
	}
	return finding{verdict: Pass, message: excuse(p, s)}
}

// excuse says what a candidate passes by that looks worse, and does not beside what the control
// lost more, to follow on that it passes; empty: it does not look worse.
func excuse(p Plan, s State) string {
	for _, q := range questions(p, s) {
		if q.looksWorse() {
			return ", as runs of the control without a vote count as busy: " + q.String() + s.told()
		}
	}
	return ""
}

// hardEvent is one that is too many, unless the control has it, too.
type hardEvent struct {
	what            string
	canary, control int64 // runs that it struck
}

func hardEvents(s State) []hardEvent {
	canary, control := s.Seen.Canary, s.Seen.Control
	return []hardEvent{
		{"lost their lock while they worked", canary.Abandoned, control.Abandoned},
		{"had a write refused by the fence", canary.FenceRefused, control.FenceRefused},
		{"had a dead letter", canary.DeadLettered, control.DeadLettered},
	}
}

// evidence is that of the runs that were struck: each is in either arm with the same probability.
// Those that were not are left out, as a run is struck before it ends.
func (e hardEvent) evidence() float64 { return logEvidence(e.canary, e.canary+e.control) }

func (e hardEvent) String() string {
	control := strconv.FormatInt(e.control, 10)
	if e.control == 0 {
		control = "none"
	}
	return fmt.Sprintf("%d runs of the canary %s, %s of the control", e.canary, e.what, control)
}

// hardGuardrails finds a hard event that only the canary has, or far more of its runs.
func hardGuardrails(_ Plan, s State) (finding, bool) {
	for _, e := range hardEvents(s) {
		if e.canary > 0 && e.control == 0 || e.evidence() >= rareLimit {
			return finding{Fail, ReasonHardGuardrail, e.String()}, true
		}
	}
	return finding{}, false
}

// uneven says that two arms which are alike would not have these sizes.
func uneven(canary, control int64) bool { return logShare(canary, canary+control, 0.5) > rareLimit }

func unlike(what string, canary, control int64) (finding, bool) {
	return finding{Fail, ReasonSampleRatioMismatch, fmt.Sprintf("%s: %d of the canary, and %d of the control", what, canary, control)}, true
}

// unevenArms finds arms of which one began or ended fewer. Of runs only a canary that ended fewer
// is a fault: one that is faster than the control ended more.
func unevenArms(s State) (finding, bool) {
	canary, control := s.Seen.Canary, s.Seen.Control
	switch {
	case uneven(canary.Runs, control.Runs):
		return unlike("Canary and control began with different numbers of "+s.Unit.plural(), canary.Runs, control.Runs)
	case s.Unit != TenantMinute && canary.Ended < control.Ended && uneven(canary.Ended, control.Ended):
		f, found := unlike("Fewer runs of the canary ended than of the control", canary.Ended, control.Ended)
		if lost, _ := s.gone(); lost > 0 {
			f.message += fmt.Sprintf("; %d of the canary were deleted, or a process of the operator did not report their votes", lost)
		}
		return f, found
	case s.Unit == TenantMinute && uneven(canary.Ended, control.Ended):
		return unlike("Canary and control ended different numbers of "+s.Unit.plural(), canary.Ended, control.Ended)
	}
	return finding{}, false
}

// sampleRatio finds arms whose sizes cannot be chance. A share of all runs is compared with the
// percentages that were in force since the begin: replicas take up a new one at different times.
func sampleRatio(p Plan, s State) (finding, bool) {
	canary, control := s.Seen.Canary, s.Seen.Control
	all := canary.Runs + control.Runs + s.Seen.Rest
	first := s.First
	if first == 0 {
		first = p.StepsPercent[0]
	}
	least, most := float64(min(first, s.Percent))/slots, float64(s.Percent)/slots
	share := float64(canary.Runs) / float64(max(1, all))
	mismatch := func(what string, k, n int64) (finding, bool) {
		return finding{Fail, ReasonSampleRatioMismatch, fmt.Sprintf("%s: %d of %d", what, k, n)}, true
	}
	if f, found := unevenArms(s); found {
		return f, true
	}
	switch {
	case share > most && logShare(canary.Runs, all, most) > rareLimit:
		return mismatch("The canary has more "+s.Unit.plural()+" than its percentage", canary.Runs, all)
	case share < least && logShare(canary.Runs, all, least) > rareLimit:
		return mismatch("The canary has fewer "+s.Unit.plural()+" than its percentage", canary.Runs, all)
	}
	return finding{}, false
}

// missing are votes that are not there. Each may be a yes.
type missing struct {
	late int64 // of the control, beyond those of the canary
	both int64 // of runs of each arm that are not there any more: as many as both arms have of those
	hung int64 // of those of late that were deleted, where that is hardly chance; of busy alone
}

// question is one that each unit answers with a vote.
type question struct {
	unit            Unit
	reason          Reason
	what            string
	canary, control Vote
	limit           float64 // evidence that is enough
	borne           int64   // votes of the canary, in percent of the control's
	least           int64   // units to be asked in each arm
	missing         missing
	alone           bool // the arms' yes are compared, and not the others
}

// questions are those that were asked so far, without those whose guardrail is off.
func questions(p Plan, s State) []question {
	canary, control := s.Seen.Canary, s.Seen.Control
	missing := s.missing()
	tails := missing
	tails.hung = 0 // a run that waits for its lock has no result; and it may have been gone before there was a threshold
	busy := question{
		unit: s.Unit, reason: ReasonBusyRunsWorse, what: "found the lock busy again when they tried it again", limit: busyLimit, borne: p.BusyRunsPercent, missing: missing,
		canary: Vote{canary.Busy, s.Unit.asked(canary)}, control: Vote{control.Busy, s.Unit.asked(control)},
	}
	if s.Unit != TenantMinute && s.fewer(s.late()) >= leaning { // the contended are no group that the policies have in common
		busy.canary.Asked, busy.control.Asked, busy.alone = canary.Ended, control.Ended, true
	}
	list := []question{busy}
	if t := s.Wait; t.Set {
		list = append(list, question{
			unit: s.Unit, reason: ReasonWaitTailWorse, what: "waited longer for the lock than " + t.name() + t.putOff(s.Unit), limit: tailLimit, borne: p.WaitTailPercent, missing: tails,
			canary: t.votes(canary.Waits).minus(t.Canary), control: t.votes(control.Waits).minus(t.Control), least: p.MinContendedRuns,
		})
	}
	if t := s.Latency; t.Set {
		list = append(list, question{
			unit: s.Unit, reason: ReasonLatencyWorse, what: "had a result latency above " + t.name(), limit: tailLimit, borne: p.LatencyPercent, missing: tails,
			canary: t.votes(canary.Latencies).minus(t.Canary), control: t.votes(control.Latencies).minus(t.Control), least: p.MinContendedRuns,
		})
	}
	return slices.DeleteFunc(list, func(q question) bool { return q.borne >= Off })
}

// name is how users read a threshold. The last bound is that of each control whose p95 is above the
// one before it: whether it is in the last bucket that has a bound, or above that, is not known any
// more. So it is named.
func (t Threshold) name() string {
	if t.Bucket >= lastBound {
		return Bounds[lastBound].String()
	}
	return "the control's p95"
}

// putOff says what else is above the last bound: a start that was put off.
func (t Threshold) putOff(u Unit) string {
	if u == TenantMinute && t.Bucket >= lastBound {
		return ", or were put off"
	}
	return ""
}

func (q question) String() string {
	return fmt.Sprintf("%d of %d %s of the canary %s, and %d of %d of the control",
		q.canary.Yes, q.canary.Asked, q.unit.plural(), q.what, q.control.Yes, q.control.Asked)
}

// crowded is a control beside which guardrails have little room.
var crowded = Vote{Yes: 2, Asked: 5}

// beyond says that the canary's votes are more than is borne. There may be no room for so many. So
// it also says that of a canary with more than is borne beside a crowded control, if the others'
// votes are fewer by the same factor. Where more than all would be borne there, the others say
// nothing: a wide guardrail means what it says. With more yes of the control it says so less often,
// never more: certain takes missing votes for such.
func (q question) beyond() bool {
	return q.canary.over(q.control, q.borne) || q.canary.over(crowded, q.borne) && q.control.no().over(q.canary.no(), q.borne)
}

// evidence is that of a canary which votes yes more often. Less evidence than there is makes no
// false alarm: so each question may leave out the others' votes, and the half is what the mean with
// theirs has at least.
func (q question) evidence() float64 {
	if q.alone {
		return logEvidence(q.canary.Yes, q.canary.Yes+q.control.Yes) - math.Ln2
	}
	return logWorse(q.canary, q.control)
}

// certain says that the canary votes yes more often, whatever those vote that are missing. Runs
// whose locks were not busy end first, so the votes of an arm that is slow look better than they
// are. Runs that are not there any more are evidence as if all had voted yes: else
// those of the control which somebody deleted as they hung, among others that were deleted by
// chance, accuse a candidate that does better by them. They say nothing of how much more the
// canary votes yes.
func (q question) certain() bool {
	q.control = q.control.plus(q.missing.late)
	if !q.beyond() {
		return false
	}
	q.canary, q.control = q.canary.plus(q.missing.both), q.control.plus(q.missing.both)
	return q.evidence() >= q.limit
}

// looksWorse says that there is evidence against the canary, which may be no proof.
func (q question) looksWorse() bool { return q.beyond() && q.evidence() >= leaning }

// leans says that the canary looks worse, also beside what the control lost more.
func (q question) leans() bool {
	if !q.looksWorse() {
		return false
	}
	q.control = q.control.plus(q.missing.hung)
	return q.looksWorse()
}

// votes finds a question that the canary answers worse, beyond doubt or so likely that it
// does not pass.
func votes(p Plan, s State) (finding, bool) {
	doubt, found := finding{}, false
	for _, q := range questions(p, s) {
		switch {
		case q.certain():
			return finding{Fail, q.reason, q.String() + s.told()}, true
		case q.leans():
			doubt, found = finding{verdict: NotEnough, message: "Not sure yet: " + q.String() + s.told()}, true
		}
	}
	return doubt, found
}

// lacking says what evidence the step lacks.
func lacking(p Plan, s State) (finding, bool) {
	for _, e := range hardEvents(s) {
		if e.evidence() >= leaning {
			return finding{verdict: NotEnough, message: "Not sure yet: " + e.String()}, true
		}
	}
	if message := s.lacks(p.MinContendedRuns); message != "" {
		return finding{verdict: NotEnough, message: message}, true
	}
	if p.LatencyPercent < Off && s.Seen.Control.Latencies.total() > 0 && !s.Latency.Set {
		return finding{verdict: NotEnough, message: "Too few runs of the control had a result"}, true
	}
	for _, q := range questions(p, s) {
		if min(q.canary.Asked, q.control.Asked) < q.least {
			return finding{verdict: NotEnough, message: fmt.Sprintf("Too few %s were asked yet (%d of each are needed): %s", s.Unit.plural(), q.least, q)}, true
		}
	}
	return finding{}, false
}
