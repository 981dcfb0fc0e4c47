// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/cron"
)

const (
	// maxSlots bounds the slots that one decision looks at.
	maxSlots = 10_000
	// maxActive bounds the runs of a schedule that are under way, with overlap Allow.
	maxActive = 100
	// maxWaiting bounds the slots that wait, with overlap BufferAll.
	maxWaiting = 100
	// maxSkipped bounds the ranges in status.
	maxSkipped = 20
	// maxCounted bounds the slots of a range that are counted to see whether it goes on.
	maxCounted = 1000
	// maxBackfill bounds the runs of a backfill that are under way, with overlap Allow.
	maxBackfill = 10
	// setBack is how far ahead of the clock decidedUntil may be. A clock that was ahead by less
	// is waited for.
	setBack = 24 * time.Hour
	// skew is how far apart the clocks of two operators may be. An end beyond that is not believed.
	skew    = time.Minute
	shown   = 3
	maxText = 500
)

// Input is what a decision depends on.
type Input struct {
	Now time.Time
	// Schedule as the API server has it.
	Schedule *v1alpha1.Schedule
	// Table is that of spec; nil: spec is not valid, and Invalid says why.
	Table   *cron.Timetable
	Invalid string
	// Was is the table of status.timing; nil: there is none.
	Was *cron.Timetable
	// Refused says why runs of spec.runTemplate would be refused; empty: they would not.
	Refused string
	// Doubt says why they would be refused for now; empty: they would not. It may end without an
	// edit, so slots that are due are started all the same.
	Doubt string
	// Unasked says that nobody has answered yet whether they would be refused.
	Unasked bool
	// Stuck says what stands in the way of a slot that has waited for its run; empty: nothing.
	Stuck string
	// Stop says that spec.stopWhen is true.
	Stop bool
	// Runs are those that the schedule owns.
	Runs []Run
	// Failed are creations that failed for good, by slot.
	Failed map[int64]Failure
	// Tried are slots of status.starting whose run could not be created so far, with why. Where
	// MayGiveWay says so, the API server has none of these runs: elsewhere none of them makes room.
	Tried map[int64]string
}

// Run is a run of the schedule.
type Run struct {
	Name string
	// UID tells it from one that was made anew under its name; "" where it is not known yet.
	UID   string
	Slot  time.Time
	Phase Phase
	// Created is when the API server created it; Ended is when it ended, as its
	// operator's clock says.
	Created, Ended time.Time
	// Cancelled says that it is being cancelled.
	Cancelled bool
	// CleansUp says that it ended, and a run below it is at its clean-up.
	CleansUp bool
	// Deleting says that it is being deleted: a finalizer may keep it for long.
	Deleting bool
	// NeedsNewer says that an operator of this version may not write it: it is neither cancelled
	// nor deleted. That it ended, and how, is not taken back, and is believed.
	NeedsNewer bool
}

// underWay says whether the next slot would begin beside a run.
func (r *Run) underWay() bool { return r.Phase == Active || r.CleansUp }

// Phase is how far a run is.
type Phase int

// The phases. A run that waits to be admitted is Active.
const (
	Active Phase = iota
	Succeeded
	Failed
	// Cancelled is neither a success nor a failure.
	Cancelled
)

// Failure is why the run of a slot cannot be created.
type Failure struct {
	Reason  v1alpha1.SlotReason
	Message string
}

// Decision is what is to be done, in this order.
type Decision struct {
	// Status is to be written, if it is another.
	Status *v1alpha1.ScheduleStatus
	// Create are slots whose run is to be created, once Status is written.
	Create []time.Time
	// Cancel and Delete are those to cancel, and to delete as there are enough that ended. Some of
	// these may have to wait.
	Cancel, Delete []Run
	// Skipped are slots that got a reason now.
	Skipped []v1alpha1.SkippedSlots
	// Begun is why slots get no run from this decision on, be the schedule held or its template
	// refused for good; empty: they do, or nothing changed.
	Begun v1alpha1.SlotReason
	// ClockSetBack says that slots may be decided again, because the clock was far ahead.
	ClockSetBack bool
	// Again says that more slots are due. Wake is when to decide again if nothing happens; zero: no
	// time is known.
	Again bool
	Wake  time.Time
}

// draft is a decision that is being made.
type draft struct {
	Input
	Decision
	spec *v1alpha1.ScheduleSpec
	// mayGiveWay says that the runs of Input.Tried were looked up.
	mayGiveWay bool
	// bySlot has the runs, by the minute of their slot.
	bySlot map[int64]*Run
}

// EndOf is when a run ended that was created at a time. An end that is to come was written by a
// clock that was ahead: it counts as the creation, which the API server's clock says. Otherwise
// that run would be the one that ended last for as long as the clock was ahead.
func EndOf(ended, created, now time.Time) time.Time {
	if ended.Sub(now) > skew {
		return created
	}
	return ended
}

func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.UTC()) }
