// SPDX-License-Identifier: Apache-2.0

package ahead

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// crowdedDelay is for how long a run may be ahead while its write would only wait for others, if
// the policy does not allow more: what is decided meanwhile is in the same write.
const crowdedDelay = 2 * time.Second

// linger is for how long the lease is kept after a write. Whoever takes it anew has to write once
// before the run may be ahead again: among many runs each result would be written.
const linger = 2 * time.Second

// Session is what one pass does with what its run is ahead by.
type Session struct {
	*State
	// Stored is the run as it is stored.
	Stored *v1alpha1.WorkflowRun
	// Closes says that this process gives the run up: all is written.
	Closes bool

	runs    *Runs
	clock   clock.PassiveClock
	key     types.NamespacedName
	policy  policy.Checkpoint
	born    bool // the run was created while this process drove it
	noLimit bool // its tenant has none
	crowded bool // a write would wait for others of its namespace
}

// Session begins a pass over a run that is stored like this, and that this process wrote last under
// a lease, if that is writer. What does not stand any more is dropped.
func (r *Runs) Session(st *State, c clock.PassiveClock, key types.NamespacedName, stored *v1alpha1.WorkflowRun, mine bool) (s *Session, run *v1alpha1.WorkflowRun) {
	s = &Session{State: st, Stored: stored, runs: r, clock: c, key: key}
	run, stands := st.over(stored)
	if !stands {
		s.Drop()
	}
	if !mine {
		st.Alone = st.Alone && stored.Unwritten()
	}
	return s, run
}

// Under notes the policy of the run, and what else says whether it may begin ahead: whether it was
// created here, and whether its tenant has no limit.
func (s *Session) Under(p policy.Checkpoint, born, noLimit bool) {
	s.policy, s.born, s.noLimit = p, born && s.Stored.Unwritten(), noLimit
}

// Crowded notes that a write would wait for others of its namespace.
func (s *Session) Crowded(is bool) { s.crowded = is }

// Facts says to the core how far the run may be ahead.
func (s *Session) Facts() lifecycle.Checkpoint {
	return lifecycle.Checkpoint{Coalesced: s.policy.Coalesced, Begins: s.policy.Coalesced && s.born && s.noLimit, Since: s.Since}
}

// NoteFirst notes, before the first write, whether any other process can have worked on the run:
// first says that nobody had its lock before.
func (s *Session) NoteFirst(first bool) {
	if s.Stored.Unwritten() && !s.Lags() {
		s.Alone = first && s.born
	}
}

// MayHaveJournal says whether attempts may have been dispatched that status does not have.
func (s *Session) MayHaveJournal() bool {
	return s.policy.Coalesced || (s.Stored.Status != nil && s.Stored.Status.Checkpoint != nil)
}

// LooksFirst says whether attempts that begin are looked up before they are published: another
// process may have dispatched them ahead of status.
func (s *Session) LooksFirst() bool { return s.MayHaveJournal() && !s.Alone }

// Likely says whether a decision that may lag will not be written, as far as can be told before the
// lock is taken.
func (s *Session) Likely(mine bool) bool {
	return s.policy.Coalesced && !s.Off && !s.Closes && !s.Due() && (s.Lags() || mine)
}

// May says whether a decision that may lag is kept, with so many results, instead of written.
// claimed: the lease wrote the stored status. lacks: attempts are not known to be with NATS.
func (s *Session) May(results int, claimed, lacks bool) bool {
	switch {
	case !s.policy.Coalesced, s.Off, s.Closes, s.Due(), s.Results+results >= s.policy.MaxResults:
		return false
	case s.Lags() && lacks && s.Alone:
		return false // they are recovered, and that takes a write
	case s.Stored.Unwritten():
		return s.Alone
	default:
		return claimed
	}
}

// At is when what is kept is written, or is looked at again for that; zero: nothing is.
func (s *Session) At() time.Time {
	if !s.Lags() {
		return time.Time{}
	}
	at, now := s.Since.Add(s.policy.MaxDelay), s.clock.Now()
	if !s.crowded || at.After(now) {
		return at
	}
	if last := s.Since.Add(max(s.policy.MaxDelay, crowdedDelay)); last.Before(now.Add(s.policy.MaxDelay)) {
		return last
	}
	return now.Add(s.policy.MaxDelay)
}

// Due says whether what is kept is to be written now.
func (s *Session) Due() bool {
	at := s.At()
	return !at.IsZero() && !at.After(s.clock.Now())
}

// LingersUntil is until when the lease is kept though all is written; zero: it is not.
func (s *Session) LingersUntil() time.Time {
	if !s.policy.Coalesced || s.Off || s.Closes || s.Lags() || s.wroteAt.IsZero() {
		return time.Time{}
	}
	if until := s.wroteAt.Add(linger); until.After(s.clock.Now()) {
		return until
	}
	return time.Time{}
}

// Rests says whether what is kept need not be written yet.
func (s *Session) Rests() bool { return !s.Due() && !s.Closes }

// Keep keeps a decision, and says how the run is now.
func (s *Session) Keep(decided *v1alpha1.WorkflowRunStatus, results int) *v1alpha1.WorkflowRun {
	run := s.keep(s.Stored, decided, s.clock.Now())
	s.Results = results
	s.runs.note(run.UID, s.key, s.Since, results)
	return run
}

// Drop forgets what is kept. What it dispatched may be under way.
func (s *Session) Drop() {
	s.drop()
	s.runs.Forget(s.Stored.UID)
}

// Write is to be called when a status was written. It returns what another process may have
// dispatched of what the write cancelled.
func (s *Session) Write(next *v1alpha1.WorkflowRun) (left []lifecycle.Withdrawal) {
	if s.LooksFirst() {
		for _, j := range lifecycle.NeverBegun(s.Stored, next) {
			left = append(left, lifecycle.Withdrawal{ID: j.ID, Topic: j.Topic})
		}
	}
	s.written(s.clock.Now())
	s.Stored = next
	s.runs.Forget(next.UID)
	return left
}

// Left are attempts that a decision ends and that another process may be about to publish: those
// that status never had, and those of which this process does not know where they are.
func (s *Session) Left(run *v1alpha1.WorkflowRun, d *lifecycle.Decision, lacks []protocol.JobID) []lifecycle.Job {
	if !s.LooksFirst() {
		return nil
	}
	next := *run
	next.Status = &d.Status
	left := lifecycle.NeverBegun(s.Stored, &next)
	for _, j := range lifecycle.Outlines(run) {
		ends := slices.ContainsFunc(d.Withdraw, func(w lifecycle.Withdrawal) bool { return w.ID == j.ID })
		if ends && slices.Contains(lacks, j.ID) {
			left = append(left, j)
		}
	}
	return left
}
