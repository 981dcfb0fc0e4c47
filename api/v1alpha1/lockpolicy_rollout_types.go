// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RolloutStrategy is the way in which an edit of a policy comes into force.
//
// +kubebuilder:validation:Enum=Immediate;Canary
type RolloutStrategy string

const (
	// RolloutStrategyImmediate has an edit in force for all runs at once.
	RolloutStrategyImmediate RolloutStrategy = "Immediate"
	// RolloutStrategyCanary tries an edit on a part of the runs, and goes on or back by evidence.
	RolloutStrategyCanary RolloutStrategy = "Canary"
)

// OnInsufficientData is what becomes of a candidate for which a step brought too little evidence.
//
// +kubebuilder:validation:Enum=RollBack;Hold
type OnInsufficientData string

const (
	// OnInsufficientDataRollBack takes it back.
	OnInsufficientDataRollBack OnInsufficientData = "RollBack"
	// OnInsufficientDataHold keeps the canary as it is, until there is evidence or a user decides.
	OnInsufficientDataHold OnInsufficientData = "Hold"
)

// LockPolicyRollout says how an edit of runLock, or of strategy and lock of admission, comes into
// force. Edits of other fields, limits among them, are in force for all runs at once, also with
// strategy Canary: two arms share a tenant's limit, so they cannot be compared. So are those of
// strategy and lock where tenants share a total, and with it one lock. The event InForce says so.
// An edit of runLock is tried on runs, one of admission on tenant-minutes: in each minute, each
// tenant is in an arm by chance. The guards has() are for the API server's check of defaults, made
// before those inside are filled in.
//
// +kubebuilder:validation:XValidation:rule="!has(self.stepsPercent) || self.stepsPercent.isSorted() && self.stepsPercent.all(i, self.stepsPercent.exists_one(j, j == i))",message="stepsPercent must rise, as [5, 20, 50] does"
type LockPolicyRollout struct {
	// strategy is Immediate, or Canary: an edit is tried on a part of the runs, or of the
	// minutes of each tenant, beside a control group of the same size, and goes on or back by
	// evidence. Default Immediate.
	// +optional
	// +default="Immediate"
	// +kubebuilder:default=Immediate
	Strategy RolloutStrategy `json:"strategy,omitempty"`
	// stepsPercent are the parts of the runs or tenant-minutes, in percent, on which an edit is
	// tried one after the other: rising, each from 1 to 50. After the last one it is in force for
	// all. Default [5, 20, 50].
	// +optional
	// +default=[5,20,50]
	// +kubebuilder:default={5,20,50}
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=50
	StepsPercent []int32 `json:"stepsPercent,omitempty"`
	// minContendedRuns is how many runs whose lock was busy must have ended in each arm, in each
	// step. Of tenant-minutes, how many must have voted in each arm, and in one of them with a busy
	// lock. Fewer never promote. Default 40.
	// +optional
	// +default=40
	// +kubebuilder:default=40
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MinContendedRuns int32 `json:"minContendedRuns,omitempty"`
	// maxStepMinutes is how long a step may take, in minutes. Default 60.
	// +optional
	// +default=60
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10080
	MaxStepMinutes int32 `json:"maxStepMinutes,omitempty"`
	// onInsufficientData is RollBack, or Hold: what happens when a step is over without enough
	// evidence. Default RollBack.
	// +optional
	// +default="RollBack"
	// +kubebuilder:default=RollBack
	OnInsufficientData OnInsufficientData `json:"onInsufficientData,omitempty"`
	// guardrails are how much worse the canary may be.
	// +optional
	// +kubebuilder:default={}
	Guardrails RolloutGuardrails `json:"guardrails,omitempty"`
}

// RolloutGuardrails are how many votes of the canary are borne, in percent of the control's. A
// candidate fails when it is above, and that is no chance. It also fails when it is above that
// percentage of 40 in a hundred, and those that vote otherwise are fewer by the same factor: so a
// guardrail of 250 or more looks at no others. 10000 switches a guardrail off.
type RolloutGuardrails struct {
	// busyRunsPercent is about runs that found their lock busy again when they tried it again, in
	// percent of the control's. 10000 is off. Default 120.
	// +optional
	// +default=120
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=10000
	BusyRunsPercent int32 `json:"busyRunsPercent,omitempty"`
	// lockWaitTailPercent is about runs whose longest lock wait was above the control's p95, in
	// percent of the control's. 10000 is off. Default 150.
	// +optional
	// +default=150
	// +kubebuilder:default=150
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=10000
	LockWaitTailPercent int32 `json:"lockWaitTailPercent,omitempty"`
	// resultLatencyPercent is about runs whose longest result latency was above the control's p95,
	// in percent of the control's. 10000 is off. Default 120.
	// +optional
	// +default=120
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=10000
	ResultLatencyPercent int32 `json:"resultLatencyPercent,omitempty"`
}

// RolloutPhase is where a rollout is.
//
// +kubebuilder:validation:Enum=Stable;Progressing;Holding;Promoted;RolledBack
type RolloutPhase string

