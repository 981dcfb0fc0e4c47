// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// settle takes note of runs that were created, and of those that cannot be.
func (d *draft) settle() {
	d.Status.Starting = slices.DeleteFunc(d.Status.Starting, func(t metav1.Time) bool {
		if d.bySlot[Minute(t.Time)] != nil {
			return true
		}
		why, failed := d.Failed[Minute(t.Time)]
		if failed {
			d.lose(t.Time, why.Reason, why.Message)
		}
		return failed
	})
	if len(d.Status.Starting) == 0 {
		d.Status.Starting = nil
	}
}

// lose gives a slot a reason that was to get a run.
func (d *draft) lose(slot time.Time, reason v1alpha1.SlotReason, message string) {
	d.unstart(slot)
	d.skip(slot, reason, message)
}

// unstart takes back that a slot got a run.
func (d *draft) unstart(slot time.Time) {
	d.Status.Started--
	if b := d.Status.Backfill; b != nil && b.Started > 0 && BackfillHas(b, slot) {
		b.Started--
	}
	name := RunName(d.Schedule.Name, slot)
	for i := range d.Status.Last {
		if d.Status.Last[i].Run == name {
			d.Status.Last = slices.Delete(d.Status.Last, i, i+1)
			return
		}
	}
}

// tally counts failures in a row, and begins and ends a pause. Failed runs that count are in the
// history, so nothing has to be remembered of them.
func (d *draft) tally() {
	s := d.Status
	if s.PausedGeneration != 0 && s.PausedGeneration != d.Schedule.Generation {
		s.PausedGeneration = 0
		d.since(d.Now)
	}
	for i := range d.Runs {
		if d.Runs[i].Phase == Succeeded {
			d.since(d.Runs[i].Ended)
		}
	}
	if n := d.failures(); s.PausedGeneration == 0 || n > s.Failures { // else runs of the pause were deleted
		s.Failures = n
	}
	if most := d.spec.PauseAfterFailures; most != nil && s.Failures >= *most && s.PausedGeneration == 0 {
		s.PausedGeneration = d.Schedule.Generation
	}
}

// failures counts runs that failed after status.failuresSince.
func (d *draft) failures() (n int32) {
	for i := range d.Runs {
		if r := &d.Runs[i]; r.Phase == Failed && d.counts(r) {
			n++
		}
	}
	return n
}

// counts says whether a failure is one of those in a row.
func (d *draft) counts(r *Run) bool {
	since := d.Status.FailuresSince
	return since == nil || r.Ended.After(since.Time)
}

// since says that failures until a time do not count any more.
func (d *draft) since(t time.Time) {
	if t = t.Truncate(time.Second); d.Status.FailuresSince == nil || t.After(d.Status.FailuresSince.Time) {
		at := stamp(t)
		d.Status.FailuresSince = &at
	}
}

// prune deletes ended runs beyond the history limits, those first that ended first. The last failed
// runs that a pause is made of stay, however many were cancelled meanwhile. Others have one place
// beside them, if they have any: how a run ended can be seen. One that is being deleted is left to
// who keeps it from being gone, and one that needs a newer operator to that.
func (d *draft) prune() {
	var good, failed, bad []*Run
	for i := range d.Runs {
		switch r := &d.Runs[i]; {
		case r.Phase == Active || r.Deleting || r.NeedsNewer:
		case r.Phase == Succeeded:
			good = append(good, r)
		case r.Phase == Failed && d.counts(r):
			failed = append(failed, r)
		default:
			bad = append(bad, r)
		}
	}
	counted, most := 0, limit(d.spec.FailedRunsHistoryLimit)
	if d.spec.PauseAfterFailures != nil {
		counted = min(int(*d.spec.PauseAfterFailures), len(failed))
	}
	byEnd(failed)
	bad = append(bad, failed[:len(failed)-counted]...)
	d.delete(good, limit(d.spec.SuccessfulRunsHistoryLimit))
	d.delete(bad, max(most-counted, min(most, 1)))
}

const defaultHistory = 3

func limit(n *int32) int {
	if n == nil {
		return defaultHistory
	}
	return int(*n)
}

// byEnd sorts runs: those first that ended first.
func byEnd(runs []*Run) {
	slices.SortFunc(runs, func(a, b *Run) int { return cmp.Or(a.Ended.Compare(b.Ended), a.Slot.Compare(b.Slot)) })
}

// delete takes no more than there are: some may have to wait, and those are not to keep the others.
func (d *draft) delete(runs []*Run, keep int) {
	byEnd(runs)
	for _, r := range runs[:max(len(runs)-keep, 0)] {
		d.Delete = append(d.Delete, *r)
	}
}

// toCreate are the runs of status.starting.
func (d *draft) toCreate() {
	for _, t := range d.Status.Starting {
		if d.bySlot[Minute(t.Time)] == nil {
			d.Create = append(d.Create, t.Time)
		}
	}
}
