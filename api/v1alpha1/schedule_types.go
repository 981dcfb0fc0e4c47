// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Schedule starts a run at each slot of its cron texts. The run of a slot is named after the
// schedule and the minute of the slot, so a slot has one run at most.
//
// Names have 54 characters at most, so that those of its runs have 63.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sched,categories=syncopate
// +kubebuilder:printcolumn:name="Cron",type=string,JSONPath=`.spec.cron[0]`
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.spec.timeZone`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.active`
// +kubebuilder:printcolumn:name="Last",type=string,JSONPath=`.status.last[0].time`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.next[0]`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Overlap",type=string,priority=1,JSONPath=`.spec.overlap`
// +kubebuilder:printcolumn:name="NotStarted",type=integer,priority=1,JSONPath=`.status.notStarted`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 54",message="the name of a schedule has at most 54 characters: its runs have 9 more"
type Schedule struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what to start and when. Written by the user. A change of cron, timeZone, dst or
	// jitterSeconds counts for slots after the operator has seen it.
	// +required
	Spec ScheduleSpec `json:"spec"`
	// status says what became of the slots so far. Written by the operator.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status *ScheduleStatus `json:"status,omitempty"`
}

// ScheduleList is a list of schedules.
//
// +kubebuilder:object:root=true
type ScheduleList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the schedules.
	Items []Schedule `json:"items"`
}

// ScheduleTiming is when a schedule is due.
type ScheduleTiming struct {
	// cron are cron texts as those of CronJobs: minute, hour, day of month, month, day of week, or
	// @daily and the like. A time that several of them name is one slot. At most 10.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^\s*(@[A-Za-z]+|[0-9A-Za-z*?/,-]+(\s+[0-9A-Za-z*?/,-]+){4})\s*$`
	Cron []string `json:"cron,omitempty"`
	// timeZone is the name of a zone in the tz database, as Europe/Berlin. Default UTC.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// dst says what happens where clocks are set.
	// +optional
	DST DaylightSaving `json:"dst,omitzero"`
	// jitterSeconds spreads the starts: the run of a slot is created so many seconds later at
	// most, and before the next slot. How many is a hash of schedule and slot. Absent: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	JitterSeconds int32 `json:"jitterSeconds,omitempty"`
}

// DaylightSaving says what happens where clocks are set.
type DaylightSaving struct {
	// gap is about slots at times that are left out. RunAfter: they are one slot, at the first
	// minute after the gap. Skip: there is none. Absent: Skip for a text whose hour field is every
	// hour, else RunAfter.
	// +optional
	Gap SlotGap `json:"gap,omitempty"`
	// repeat is about slots at times that come twice. First: the second is none. Both: each is one.
	// Absent: Both for a text whose hour field is every hour, else First.
	// +optional
	Repeat SlotRepeat `json:"repeat,omitempty"`
}

// SlotGap says what becomes of slots at times that are left out.
//
// +kubebuilder:validation:Enum=RunAfter;Skip
type SlotGap string

// SlotRepeat says what becomes of slots at times that come twice.
//
// +kubebuilder:validation:Enum=First;Both
type SlotRepeat string

// ScheduleSpec is what to start and when.
//
// +kubebuilder:validation:XValidation:rule="!has(self.backfill) || self.backfill.from <= self.backfill.to",fieldPath=".backfill",message="spec.backfill.to is before spec.backfill.from"
type ScheduleSpec struct {
	ScheduleTiming `json:",inline"`
	// runTemplate is what the runs are made of.
	// +required
	RunTemplate RunTemplate `json:"runTemplate,omitzero"`
	// overlap says what happens at a slot while a run of the schedule is under way, or waits to be
	// admitted. Skip: there is no run. BufferOne: the slot waits, and one slot may. BufferAll: as
	// BufferOne, for 100 slots. CancelOther: the run is cancelled, and the slot waits for its end.
	// Allow: both run, up to 100. Default Skip.
	// +optional
	// +default="Skip"
	// +kubebuilder:default=Skip
	Overlap OverlapPolicy `json:"overlap,omitempty"`
	// catchUp is about slots at which the operator could not start a run.
	// +optional
	// +kubebuilder:default={}
	CatchUp CatchUp `json:"catchUp,omitempty"`
	// suspend true starts no runs. Slots meanwhile are not caught up with. Absent means false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// pauseAfterFailures is after how many failed runs in a row the schedule pauses. Any change of
	// spec ends the pause. Absent: never.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	PauseAfterFailures *int32 `json:"pauseAfterFailures,omitempty"`
	// stopWhen is a CEL expression of type bool over run, the run that ended last, also if it ended
	// before stopWhen was written: run.name, run.phase, run.reason, run.outputs, and run.started,
	// how many runs were started so far. True stops the schedule for good. At most 1024 characters.
	// Absent: it goes on.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	StopWhen string `json:"stopWhen,omitempty"`
	// successfulRunsHistoryLimit is how many runs that succeeded are kept. Default 3.
	// +optional
	// +default=3
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	SuccessfulRunsHistoryLimit *int32 `json:"successfulRunsHistoryLimit,omitempty"`
	// failedRunsHistoryLimit is how many other ended runs are kept, at least the failed ones in a
	// row, up to pauseAfterFailures. Default 3.
	// +optional
	// +default=3
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	FailedRunsHistoryLimit *int32 `json:"failedRunsHistoryLimit,omitempty"`
	// backfill starts runs for slots of the past, once for each from and to: in order, and one
	// after the other, unless overlap is Allow; then ten at a time. Slots that have a run are left
	// out. Absent: none.
	// +optional
	Backfill *Backfill `json:"backfill,omitempty"`
}