// RolloutVerdict is what the counts say of a candidate.
//
// +kubebuilder:validation:Enum=NotEnough;Pass;Fail
type RolloutVerdict string

// RolloutUnit is what is put into an arm of a rollout, and votes.
//
// +kubebuilder:validation:Enum=Run;TenantMinute
type RolloutUnit string

const (
	// RolloutUnitRun is a run. An edit of runLock is tried on runs.
	RolloutUnitRun RolloutUnit = "Run"
	// RolloutUnitTenantMinute is a tenant in a minute. An edit of admission is tried on them: those
	// who want the same lock are in the same arm.
	RolloutUnitTenantMinute RolloutUnit = "TenantMinute"
)

// RolloutArm is the part of the runs that a run belongs to.
//
// +kubebuilder:validation:Enum=Canary;Control
type RolloutArm string

const (
	// RolloutArmCanary has the candidate.
	RolloutArmCanary RolloutArm = "Canary"
	// RolloutArmControl has the baseline, and is compared with the canary.
	RolloutArmControl RolloutArm = "Control"
)

// LockPolicyRolloutStatus is where the rollout of the last edit is. It has all that a decision
// needs, so any replica can make the next one.
type LockPolicyRolloutStatus struct {
	// phase is Stable, Progressing, Holding, Promoted or RolledBack.
	// +required
	Phase RolloutPhase `json:"phase"`
	// baseline is what runs have that are not in the canary.
	// +required
	Baseline RolloutRevision `json:"baseline"`
	// candidate is what the canary has; when the rollout is over, what it had. Absent:
	// nothing was tried.
	// +optional
	Candidate *RolloutRevision `json:"candidate,omitempty"`
	// unit is what the candidate is tried on: Run, for an edit of runLock; or TenantMinute, for one
	// of admission. All counts are of that. Default Run.
	// +optional
	// +default="Run"
	// +kubebuilder:default=Run
	Unit RolloutUnit `json:"unit,omitempty"`
	// percent of the units that are the canary; the control has as many. Absent: there is none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	Percent int32 `json:"percent,omitempty"`
	// firstPercent is the percentage that the candidate began with. Absent: it has not begun.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	FirstPercent int32 `json:"firstPercent,omitempty"`
	// changedAt is when the step began, or the phase.
	// +required
	ChangedAt metav1.Time `json:"changedAt"`
	// verdict is what the counts say now.
	// +optional
	Verdict RolloutVerdict `json:"verdict,omitempty"`
	// reason is why the rollout is where it is, as the condition RolledOut has it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message says the same in words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// canary is what was counted of the canary, over all replicas, as of the last decision.
	// +optional
	Canary *RolloutCounts `json:"canary,omitempty"`
	// control is the same of the control.
	// +optional
	Control *RolloutCounts `json:"control,omitempty"`
	// restRuns is the number of units that were put into neither arm.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RestRuns int64 `json:"restRuns,omitempty"`
	// stepCanary is how many contended units of the canary had ended when the step began.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StepCanary int64 `json:"stepCanary,omitempty"`
	// stepControl is the same of the control.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StepControl int64 `json:"stepControl,omitempty"`
	// stepCanaryEnded is how many tenant-minutes of the canary had voted when the step began.
	// Absent with unit Run.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StepCanaryEnded int64 `json:"stepCanaryEnded,omitempty"`
	// stepControlEnded is the same of the control.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StepControlEnded int64 `json:"stepControlEnded,omitempty"`
	// wait is the threshold of lock waits. Absent: the control is too small yet.
	// +optional
	Wait *RolloutThreshold `json:"wait,omitempty"`
	// latency is the threshold of result latencies.
	// +optional
	Latency *RolloutThreshold `json:"latency,omitempty"`
	// replicas are what each process of the operator counted. A process that is gone stays until
	// the candidate is.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Replicas []RolloutReplica `json:"replicas,omitempty"`
	// history is what became of the last candidates, the latest last.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	History []RolloutOutcome `json:"history,omitempty"`
}

// RolloutRevision is a version of what is rolled out. The ControllerRevision of the same name,
// after that of the policy, has it too.
type RolloutRevision struct {
	// name of the revision: a hash of the content, and the generation with which it came.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// generation of the LockPolicy with which it came.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Generation int64 `json:"generation,omitempty"`
	// runLock is its content.
	// +required
	RunLock RunLockPolicy `json:"runLock"`
	// admission is how it has slots asked for. Absent: as spec says, since tenants share a total,
	// or it was stored before admission was rolled out.
	// +optional
	Admission *RolloutAdmission `json:"admission,omitempty"`
}

// RolloutAdmission is what of admission is rolled out. Limits are not.
type RolloutAdmission struct {
	// strategy is Atomic or Lock, as in admission. Absent: Atomic.
	// +optional
	Strategy AdmissionStrategy `json:"strategy,omitempty"`
	// lock tunes strategy Lock.
	// +optional
	// +kubebuilder:default={}
	Lock AdmissionLock `json:"lock,omitempty"`
}
