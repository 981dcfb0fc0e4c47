// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// next is when the operator looks at the run again with no new fact: what
// lifecycle.Decide calls Wake.
func (v *viewer) next() *Moment {
	var first *Moment
	for _, m := range v.moments() {
		if first == nil || m.At.Before(first.At) {
			first = &m
		}
	}
	return first
}

func (v *viewer) moments() []Moment {
	if v.answer.Ended {
		if at := status.Expiry(v.run, v.st); !at.IsZero() {
			return []Moment{{at.UTC(), "the run is deleted (ttlSecondsAfterFinished)"}}
		}
		return nil
	}
	var all []Moment
	if at := v.activeDeadline(); at != nil {
		all = append(all, Moment{*at, "the run times out (activeDeadlineSeconds)"})
	}
	if at := v.queueDeadline(); at != nil {
		all = append(all, Moment{*at, "the run times out (queueTimeoutSeconds)"})
	}
	if at := v.finallyDeadline(); at != nil {
		all = append(all, Moment{*at, "the run ends, whether its finally steps are over or not (finallyTimeoutSeconds)"})
	}
	if v.answer.Reason == v1alpha1.ReasonWaitingForLock && v.waitsForLocks() == nil {
		return all // steps do not move without the lock
	}
	return append(all, v.stepMoments()...)
}

// stepMoments leaves out the end of a wait that changes nothing: while suspended, or without a
// place, no attempt begins.
func (v *viewer) stepMoments() []Moment {
	var all []Moment
	for i := range v.all {
		s := &v.all[i]
		if at, code := s.timeout(); at != nil {
			all = append(all, Moment{*at, "attempt of step " + s.spec.Name + " fails as " + code})
		}
		all = append(all, s.itemMoments(suspended(v.run))...)
		if at, what := s.ripe(); at != nil {
			all = append(all, Moment{*at, what})
		}
	}
	if suspended(v.run) {
		return all
	}
	return append(all, nextAttempts(v.all, active(v.all) < parallel(v.run))...)
}

// nextAttempts are of steps that have a place, or find a free one.
func nextAttempts(steps []step, free bool) (all []Moment) {
	for i := range steps {
		s := &steps[i]
		at := microTime(s.status.NextAttemptAt)
		if at != nil && s.status.Phase == v1alpha1.StepBackingOff && (free || dag.HasPlace(s.spec, &s.status)) {
			all = append(all, Moment{*at, "next attempt of step " + s.spec.Name})
		}
	}
	return all
}

// deadlines tells of the moments that end the run, and of an operator that is late.
func (v *viewer) deadlines() {
	if at := v.activeDeadline(); at != nil {
		v.add(Fact{About: "deadline", Text: "activeDeadlineSeconds", Until: at, Then: "the run times out"})
	}
	if at := v.queueDeadline(); at != nil {
		v.add(Fact{About: "deadline", Text: "queueTimeoutSeconds", Until: at, Then: "the run times out"})
	}
	if n := v.next(); n != nil && v.now.Sub(n.At) > patience {
		v.late(n.At, "was due and did not happen: "+n.What)
	} else if v.condition(v1alpha1.ConditionSucceeded) == nil && v.now.Sub(v.run.CreationTimestamp.Time) > patience {
		v.late(v.run.CreationTimestamp.Time, "the run was not looked at")
	}
}

// operatorHelp is for a run that nobody seems to work on.
const operatorHelp = "see whether the operator runs, leads, and is ready: its readyz names what it cannot reach"

func (v *viewer) late(since time.Time, text string) {
	v.add(Fact{About: "operator", Text: text, Since: utc(since)})
	v.advice = append(v.advice, operatorHelp)
}

func (v *viewer) activeDeadline() *time.Time {
	if v.run.Spec.ActiveDeadlineSeconds == nil || !v.admitted() || v.st.Ending != nil {
		return nil // the finally steps have a bound of their own
	}
	return utc(v.st.Admission.AdmittedAt.Add(time.Duration(*v.run.Spec.ActiveDeadlineSeconds) * time.Second))
}

// queueDeadline counts from queuedAt: before that the clock does not run.
func (v *viewer) queueDeadline() *time.Time {
	if v.run.Spec.QueueTimeoutSeconds == nil || v.admitted() || v.run.Spec.Suspend || v.st.Admission == nil || v.st.Admission.QueuedAt == nil {
		return nil
	}
	return utc(v.queuedAt().Add(time.Duration(*v.run.Spec.QueueTimeoutSeconds) * time.Second))
}
