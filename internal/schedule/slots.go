// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func (d *draft) due(slot time.Time) time.Time {
	return Due(d.Was, d.Schedule.Name, slot, time.Duration(d.Status.Timing.JitterSeconds)*time.Second)
}

// each calls f for the slots until now which are not decided, in order. It stops after maxSlots of
// them, and says so by Again; what was the last is returned.
func (d *draft) each(until func(slot time.Time) bool, f func(slot time.Time)) (last time.Time) {
	last = d.Status.DecidedUntil.Time
	if d.Was == nil {
		return last
	}
	for n := 0; ; n++ {
		slot, ok := d.Was.Next(last)
		if !ok || !until(slot) {
			return last
		}
		if n == maxSlots {
			d.Again = true
			return last
		}
		f(slot)
		last = slot
	}
}

// skipDue gives the slots that have come a reason.
func (d *draft) skipDue(reason v1alpha1.SlotReason) {
	last := d.each(func(slot time.Time) bool { return !slot.After(d.Now) }, func(slot time.Time) {
		if !d.taken(slot) {
			d.skip(slot, reason, "")
		}
		d.pass(slot)
	})
	d.pass(last)
}

// catchUp starts the slots that are due, or lets them wait, or gives them a reason. Where the
// timing changes all that have come are due.
func (d *draft) catchUp(all bool) {
	keep := mostLate(d.spec)
	var late []time.Time // the latest that may be started
	last := d.each(func(slot time.Time) bool {
		return !slot.After(d.Now) && (all || !d.due(slot).After(d.Now))
	}, func(slot time.Time) {
		switch {
		case d.taken(slot): // before a clock was set back
		case d.Now.Sub(d.due(slot)) > time.Duration(d.spec.CatchUp.WindowSeconds)*time.Second:
			d.skip(slot, v1alpha1.SlotMissed, "")
		default:
			late = append(late, slot)
		}
		if len(late) > keep {
			d.skip(late[0], v1alpha1.SlotNotLatest, "")
			d.pass(late[0])
			late = late[1:]
		}
		if len(late) == 0 {
			d.pass(slot)
		}
	})
	d.offerLate(late, last)
}

// mostLate is how many slots that are due one decision starts at most.
func mostLate(spec *v1alpha1.ScheduleSpec) int {
	if spec.CatchUp.Policy == v1alpha1.CatchUpAll {
		return int(max(spec.CatchUp.Max, 1))
	}
	return 1
}

// offerLate decides the slots that are kept. If there are more, these may not be the latest: they
// are looked at again.
func (d *draft) offerLate(late []time.Time, last time.Time) {
	if d.Again {
		return
	}
	for _, slot := range late {
		d.offer(slot)
		d.pass(slot)
	}
	d.pass(last)
}

// skip gives a slot a reason.
func (d *draft) skip(slot time.Time, reason v1alpha1.SlotReason, message string) {
	d.Status.NotStarted++
	d.Status.Skipped = d.add(d.Status.Skipped, slot, reason, message)
	d.Skipped = d.add(d.Skipped, slot, reason, message)
	if n := len(d.Status.Skipped); n > maxSkipped {
		d.Status.Skipped = d.Status.Skipped[n-maxSkipped:]
	}
}

// add appends a slot to the last range, if it is the next after it and has the same reason.
// Otherwise it is a new range.
func (d *draft) add(ranges []v1alpha1.SkippedSlots, slot time.Time, reason v1alpha1.SlotReason, message string) []v1alpha1.SkippedSlots {
	message = message[:min(len(message), maxText)]
	if n := len(ranges); n > 0 {
		last := &ranges[n-1]
		if last.Reason == reason && d.follows(last, slot) {
			last.To, last.Message = stamp(slot), message
			last.Count++
			return ranges
		}
	}
	return append(ranges, v1alpha1.SkippedSlots{From: stamp(slot), To: stamp(slot), Count: 1, Reason: reason, Message: message})
}

// follows says whether a slot is the next after a range, and all of these are slots of the timing
// of now. A slot of an earlier timing, that waited, is followed by none.
func (d *draft) follows(last *v1alpha1.SkippedSlots, slot time.Time) bool {
	if d.Was == nil || !slot.After(last.To.Time) {
		return false
	}
	next, ok := d.Was.Next(last.To.Time)
	return ok && next.Equal(slot) && d.ofOneTiming(last)
}

// ofOneTiming says whether the slots of a range are those that the timing of now has between its
// ends. A range that ends where all is decided is: an edit decides until some moment between two
// slots. Of another one the slots are counted. A range of more than maxCounted is not looked
// through: a new one begins behind it.
func (d *draft) ofOneTiming(r *v1alpha1.SkippedSlots) bool {
	if r.To.Equal(d.Status.DecidedUntil) {
		return true
	}
	at := r.From.Add(-time.Second)
	for range min(r.Count, maxCounted) {
		slot, ok := d.Was.Next(at)
		if !ok || at.Before(r.From.Time) && !slot.Equal(r.From.Time) {
			return false
		}
		at = slot
	}
	return at.Equal(r.To.Time)
}
