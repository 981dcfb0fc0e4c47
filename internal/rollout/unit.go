// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strconv"
	"time"
)

// Unit is what is put into an arm, and votes.
type Unit string

// The units.
const (
	// Run is one run: its locks are its own, so no arm has to do with another. The zero Unit means
	// the same.
	Run Unit = "Run"
	// TenantMinute is one tenant in one Period: those who want the same lock are in one arm.
	TenantMinute Unit = "TenantMinute"
)

// Period is how long a tenant stays in an arm. It is six times the longest wait for the lock of a
// tenant, so what one period leaves behind is a small part of the next; and so short that a few
// tenants make a hundred units in an hour.
const Period = time.Minute

// PeriodOf numbers the periods since 1970: the same number in all replicas whose clocks agree.
func PeriodOf(at time.Time) int64 { return at.Unix() / int64(Period/time.Second) }

// BeginOf is when a period begins.
func BeginOf(period int64) time.Time { return time.Unix(period*int64(Period/time.Second), 0).UTC() }

// NameOf names a tenant in a period, for ArmOf. Each has another name, so a coin of its own.
func NameOf(tenant string, period int64) string { return tenant + "/" + strconv.FormatInt(period, 10) }

// plural is how users read it.
func (u Unit) plural() string {
	if u == TenantMinute {
		return "tenant-minutes"
	}
	return "runs"
}

// field is what of a policy is tried on it.
func (u Unit) field() string {
	if u == TenantMinute {
		return "admission"
	}
	return "runLock"
}

// asked is how many units of an arm were asked whether the lock was busy again. For runs it is
// those whose lock was busy at all. For tenant-minutes it is all that voted: whether a lock is ever
// busy there depends on the policy, strategy Atomic has none.
func (u Unit) asked(c Counts) int64 {
	if u == TenantMinute {
		return c.Ended
	}
	return c.Contended
}

// fewer is the evidence that runs of the canary are contended less often than those of the control,
// if so many of the canary more were contended.
func (s State) fewer(more int64) float64 {
	canary, control := s.Seen.Canary, s.Seen.Control
	return logWorse(Vote{control.Contended, control.Ended}, Vote{canary.Contended + more, canary.Ended + more})
}

// underWay is how many runs of each arm are under way, or ended without a vote that was reported.
// Where that is not known it is those that did not end, which are more.
func (s State) underWay() (canary, control int64) {
	if u := s.UnderWay; u.Known {
		return s.Seen.Canary.withoutVote(u.Canary, u.EndedCanary), s.Seen.Control.withoutVote(u.Control, u.EndedControl)
	}
	return s.Seen.Canary.unended(), s.Seen.Control.unended()
}

// gone is how many runs of each arm are neither under way nor counted as ended: nearly all of them
// were deleted. The votes of others went with a process that had not reported them. None of them
// votes any more.
func (s State) gone() (canary, control int64) {
	canary, control = s.underWay()
	return max(0, s.Seen.Canary.unended()-canary), max(0, s.Seen.Control.unended()-control)
}

// late is how many runs of the canary more than of the control did not end, where that is hardly
// chance; else 0. A deleted one is as one that is late: it may have been deleted as it waited.
func (s State) late() int64 { return more(s.Seen.Canary.unended(), s.Seen.Control.unended(), leaning) }

// missing are the votes that are not there: of runs that are under way, that were deleted, or that
// ended and are not reported.
func (s State) missing() missing {
	canary, control := s.underWay()
	lost, ofControl := s.gone()
	m := missing{late: max(0, control-canary) + max(0, ofControl-lost), hung: more(ofControl, lost, leaning)}
	if u := s.UnderWay; u.Known { // else they count as under way
		m.both = max(0, min(s.Seen.Canary.unended()-u.Canary, s.Seen.Control.unended()-u.Control))
	}
	return m
}

// told says how many runs have no vote, to follow on the votes; empty: none.
func (s State) told() string {
	lost, ofControl := s.gone()
	if lost+ofControl == 0 {
		return ""
	}
	return fmt.Sprintf("; %d runs of the canary and %d of the control have no vote: they were deleted, or a process of the operator did not report their votes", lost, ofControl)
}

// lacks says what evidence a step lacks; empty: none.
func (s State) lacks(least int64) string {
	canary, control := s.Seen.Canary.since(s.Begin.Canary), s.Seen.Control.since(s.Begin.Control)
	if s.Unit != TenantMinute {
		return s.lacksRuns(canary, control, least)
	}
	if max(canary.Contended, control.Contended) >= least && min(canary.Ended, control.Ended) >= least {
		return ""
	}
	return fmt.Sprintf("%d tenant-minutes of the canary voted in this step, %d of them contended, and %d of the control, %d contended; %d of each are needed, and as many contended in one of the arms",
		canary.Ended, canary.Contended, control.Ended, control.Contended, least)
}

// slow says that far fewer runs of the control ended, and may still; empty: no. Those that it lost
// beyond the canary's never do. Waiting for them would keep a candidate up that does better by
// them. That is safe where people delete what they see hang: what hangs for longer was busy more
// often, so those that are left look better than all, and the candidate worse.
func (s State) slow() string {
	canary, control := s.Seen.Canary.Ended, s.Seen.Control.Ended
	lost, ofControl := s.gone()
	more := max(0, ofControl-lost)
	if canary <= control+more || !uneven(canary, control+more) {
		return ""
	}
	text := fmt.Sprintf("The control's runs have not ended yet: %d runs of the canary ended, and %d of the control", canary, control)
	if more > 0 {
		text += fmt.Sprintf(", which lost %d more that were deleted, or whose votes a process of the operator did not report", more)
	}
	return text
}

// lacksRuns is lacks for runs, given what was counted in the step. A candidate that removes
// contention never has as many contended runs as the control. There the control's tell that there
// was occasion for it. Runs under way count as contended: those whose lock is busy end last.
func (s State) lacksRuns(canary, control Counts, least int64) string {
	if text := s.slow(); text != "" {
		return text
	}
	if min(canary.Contended, control.Contended) >= least {
		return ""
	}
	text := fmt.Sprintf("%d contended runs of the canary and %d of the control ended in this step, %d of each are needed", canary.Contended, control.Contended, least)
	lost, ofControl := s.gone()
	if s.fewer(0) < leaning {
		return text + s.hung()
	}
	underWay, _ := s.underWay()
	lost = more(lost, ofControl, leaning)
	if s.fewer(underWay+lost) >= busyLimit && control.Contended >= least && canary.Ended >= least {
		return ""
	}
	text = fmt.Sprintf("%s; or %d of the control, and %d of the canary that ended, if it is certain that fewer of its runs are contended: %d ended, and %d are under way or ended just now",
		text, least, least, canary.Ended, underWay)
	if lost > 0 {
		text += fmt.Sprintf("; %d more than of the control have no vote, as they were deleted or a process of the operator died", lost)
	}
	return text
}

// hung says that far more runs of the control were deleted, to follow on what a step lacks; empty:
// no. Nobody knows what they would have voted, so only a user can decide.
func (s State) hung() string {
	lost, ofControl := s.gone()
	if more(ofControl, lost, leaning) == 0 {
		return ""
	}
	return s.told() + ". If runs of the control were deleted as they hung, promote the candidate yourself"
}