// RunTemplate is what the runs of a schedule are made of.
type RunTemplate struct {
	// metadata has labels and annotations of the runs.
	// +optional
	Metadata RunTemplateMetadata `json:"metadata,omitzero"`
	// slotInput names an input that gets the time of the slot, as 2026-03-29T03:00:00+02:00.
	// Absent: none does.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	SlotInput string `json:"slotInput,omitempty"`
	// spec is that of a WorkflowRun. It is checked, and refused with its fields in the condition
	// Stalled, when the operator sees it first. Without ttlSecondsAfterFinished, suspend, shutdown,
	// idempotencyKey and startFrom: the history limits say which runs are kept, and each run is one
	// of its own.
	// +required
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec runtime.RawExtension `json:"spec,omitzero"`
}

// RunTemplateMetadata has labels and annotations of runs.
type RunTemplateMetadata struct {
	// labels of the runs.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`
	// annotations of the runs. syncopate.dev/created-by is copied from the schedule.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!('syncopate.dev/created-by' in self)",message="syncopate.dev/created-by is copied from the annotations of the schedule"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// OverlapPolicy says what happens at a slot while a run is under way.
//
// +kubebuilder:validation:Enum=Skip;BufferOne;BufferAll;CancelOther;Allow
type OverlapPolicy string

// The policies.
const (
	// OverlapSkip starts no run.
	OverlapSkip OverlapPolicy = "Skip"
	// OverlapBufferOne lets one slot wait.
	OverlapBufferOne OverlapPolicy = "BufferOne"
	// OverlapBufferAll lets slots wait.
	OverlapBufferAll OverlapPolicy = "BufferAll"
	// OverlapCancelOther cancels what is under way. The slot waits for the end of that.
	OverlapCancelOther OverlapPolicy = "CancelOther"
	// OverlapAllow starts a run.
	OverlapAllow OverlapPolicy = "Allow"
)

// CatchUp says what becomes of slots that are late.
type CatchUp struct {
	// windowSeconds is how late, in seconds, a run may be started; a slot that is older is Missed.
	// Default 3600.
	// +optional
	// +default=3600
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=31536000
	WindowSeconds int32 `json:"windowSeconds,omitempty"`
	// policy says which of several slots in the window are started: the Latest, or All.
	// Default Latest.
	// +optional
	// +default="Latest"
	// +kubebuilder:default=Latest
	Policy CatchUpPolicy `json:"policy,omitempty"`
	// max bounds how many slots All starts: the latest of them. Default 10.
	// +optional
	// +default=10
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Max int32 `json:"max,omitempty"`
}

// CatchUpPolicy says which of several late slots are started.
//
// +kubebuilder:validation:Enum=Latest;All
type CatchUpPolicy string

// The policies.
const (
	// CatchUpLatest starts the latest.
	CatchUpLatest CatchUpPolicy = "Latest"
	// CatchUpAll starts all.
	CatchUpAll CatchUpPolicy = "All"
)

// Backfill is a range of slots in the past. Only runs that are there count: it does slots
// again whose run the history limits deleted, also if it is taken out and put back. Choose
// it by status.skipped.
//
// +kubebuilder:validation:XValidation:rule="self.from >= timestamp('2000-01-01T00:00:00Z')",fieldPath=".from",message="from is before the year 2000"
// +kubebuilder:validation:XValidation:rule="self.to <= timestamp('9999-12-31T23:59:59Z')",fieldPath=".to",message="to is after the year 9999 of UTC"
type Backfill struct {
	// from is the first time that may be a slot.
	// +required
	From metav1.Time `json:"from"`
	// to is the last, in the year 9999 of UTC at the latest. Slots that were not due when the
	// backfill was seen first are none of it.
	// +required
	To metav1.Time `json:"to"`
}
