// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

// meaning is what a reason of a condition means for people.
type meaning struct {
	text string // "" for what is as it should be and blocks nothing
	help string // what to do about it; "" if nothing
}

// meaningOf also says whether this version knows the reason.
func meaningOf(condition, reason string) (meaning, bool) {
	m, known := meanings()[condition][reason]
	return m, known
}

// meanings is by condition and reason. Of a run under way, Succeeded says what it waits for; of an
// ended one, how it ended.
func meanings() map[string]map[string]meaning {
	return map[string]map[string]meaning{
		v1alpha1.ConditionAdmitted: {
			v1alpha1.ReasonAdmitted:         {},
			v1alpha1.ReasonAdmissionPending: {text: "waits for admission"},
			v1alpha1.ReasonSuspended:        {text: "is not admitted while spec.suspend is set"},
			v1alpha1.ReasonTenantAtCapacity: {
				text: "the tenant has as many slots taken as its LockPolicy lets it",
				help: "to see who uses the slots: kubectl syncopate tenants",
			},
			v1alpha1.ReasonTotalAtCapacity: {
				text: "all tenants together have as many slots taken as the LockPolicy lets them",
				help: "to see who uses the slots, and who lends from whom: kubectl syncopate tenants",
			},
			v1alpha1.ReasonWaitingForLock: {
				text: "waits for its locks, which other runs hold or wait for before it",
				help: "to see all who hold or wait for locks: kubectl syncopate locks",
			},
			v1alpha1.ReasonWaitingForWorkflow: {
				text: "the Workflow that it follows, or its revision, does not exist or cannot be had for now",
				help: "create the Workflow within a minute after the run, or the run ends; see the name in spec.workflowRef, and the message",
			},
			v1alpha1.ReasonWaitingForPolicy:     {text: "its LockPolicy was deleted moments ago, and may come back"},
			v1alpha1.ReasonWaitingForParent:     {text: "waits for its parent run to name it in its status"},
			v1alpha1.ReasonAdmissionBusy:        {text: "the admission lock of the tenant is busy", help: "strategy: Atomic in the LockPolicy needs no such lock"},
			v1alpha1.ReasonAdmissionUnavailable: {text: "nobody is admitted, because Redis cannot be used", help: "see whether Redis can be reached"},
			v1alpha1.ReasonAdmissionRebuilding:  {text: "Redis lost its data; nobody is admitted until the runs are counted again"},
		},
		v1alpha1.ConditionRunLockRenewed: renewals(),
		v1alpha1.ConditionRunLockAbandoned: {
			v1alpha1.ReasonNotAbandoned:            {},
			v1alpha1.ReasonRecovered:               {},
			v1alpha1.ReasonLeaseDeadlineReached:    {text: "a lease was lost: it could not be renewed before its validity ended"},
			v1alpha1.ReasonOwnershipLost:           {text: "a lease was lost: Redis says that the lock is gone or another's"},
			v1alpha1.ReasonRenewalFailuresExceeded: {text: "a lease was lost: too many renewals failed in a row"},
		},
		v1alpha1.ConditionDeadLettered: {
			v1alpha1.ReasonNoDeadLetters:  {},
			v1alpha1.ReasonResultRejected: {text: "a result with an unusable body was put aside", help: "to see it: kubectl syncopate dead-letters list --run NAME"},
			v1alpha1.ReasonDeliveriesExhausted: {
				text: "a result that could not be processed was put aside",
				help: "once the cause is gone: kubectl syncopate dead-letters redrive --run NAME",
			},
		},
		v1alpha1.ConditionSucceeded: outcomes(),
		v1alpha1.ConditionReady: { // of LockPolicies
			v1alpha1.ReasonReady:         {},
			v1alpha1.ReasonClassConflict: {text: "lists the class, too, and is not in force for it: an older policy has it"},
		},
		v1alpha1.ConditionRolledOut: rollouts(), // of LockPolicies
	}
}

// renewals are the meanings of RunLockRenewed.
func renewals() map[string]meaning {
	return map[string]meaning{
		v1alpha1.ReasonLockHeld:             {},
		v1alpha1.ReasonLockRenewed:          {},
		v1alpha1.ReasonLockReleased:         {},
		v1alpha1.ReasonLockNotNeeded:        {},
		v1alpha1.ReasonRenewalFailing:       {text: "the lock cannot be renewed; its lease is still valid", help: "see whether Redis can be reached"},
		v1alpha1.ReasonContinuingUnlocked:   {text: "goes on without the lock, as its policy says", help: "see whether Redis can be reached"},
		v1alpha1.ReasonLockBusy:             {text: "another holds the lock", help: "to see the lock itself: kubectl syncopate run-locks NAME"},
		v1alpha1.ReasonLockStoreUnavailable: {text: "the lock cannot be taken, because Redis cannot be used", help: "see whether Redis can be reached"},
	}
}

