// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// busy is how many runs are under way, those that are about to be created included.
func (d *draft) busy() int {
	n := 0
	for i := range d.Runs {
		if d.Runs[i].underWay() {
			n++
		}
	}
	return n + len(d.Status.Starting)
}

// tried is how many of those that are about to be created could not be so far.
func (d *draft) tried() (n int) {
	for _, t := range d.Status.Starting {
		if _, failed := d.Tried[Minute(t.Time)]; failed {
			n++
		}
	}
	return n
}

// MayGiveWay says whether Decide may let slots of Input.Tried make room for one that has come. The
// schedule has so many runs that are known, those that no cache has yet included. Decide may start
// all slots but one that it catches up before it lets one make room.
func MayGiveWay(in *Input, runs int) bool {
	status := in.Schedule.Status
	if status == nil || status.DecidedUntil == nil || in.Was == nil {
		return false
	}
	if in.Schedule.Spec.Overlap == v1alpha1.OverlapAllow && runs+len(status.Starting)+mostLate(&in.Schedule.Spec)-1 < maxActive {
		return false
	}
	slot, ok := in.Was.Next(status.DecidedUntil.Time)
	return ok && !slot.After(in.Now)
}

// bounds are how many runs may be under way, and how many slots may wait, before a slot
// gets no run.
func (d *draft) bounds() (active, waiting int) {
	switch d.spec.Overlap {
	case v1alpha1.OverlapAllow:
		return maxActive, 0
	case v1alpha1.OverlapBufferOne:
		return 1, 1
	case v1alpha1.OverlapBufferAll, v1alpha1.OverlapCancelOther:
		return 1, maxWaiting
	default:
		return 1, 0
	}
}

// giveWay lets slots whose run could not be created so far make room for one that would be lost for
// them alone, the first ones first. Nobody would tell of that one: its reason would be one that
// users ask for, and nothing is under way. The caller has looked for their runs only where
// MayGiveWay says so.
func (d *draft) giveWay() {
	active, waiting := d.bounds()
	if !d.mayGiveWay || len(d.Status.Waiting) < waiting || d.busy()-d.tried() >= active {
		return
	}
	room := d.busy() - active
	d.Status.Starting = slices.DeleteFunc(d.Status.Starting, func(t metav1.Time) bool {
		why, failed := d.Tried[Minute(t.Time)]
		if !failed || room < 0 {
			return false
		}
		room--
		d.lose(t.Time, v1alpha1.SlotStartFailed, why)
		return true
	})
	d.makeRoom()
}

// offer starts a slot, or lets it wait, or gives it a reason, as spec.overlap says.
func (d *draft) offer(slot time.Time) {
	d.giveWay()
	busy := d.busy()
	if busy == 0 && len(d.Status.Waiting) == 0 || d.spec.Overlap == v1alpha1.OverlapAllow && busy < maxActive {
		d.begin(slot)
		return
	}
	waiting := len(d.Status.Waiting)
	switch d.spec.Overlap {
	case v1alpha1.OverlapBufferOne:
		d.wait(slot, waiting == 0)
	case v1alpha1.OverlapBufferAll:
		d.wait(slot, waiting < maxWaiting)
	case v1alpha1.OverlapCancelOther:
		for _, t := range d.Status.Waiting {
			d.skip(t.Time, v1alpha1.SlotSuperseded, "")
		}
		d.Status.Waiting = nil
		d.wait(slot, true)
	default:
		d.skip(slot, v1alpha1.SlotOverlap, "")
	}
}

func (d *draft) wait(slot time.Time, room bool) {
	if !room {
		d.skip(slot, v1alpha1.SlotBufferFull, "")
		return
	}
	d.Status.Waiting = append(d.Status.Waiting, stamp(slot))
}

// begin writes down that a slot gets a run. It is created after that is stored.
func (d *draft) begin(slot time.Time) {
	d.Status.Starting = append(d.Status.Starting, stamp(slot))
	d.Status.Started++
	d.Status.Last = slices.Insert(d.Status.Last, 0, v1alpha1.StartedSlot{Time: d.local(slot), Run: RunName(d.Schedule.Name, slot)})
	d.Status.Last = d.Status.Last[:min(len(d.Status.Last), shown)]
}

// drain starts slots that wait, once nothing is under way.
func (d *draft) drain() {
	for d.Status.Held == "" && len(d.Status.Waiting) > 0 {
		if busy := d.busy(); busy > 0 && (d.spec.Overlap != v1alpha1.OverlapAllow || busy >= maxActive) {
			return
		}
		slot := d.Status.Waiting[0].Time
		d.Status.Waiting = d.Status.Waiting[1:]
		if d.bySlot[Minute(slot)] == nil {
			d.begin(slot)
		}
	}
	if len(d.Status.Waiting) == 0 {
		d.Status.Waiting = nil
	}
}

