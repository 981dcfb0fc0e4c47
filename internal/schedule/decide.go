// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Decide says what becomes of the slots that are due, and of the runs that there are.
func Decide(in Input) Decision {
	d := newDraft(in)
	d.settle()  // creations of before
	d.rewind()  // a clock that was ahead
	d.tally()   // failures in a row
	d.advance() // slots that are due
	d.drain()   // slots that wait
	d.fillBack()
	d.prune() // runs beyond the history limits
	d.cancel()
	d.toCreate()
	d.report()
	return d.Decision
}

func newDraft(in Input) *draft {
	status := in.Schedule.Status.DeepCopy()
	if status == nil {
		status = &v1alpha1.ScheduleStatus{}
	}
	if status.DecidedUntil == nil {
		first := stamp(in.Schedule.CreationTimestamp.Time)
		status.DecidedUntil = &first
	}
	d := &draft{Input: in, Decision: Decision{Status: status}, spec: &in.Schedule.Spec, bySlot: map[int64]*Run{}}
	d.mayGiveWay = MayGiveWay(&in, len(in.Runs))
	if status.Timing == nil && in.Table != nil {
		status.Timing = in.Schedule.Spec.ScheduleTiming.DeepCopy()
		d.Was = in.Table
	}
	d.Runs = slices.Clone(in.Runs)
	for i := range d.Runs {
		r := &d.Runs[i]
		r.Ended = EndOf(r.Ended, r.Created, in.Now)
		d.bySlot[Minute(r.Slot)] = r
	}
	return d
}

// hold is why slots get no run now; empty: they get one.
func (d *draft) hold() v1alpha1.SlotReason {
	switch {
	case d.Stop || d.Status.Held == v1alpha1.SlotStopped:
		return v1alpha1.SlotStopped
	case d.spec.Suspend: // also of a spec that nobody means to mend
		return v1alpha1.SlotSuspended
	case d.Table == nil:
		return v1alpha1.SlotInvalidSpec
	case d.Status.PausedGeneration != 0:
		return v1alpha1.SlotPaused
	default:
		return ""
	}
}

// advance decides the slots that are due. While the schedule is held they are left alone: they get
// their reason when that ends, so that nothing is written meanwhile.
func (d *draft) advance() {
	was, now := d.Status.Held, d.hold()
	if was == v1alpha1.SlotStopped {
		return // it has ended, and has no slots
	}
	edited := d.edited()
	d.letGo(now)
	switch {
	case was != "" && (was != now || edited):
		d.skipDue(was)
	case now != "" && was == "":
		d.skipDue(now)
	case now == "":
		d.makeRoom()
		d.catchUp(edited)
	}
	if d.Again {
		return // before the state of the schedule changes its slots of before are decided
	}
	d.enter(now, edited)
}

// letGo gives the slots that wait a reason, before those that came after them.
func (d *draft) letGo(now v1alpha1.SlotReason) {
	switch now {
	case v1alpha1.SlotStopped, v1alpha1.SlotSuspended, v1alpha1.SlotPaused: // nobody expects them when it ends
		for _, t := range d.Status.Waiting {
			d.skip(t.Time, now, "")
		}
		d.Status.Waiting = nil
	default: // a spec that is not valid is mended
	}
}

// enter begins another state, or another timing. What is decided until an edit ends between two
// slots: a range of slots that ends there is of the timing of now, see ofOneTiming.
func (d *draft) enter(now v1alpha1.SlotReason, edited bool) {
	if edited {
		d.Status.Timing = d.spec.ScheduleTiming.DeepCopy()
		d.Was = d.Table
		d.pass(d.Now)
		if until := d.Status.DecidedUntil.Time; until.Equal(until.Truncate(time.Minute)) {
			d.pass(until.Add(time.Second))
		}
	}
	if now != d.Status.Held {
		d.Begun = now
	}
	d.Status.Held = now
}

// edited says whether spec has another timing than that of the slots so far.
func (d *draft) edited() bool {
	return d.Table != nil && !equality.Semantic.DeepEqual(d.Status.Timing, &d.spec.ScheduleTiming)
}

// rewind goes back with a clock that was ahead by more than a day. Slots that have a run keep it.
// What failed is counted anew from the runs that there are, or none would count until
// that clock's time.
func (d *draft) rewind() {
	if since := d.Status.FailuresSince; since != nil && since.Sub(d.Now) > skew {
		d.Status.FailuresSince = nil
	}
	if d.Status.DecidedUntil.Sub(d.Now) > setBack {
		back := stamp(d.Now)
		d.Status.DecidedUntil = &back
		d.ClockSetBack = true
	}
}

// pass says that the slots until a time are decided. It never goes back.
func (d *draft) pass(until time.Time) {
	if until.After(d.Status.DecidedUntil.Time) {
		at := stamp(until.Truncate(time.Second))
		d.Status.DecidedUntil = &at
	}
}