func rollouts() map[string]meaning {
	return map[string]meaning{
		v1alpha1.ReasonInForce:             {},
		v1alpha1.ReasonImmediate:           {},
		v1alpha1.ReasonAllStepsPassed:      {},
		v1alpha1.ReasonPromotedByUser:      {},
		v1alpha1.ReasonCanaryRuns:          {text: "tries its last edit on a part of the traffic"},
		v1alpha1.ReasonInsufficientData:    {text: "was edited, and the edit is not in force for all runs: too few of them had a busy lock"},
		v1alpha1.ReasonBusyRunsWorse:       {text: "was edited, and the edit taken back: more locks were busy again"},
		v1alpha1.ReasonWaitTailWorse:       {text: "was edited, and the edit taken back: locks were waited for longer"},
		v1alpha1.ReasonLatencyWorse:        {text: "was edited, and the edit taken back: results came into status later"},
		v1alpha1.ReasonHardGuardrail:       {text: "was edited, and the edit taken back: a lock was lost, a write refused or a result put aside"},
		v1alpha1.ReasonSampleRatioMismatch: {text: "was edited, and the edit taken back: what was counted cannot be right"},
		v1alpha1.ReasonAbortedByUser:       {text: "was edited, and a user took the edit back"},
		v1alpha1.ReasonTriedNext:           {}, // of an event only
		v1alpha1.ReasonSuperseded:          {text: "was edited anew while an edit was tried"},
	}
}

// outcomes are the meanings of Succeeded.
func outcomes() map[string]meaning {
	all := map[string]meaning{
		v1alpha1.ReasonPending:           {text: "was not looked at yet"},
		v1alpha1.ReasonQueued:            {text: "waits for admission"},
		v1alpha1.ReasonRunning:           {text: "is under way"},
		v1alpha1.ReasonWaitingForLock:    {text: "waits for its run lock"},
		v1alpha1.ReasonBackingOff:        {text: "waits for the next attempt of a step"},
		v1alpha1.ReasonWaitingForWorkers: {text: "waits for workers that get on with its jobs", help: "see whether workers of that topic run and can reach NATS"},
		v1alpha1.ReasonWaitingForNATS:    {text: "waits for NATS", help: "see whether NATS can be reached: readyz of the operator says so"},
		v1alpha1.ReasonWaitingForRoom:    {text: "waits for room in NATS", help: "the message says what has none: NATS, the share of this run or namespace, or a topic beyond the limit of topics. See whether workers take its jobs, and what fills the streams"},
		v1alpha1.ReasonFinalizing:        {text: "runs its finally steps"},
		v1alpha1.ReasonSuspended:         {text: "is suspended: no new jobs", help: "to resume: kubectl patch wfr NAME --type=merge -p '{\"spec\":{\"suspend\":false}}'"},

		v1alpha1.ReasonSucceeded:      {text: "succeeded"},
		v1alpha1.ReasonStepFailed:     {text: "failed"},
		v1alpha1.ReasonOutputTooLarge: {text: "failed: a step returned more than the object store takes", help: "let the worker store large data elsewhere and return where"},
		v1alpha1.ReasonOutputsFailed:  {text: "failed: its steps succeeded, but its outputs could not be evaluated"},
		v1alpha1.ReasonFinallyTimeout: {text: "failed: its steps succeeded, but its finally steps took too long"},
		v1alpha1.ReasonObjectTooLarge: {text: "failed: its object has no room for its status", help: "labels, annotations and other metadata take the room: create a new run with fewer"},
		v1alpha1.ReasonInvalidSpec:    {text: "failed: its spec cannot be run", help: "nothing was dispatched; to run the corrected spec: kubectl replace --force -f FILE, or give it another name"},
		v1alpha1.ReasonWorkflowNotFound: {
			text: "failed: the Workflow that it follows, or its revision, does not exist",
			help: "to see the revisions that there are: kubectl get controllerrevisions -l " + v1alpha1.LabelWorkflow,
		},
		v1alpha1.ReasonTenantNotAllowed:    {text: "failed: its namespace may not run for that tenant", help: "an administrator lists the tenant in the namespace's annotation " + v1alpha1.AnnotationAllowedTenants},
		v1alpha1.ReasonClassNotAllowed:     {text: "failed: its namespace may not use its workload class", help: "an administrator lists the class in the namespace's annotation " + v1alpha1.AnnotationAllowedClasses},
		v1alpha1.ReasonTopicNotAllowed:     {text: "failed: its namespace may not use a topic", help: "an administrator lists the topic in the namespace's annotation " + v1alpha1.AnnotationAllowedTopics},
		v1alpha1.ReasonDuplicateRun:        {text: "was not run: another run does the same work"},
		v1alpha1.ReasonIdempotencyConflict: {text: "was not run: another run has its idempotency key", help: "a key stands for one piece of work: give other work another key"},
		v1alpha1.ReasonLocksBusy:           {text: "was not run: a lock that it needs had no room"},
		v1alpha1.ReasonLockQueueFull:       {text: "was not run: as many as may wait for a lock that it needs"},
		v1alpha1.ReasonLockSuperseded:      {text: "was not run: a later run waits for the same lock instead"},
		v1alpha1.ReasonLockUnusable:        {text: "was not run: a lock that it needs cannot be used", help: "see the Semaphore: kubectl get sem -o yaml"},
		v1alpha1.ReasonLockDeadlock:        {text: "failed: it waited for what others held that waited for it"},
		v1alpha1.ReasonLockQueueTimeout:    {text: "timed out: it waited too long for its locks"},
		v1alpha1.ReasonDeadlineExceeded:    {text: "timed out"},
		v1alpha1.ReasonQueueTimeout:        {text: "timed out"},
		v1alpha1.ReasonCancelled:           {text: "was cancelled"},
		v1alpha1.ReasonTerminated:          {text: "was terminated"},
	}
	for _, k := range waits.All {
		all[k.Reason] = meaning{text: k.Means}
	}
	return all
}