// makeRoom starts a slot that waits before others are decided: it would have begun before they
// came, had somebody been there when the run before ended.
func (d *draft) makeRoom() {
	if d.spec.Overlap == v1alpha1.OverlapBufferOne || d.spec.Overlap == v1alpha1.OverlapBufferAll {
		d.drain()
	}
}

// cancel cancels what is under way if a slot waits for that. The run of a slot that waits was
// started by somebody who knew more.
func (d *draft) cancel() {
	if d.spec.Overlap != v1alpha1.OverlapCancelOther || len(d.Status.Waiting) == 0 {
		return
	}
	for i := range d.Runs {
		if r := &d.Runs[i]; r.Phase == Active && !r.Cancelled && !has(d.Status.Waiting, r.Slot) {
			d.Cancel = append(d.Cancel, *r)
		}
	}
}

// fillsBack says whether slots of the past may be started. What is due is decided first, so that a
// backfill sees it as past. Its slots can wait for a template whose runs are not refused.
func (d *draft) fillsBack() bool {
	return d.Status.Held == "" && !d.Again && d.Was != nil && d.Refused == "" && d.Doubt == ""
}

// fillBack starts slots of the past that have no run.
func (d *draft) fillBack() {
	if d.spec.Backfill != nil && !d.fillsBack() {
		return
	}
	b := d.backfill()
	if b == nil {
		return
	}
	most := 1
	if d.spec.Overlap == v1alpha1.OverlapAllow {
		most = maxBackfill
	}
	for n := 0; n < maxSlots && b.FinishedAt == nil && d.backfillNext(b, most); n++ {
	}
}

// backfillNext decides the next slot of a backfill; false: it has to wait for the end of a run.
func (d *draft) backfillNext(b *v1alpha1.BackfillStatus, most int) bool {
	slot, ok := d.Was.Next(b.DoneUntil.Time)
	if !ok || slot.After(b.To.Time) || slot.After(b.Before.Time) {
		at := stamp(d.Now.Truncate(time.Second))
		b.FinishedAt = &at
		return true
	}
	if !d.taken(slot) {
		if d.backfilling(b) >= most || d.busy() >= maxActive || len(d.Status.Waiting) > 0 {
			return false
		}
		d.begin(slot)
		b.Started++
	}
	b.DoneUntil = stamp(slot)
	return true
}

// backfilling is how many runs under way a backfill waits for: its own, with overlap Allow.
func (d *draft) backfilling(b *v1alpha1.BackfillStatus) (n int) {
	if d.spec.Overlap != v1alpha1.OverlapAllow {
		return d.busy()
	}
	for i := range d.Runs {
		if r := &d.Runs[i]; r.underWay() && BackfillHas(b, r.Slot) {
			n++
		}
	}
	for _, t := range d.Status.Starting {
		if BackfillHas(b, t.Time) {
			n++
		}
	}
	return n
}

// backfill is how far spec.backfill is; nil: there is none.
func (d *draft) backfill() *v1alpha1.BackfillStatus {
	if d.spec.Backfill == nil {
		d.Status.Backfill = nil
		return nil
	}
	want, b := asStored(d.spec.Backfill), d.Status.Backfill
	if b == nil || !b.From.Equal(&want.From) || !b.To.Equal(&want.To) {
		d.Status.Backfill = &v1alpha1.BackfillStatus{
			Backfill: want, DoneUntil: stamp(d.spec.Backfill.From.Add(-1).Truncate(time.Second)), Before: stamp(d.Status.DecidedUntil.Time),
		}
	}
	return d.Status.Backfill
}

// BackfillHas says whether a slot is one of a backfill.
func BackfillHas(b *v1alpha1.BackfillStatus, slot time.Time) bool {
	return b != nil && !slot.Before(b.From.Time) && !slot.After(b.To.Time) && !slot.After(b.Before.Time)
}

// asStored is a backfill as status has it. A user may write 12:00:00.5Z, and status has whole
// seconds: compared as they are, each decision would take it for another backfill.
func asStored(b *v1alpha1.Backfill) v1alpha1.Backfill {
	return v1alpha1.Backfill{From: stamp(b.From.Truncate(time.Second)), To: stamp(b.To.Truncate(time.Second))}
}

// taken says whether a slot has a run, or is about to get one.
func (d *draft) taken(slot time.Time) bool {
	return d.bySlot[Minute(slot)] != nil || has(d.Status.Starting, slot) || has(d.Status.Waiting, slot)
}

func has(slots []metav1.Time, slot time.Time) bool {
	return slices.ContainsFunc(slots, func(t metav1.Time) bool { return t.Time.Equal(slot) })
}
