// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Reasons of the conditions Ready and Stalled of a Schedule.
const (
	// ReasonScheduled (Ready=True): runs are started.
	ReasonScheduled = "Scheduled"
	// ReasonScheduleSuspended (Ready=True): spec.suspend is set.
	ReasonScheduleSuspended = "Suspended"
	// ReasonStopped (Ready=True): spec.stopWhen was true; the schedule has ended.
	ReasonStopped = "Stopped"
	// ReasonPaused (Ready=False, Stalled=True): as many runs failed in a row as
	// spec.pauseAfterFailures says.
	ReasonPaused = "Paused"
	// ReasonInvalidSchedule (Ready=False, Stalled=True): spec has an error; the message says in
	// which field.
	ReasonInvalidSchedule = "InvalidSpec"
	// ReasonTemplateRefused (Ready=False, Stalled=True): a run of spec.runTemplate would be
	// refused; the message says why. Stalled=False where it is forbidden for now, as by a full
	// quota: slots are tried all the same.
	ReasonTemplateRefused = "TemplateRefused"
)

// SlotReason says why a slot has no run.
//
// +kubebuilder:validation:Enum=Missed;NotLatest;Overlap;BufferFull;Superseded;Suspended;Paused;Stopped;InvalidSpec;TemplateRefused;NameTaken;StartFailed
type SlotReason string

// The reasons.
const (
	// SlotMissed: no operator was there within spec.catchUp.windowSeconds.
	SlotMissed SlotReason = "Missed"
	// SlotNotLatest: it was late, and spec.catchUp starts later ones only.
	SlotNotLatest SlotReason = "NotLatest"
	// SlotOverlap: a run was under way, and spec.overlap is Skip; or 100 were, and it is Allow.
	SlotOverlap SlotReason = "Overlap"
	// SlotBufferFull: as many slots waited as spec.overlap allows.
	SlotBufferFull SlotReason = "BufferFull"
	// SlotSuperseded: it waited for the end of a run, and a later slot came; spec.overlap
	// is CancelOther.
	SlotSuperseded SlotReason = "Superseded"
	// SlotSuspended: spec.suspend was set.
	SlotSuspended SlotReason = "Suspended"
	// SlotPaused: the schedule was paused after failures.
	SlotPaused SlotReason = "Paused"
	// SlotStopped: it waited when the schedule stopped.
	SlotStopped SlotReason = "Stopped"
	// SlotInvalidSpec: spec had an error. Slots are those of the spec before.
	SlotInvalidSpec SlotReason = "InvalidSpec"
	// SlotTemplateRefused: the run of spec.runTemplate was refused.
	SlotTemplateRefused SlotReason = "TemplateRefused"
	// SlotNameTaken: a run that is not of this schedule has the name.
	SlotNameTaken SlotReason = "NameTaken"
	// SlotStartFailed: the run could not be created within spec.catchUp.windowSeconds, or before a
	// later slot took its place.
	SlotStartFailed SlotReason = "StartFailed"
)

// ScheduleStatus says what became of the slots of a schedule.
type ScheduleStatus struct {
	// observedGeneration is the metadata.generation that this status reflects; -1: no operator has
	// looked at the schedule yet.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions holds Ready, and Stalled for tools that know kstatus.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=4
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// next are the next three slots, with their offset from UTC, as 2026-03-29T03:00:00+02:00.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MaxLength=32
	Next []string `json:"next,omitempty"`
	// last are the last three slots that were started, the latest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	Last []StartedSlot `json:"last,omitempty"`
	// skipped are slots without a run, and why: the last 20 ranges.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Skipped []SkippedSlots `json:"skipped,omitempty"`
	// active is how many runs of the schedule are under way or wait.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Active int32 `json:"active"`
	// started is how many slots got a run so far.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Started int64 `json:"started"`
	// notStarted is how many slots got none so far.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NotStarted int64 `json:"notStarted"`
	// failures is how many runs failed since one succeeded, of those that are kept.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures int32 `json:"failures,omitempty"`
	// decidedUntil is the last time whose slots are decided: they have a run or a reason, or are
	// in waiting.
	// +optional
	DecidedUntil *metav1.Time `json:"decidedUntil,omitempty"`
	// timing is that of the slots after decidedUntil until the operator sees another in spec.
	// +optional
	Timing *ScheduleTiming `json:"timing,omitempty"`
	// starting are slots that get a run: it is created after it is named here.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Starting []metav1.Time `json:"starting,omitempty"`
	// waiting are slots that wait for the end of a run.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Waiting []metav1.Time `json:"waiting,omitempty"`
	// held says why slots get no run now: Suspended, Paused, InvalidSpec, Stopped. They are listed
	// in skipped when that ends.
	// +optional
	Held SlotReason `json:"held,omitempty"`
	// pausedGeneration is the metadata.generation for which the schedule paused.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PausedGeneration int64 `json:"pausedGeneration,omitempty"`
	// failuresSince is the time of the last success, or of the end of the last pause.
	// +optional
	FailuresSince *metav1.Time `json:"failuresSince,omitempty"`
	// backfill is how far spec.backfill is.
	// +optional
	Backfill *BackfillStatus `json:"backfill,omitempty"`
}

// StartedSlot is a slot that got a run.
type StartedSlot struct {
	// time of the slot, with its offset from UTC.
	// +required
	// +kubebuilder:validation:MaxLength=32
	Time string `json:"time"`
	// run is the name of the run.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Run string `json:"run"`
}

// SkippedSlots are slots in a row that got no run, for one reason.
type SkippedSlots struct {
	// from is the first slot.
	// +required
	From metav1.Time `json:"from"`
	// to is the last.
	// +required
	To metav1.Time `json:"to"`
	// count is how many there are.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int64 `json:"count"`
	// reason is why.
	// +required
	Reason SlotReason `json:"reason"`
	// message says more, of the last slot. Absent: the reason says all.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// BackfillStatus is how far a backfill is.
type BackfillStatus struct {
	Backfill `json:",inline"`
	// doneUntil is the last slot that was started, had a run, or has a reason for having none.
	// +required
	DoneUntil metav1.Time `json:"doneUntil"`
	// before is until when slots were decided when the backfill began: later ones are none of it.
	// +required
	Before metav1.Time `json:"before"`
	// started is how many runs it started.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Started int64 `json:"started"`
	// finishedAt is when all of its slots had a run, or a reason for having none. Absent:
	// it goes on.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}
