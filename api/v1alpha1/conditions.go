// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of a WorkflowRun. All are always present once the run was first written. Reasons are
// stable API: programs may match them; messages are for people and say who or what blocks, since
// when, and when it is looked at next.

// ConditionAdmitted says whether the run was let in by its tenant's gate.
const (
	ConditionAdmitted = "Admitted"

	// ReasonAdmitted (True): the run was let in; status.admission.admittedAt says when.
	ReasonAdmitted = "Admitted"
	// ReasonAdmissionPending (Unknown): the run was not looked at yet, or it ended before
	// it was admitted.
	ReasonAdmissionPending = "Pending"
	// ReasonTenantAtCapacity (False): the tenant has as many slots taken as its LockPolicy lets
	// it. The message says how many, and the place in line; `kubectl syncopate why` has the place
	// now. The end of a run, or a raised limit, wakes the next in line.
	ReasonTenantAtCapacity = "TenantAtCapacity"
	// ReasonTotalAtCapacity (False): the tenant may have more runs, but all tenants of its
	// LockPolicy together have as many slots taken as total lets them. The next that ends makes
	// room for the tenant that uses least of what it is guaranteed, or for its weight.
	ReasonTotalAtCapacity = "TotalAtCapacity"
	// ReasonAdmissionBusy (False): strategy Lock only: others held the lock of the tenant for
	// longer than maxWaitMillis.
	ReasonAdmissionBusy = "AdmissionBusy"
	// ReasonAdmissionUnavailable (False): Redis, which counts the runs of tenants, cannot be used;
	// the message has the cause.
	ReasonAdmissionUnavailable = "AdmissionUnavailable"
	// ReasonAdmissionRebuilding (False): Redis lost its data; nobody is admitted until they
	// are counted again.
	ReasonAdmissionRebuilding = "AdmissionRebuilding"
	// ReasonWaitingForPolicy (False): the LockPolicy that limits the run was deleted moments ago.
	// One that is replaced comes back: the run waits for half a minute whether it does.
	ReasonWaitingForPolicy = "WaitingForPolicy"
	// ReasonWaitingForParent (False): the run says by an owner reference that it is a child of
	// another run, whose status does not name it. It begins when it does, and ends with that run.
	ReasonWaitingForParent = "WaitingForParent"
	// ReasonWaitingForWorkflow (False): the Workflow of spec.workflowRef, or its revision, does not
	// exist. The run ends as WorkflowNotFound if it does not come within a minute. Or it exists,
	// and cannot be had for now: the run waits. queueTimeoutSeconds bounds both.
	ReasonWaitingForWorkflow = "WaitingForWorkflow"
	// ReasonSuspended (False): spec.suspend was set before the run was let in. Also a
	// reason of Succeeded=Unknown.
	ReasonSuspended = "Suspended"
)

// ConditionRunLockRenewed says how the run lock of the last writer fared.
const (
	ConditionRunLockRenewed = "RunLockRenewed"

	// ReasonLockHeld (True): the lock was taken; no renewal was due yet.
	ReasonLockHeld = "Held"
	// ReasonLockRenewed (True): the lock was renewed at least once.
	ReasonLockRenewed = "Renewed"
	// ReasonLockReleased (True): the run ended, its lock is not needed any more.
	ReasonLockReleased = "Released"
	// ReasonRenewalFailing (False): the last renewals failed; the lease is still valid.
	ReasonRenewalFailing = "RenewalFailing"
	// ReasonContinuingUnlocked (False): the lease ended without a renewal, and the work goes on
	// without the lock, as the policy's renewal.onFailure Continue says; the message says since
	// when and why.
	ReasonContinuingUnlocked = "ContinuingUnlocked"
	// ReasonLockStoreUnavailable (False): the lock cannot be taken because Redis cannot be used;
	// the message has the cause.
	ReasonLockStoreUnavailable = "LockStoreUnavailable"
	// ReasonLockBusy (False): the lock was waited for in vain for longer than wait.budgetMillis;
	// the message says who holds it, who waits and since when, and when it ends if its holder is
	// gone. Written once by whoever waits; the holder's next write takes it back.
	ReasonLockBusy = "LockBusy"
	// ReasonLockNotNeeded (Unknown): no lock was taken for the run so far.
	ReasonLockNotNeeded = "NotTaken"
)

// ConditionRunLockAbandoned says whether a holder had to give up the run lock while it
// worked under it.
const (
	ConditionRunLockAbandoned = "RunLockAbandoned"

	// ReasonLeaseDeadlineReached (True): the lease could not be renewed before its validity ended.
	ReasonLeaseDeadlineReached = "LeaseDeadlineReached"
	// ReasonOwnershipLost (True): Redis says that the lock is gone or another's.
	ReasonOwnershipLost = "OwnershipLost"
	// ReasonRenewalFailuresExceeded (True): maxConsecutiveFailures renewals failed in a row.
	ReasonRenewalFailuresExceeded = "RenewalFailuresExceeded"
	// ReasonNotAbandoned (False): no lease was lost.
	ReasonNotAbandoned = "NotAbandoned"
	// ReasonRecovered (False): a lease was lost and a later holder took over.
	ReasonRecovered = "Recovered"
)

// ConditionDeadLettered says whether a message that belongs to the run was put aside.
const (
	ConditionDeadLettered = "DeadLettered"

	// ReasonResultRejected (True): a worker's result with a valid token had an unusable body, and
	// no other one had DeliveriesExhausted before.
	ReasonResultRejected = "ResultRejected"
	// ReasonDeliveriesExhausted (True): processing a result failed as often as the policy's
	// delivery.maxDeliveries allows; the message names step, attempt and cause. The attempt ends by
	// its time-out, or by the result once it is redriven.
	ReasonDeliveriesExhausted = "DeliveriesExhausted"
	// ReasonNoDeadLetters (False): none was.
	ReasonNoDeadLetters = "NoDeadLetters"
)

// ConditionFinished says whether the run ended, in whichever way: `kubectl wait
// --for=condition=Finished`. Its reason when True is that of Succeeded; while the run is under way
// it is Unknown with ReasonRunning.
const ConditionFinished = "Finished"

// ConditionSucceeded is the outcome; while Unknown its reason says what the run waits for.
const (
	ConditionSucceeded = "Succeeded"

	// ReasonSucceeded (True): every step succeeded, was skipped, or failed with onFailure Continue.
	ReasonSucceeded = "Succeeded"

	// ReasonPending (Unknown): accepted, not yet looked at.
	ReasonPending = "Pending"
	// ReasonQueued (Unknown): waits for admission.
	ReasonQueued = "Queued"
	// ReasonRunning (Unknown): jobs are with workers or about to be, or child runs are under way.
	ReasonRunning = "Running"
	// ReasonWaitingForLock (Unknown): the run lock cannot be taken, as Redis cannot be used or
	// another holds the lock; or nothing goes on but steps that wait for their locks. Also a reason
	// of Admitted=False: spec.locks are not to be had; the message names the lock, who holds it,
	// and the place in its queue.
	ReasonWaitingForLock = "WaitingForLock"
	// ReasonBackingOff (Unknown): every unfinished step that could move waits for its next attempt.
	ReasonBackingOff = "BackingOff"

	// ReasonWaitingForWorkers (Unknown): jobs wait whose topic has no workers that get on: nobody
	// pulls, nothing is taken or done, or the topic has no consumer in NATS.
	ReasonWaitingForWorkers = "WaitingForWorkers"
	// ReasonWaitingForNATS (Unknown): NATS does not answer, so jobs do not go out and results do
	// not come in; the message says since when.
	ReasonWaitingForNATS = "WaitingForNATS"
	// ReasonWaitingForRoom (Unknown): NATS is full and refuses jobs or outputs of the run, the run
	// or its namespace holds its share of NATS for jobs, or there are too many topics; the message
	// says which, and since when. Results that are there already do come in.
	ReasonWaitingForRoom = "WaitingForRoom"
	// ReasonWaitingForApproval (Unknown): nothing goes on but approvals, which wait for a decision.
	ReasonWaitingForApproval = "WaitingForApproval"
	// ReasonDelayed (Unknown): nothing goes on but delays.
	ReasonDelayed = "Delayed"
	// ReasonFinalizing (Unknown): the finally steps run; status.ending says how the run will end.
	ReasonFinalizing = "Finalizing"

	// ReasonStepFailed (False, phase Failed): a step failed; the message names it.
	ReasonStepFailed = "StepFailed"
	// ReasonOutputTooLarge (False, phase Failed): a step returned more output than the object store
	// takes of one step, 8 MiB.
	ReasonOutputTooLarge = "OutputTooLarge"
	// ReasonOutputsFailed (False, phase Failed): spec.outputs could not be evaluated; the
	// message says why.
	ReasonOutputsFailed = "OutputsFailed"
	// ReasonFinallyTimeout (False, phase Failed): the steps had succeeded, but the finally steps
	// took longer than finallyTimeoutSeconds.
	ReasonFinallyTimeout = "FinallyTimeout"
	// ReasonObjectTooLarge (False, phase Failed): the run's object, with its labels and all else,
	// leaves no room for its status.
	ReasonObjectTooLarge = "ObjectTooLarge"
	// ReasonInvalidSpec (False, phase Failed): the spec cannot be run; nothing was dispatched.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonWorkflowNotFound (False, phase Failed): the Workflow of spec.workflowRef, or its
	// revision, does not exist, or the revision that the run followed was deleted.
	ReasonWorkflowNotFound = "WorkflowNotFound"
	// ReasonTenantNotAllowed (False, phase Failed): the namespace may not run for spec.tenant;
	// nothing was dispatched.
	ReasonTenantNotAllowed = "TenantNotAllowed"
	// ReasonClassNotAllowed (False, phase Failed): the namespace may not use spec.workloadClass;
	// nothing was dispatched.
	ReasonClassNotAllowed = "ClassNotAllowed"
	// ReasonTopicNotAllowed (False, phase Failed): the namespace may not use the topic of a step;
	// nothing was dispatched.
	ReasonTopicNotAllowed = "TopicNotAllowed"
	// ReasonDuplicateRun (False, phase Failed): another run of the tenant has the same idempotency
	// key and spec; the message names it.
	ReasonDuplicateRun = "DuplicateRun"
	// ReasonIdempotencyConflict (False, phase Failed): another run of the tenant has the same
	// idempotency key and another spec.
	ReasonIdempotencyConflict = "IdempotencyConflict"
	// ReasonLocksBusy (False, phase Failed): a lock of spec.locks had no room, and its
	// onBusy is DropNewest.
	ReasonLocksBusy = "LockBusy"
	// ReasonLockQueueFull (False, phase Failed): as many wait for a lock of spec.locks as may.
	ReasonLockQueueFull = "LockQueueFull"
	// ReasonLockQueueTimeout (False, phase TimedOut): the run waited for spec.locks longer than
	// queue.ttlSeconds of their semaphore.
	ReasonLockQueueTimeout = "LockQueueTimeout"
	// ReasonLockSuperseded (False, phase Cancelled): the run waited for a lock whose onBusy keeps
	// the latest, and a later one came.
	ReasonLockSuperseded = "Superseded"
	// ReasonLockUnusable (False, phase Failed): a lock of spec.locks cannot be used: its semaphore
	// does not exist, is not for the namespace, or has fewer permits than are asked for, or the
	// key is none.
	ReasonLockUnusable = "LockUnusable"
	// ReasonLockDeadlock (False, phase Failed): a step waited for a lock whose holder waits for
	// what this run holds. Only a code of steps.
	ReasonLockDeadlock = "LockDeadlock"
	// ReasonDeadlineExceeded (False, phase TimedOut): activeDeadlineSeconds passed.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonQueueTimeout (False, phase TimedOut): queueTimeoutSeconds passed before the
	// run was admitted.
	ReasonQueueTimeout = "QueueTimeout"
	// ReasonCancelled (False, phase Cancelled): spec.shutdown is Cancel, or the parent of a child
	// run does not wait for it any more.
	ReasonCancelled = "Cancelled"
	// ReasonTerminated (False, phase Cancelled): spec.shutdown is Terminate, also that of the
	// parent of a child run; or the run is being deleted, or its parent was.
	ReasonTerminated = "Terminated"
)

// Conditions that kstatus-aware tools (kubectl, Argo CD, Flux) read.
const (
	// ConditionReconciling is True while the run is under way; its message is that
	// of Succeeded, shortened.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when the run ended other than by success, and of a LockPolicy or a
	// Workflow that is not Ready: nothing but a change by somebody ends that. The message says why.
	ConditionStalled = "Stalled"
)

// ConditionReady says whether a LockPolicy governs its classes, or whether runs can follow a
// Workflow. What of an edit is in force says ConditionRolledOut.
const (
	ConditionReady = "Ready"

	// ReasonInvalidTemplate (False): runs of the Workflow would end as InvalidSpec; the message has
	// the fields.
	ReasonInvalidTemplate = "InvalidTemplate"
	// ReasonRevisionNotKept (False): the API server refuses the revision of the Workflow: a quota
	// is full, say, or a policy forbids it. Runs wait for it. Of RevisionsKept of a
	// LockPolicy, too.
	ReasonRevisionNotKept = "RevisionNotKept"
	// ReasonReady (True): the policy governs all its classes; runs can follow the Workflow.
	ReasonReady = "Ready"
	// ReasonClassConflict (False): an older policy claims one of the classes; the message names it.
	// The policy governs its other classes.
	ReasonClassConflict = "ClassConflict"
)

// ConditionRevisionsKept of a LockPolicy is False (RevisionNotKept) while the API server refuses a
// revision that its rollout names, and absent else. Nothing waits for it: revisions are for people.
const ConditionRevisionsKept = "RevisionsKept"

// ConditionRolledOut says whether the last edit of a LockPolicy with a rollout is in force. True:
// it is, for all runs. Unknown: it is tried on a part of them (CanaryRuns; InsufficientData while
// it is held). False: it was taken back, and spec says what is not in force.
const (
	ConditionRolledOut = "RolledOut"

	// ReasonInForce (True): spec says what is in force, and nothing was tried. Also that of the
	// event about an edit of fields that are not tried, which is in force for all runs at once.
	ReasonInForce = "InForce"
	// ReasonImmediate (True): the edit is in force for all runs at once, by strategy Immediate.
	ReasonImmediate = "Immediate"
	// ReasonAllStepsPassed (True): the candidate passed all steps.
	ReasonAllStepsPassed = "AllStepsPassed"
	// ReasonPromotedByUser (True): a user promoted the candidate.
	ReasonPromotedByUser = "PromotedByUser"
	// ReasonCanaryRuns (Unknown): a step is under way.
	ReasonCanaryRuns = "CanaryRuns"
	// ReasonInsufficientData (False; Unknown with onInsufficientData Hold): a step was over
	// without enough evidence.
	ReasonInsufficientData = "InsufficientData"
	// ReasonBusyRunsWorse (False): more runs, or tenant-minutes, of the canary than of the control
	// found their lock busy again when they tried it again.
	ReasonBusyRunsWorse = "BusyRunsWorse"
	// ReasonWaitTailWorse (False): more of the canary waited longer for their lock than
	// the control's p95.
	ReasonWaitTailWorse = "WaitTailWorse"
	// ReasonLatencyWorse (False): more runs of the canary had a result latency above
	// the control's p95.
	ReasonLatencyWorse = "LatencyWorse"
	// ReasonHardGuardrail (False): a run of the canary lost its lock, had a write refused by the
	// fence, or a dead letter; none of the control had.
	ReasonHardGuardrail = "HardGuardrail"
	// ReasonSampleRatioMismatch (False): the sizes of the arms cannot be chance, or counts went
	// back: the data is wrong.
	ReasonSampleRatioMismatch = "SampleRatioMismatch"
	// ReasonAbortedByUser (False): a user took the candidate back.
	ReasonAbortedByUser = "AbortedByUser"
	// ReasonTriedNext is that of the event about an edit of runLock and admission: admission is
	// tried once runLock is promoted.
	ReasonTriedNext = "TriedNext"
	// ReasonSuperseded is that of the event about a candidate that was dropped for a new edit, and
	// of its entry in history.
	ReasonSuperseded = "Superseded"
)

// AnnotationRollout on a LockPolicy is a user's word about the candidate that is tried: "promote
// NAME" or "abort NAME". One that names another candidate has no effect.
const AnnotationRollout = "syncopate.dev/rollout"

// AnnotationCreatedBy on a run names the user who created it. The operator copies it to child runs,
// which it creates itself, so that admission policies can look at who created their root. It is
// true only where a policy makes it so: see config/policies/created-by.yaml.
const AnnotationCreatedBy = "syncopate.dev/created-by"

// AnnotationParent on a child run names its parent, as ParentNote writes it: "NAME/UID". It is what
// is left of that where the garbage collector takes the owner reference away, as with
// --cascade=orphan, before the run's first write under its lock. It is a claim, as an owner
// reference is: it lets no run in.
const AnnotationParent = "syncopate.dev/parent"

// AnnotationStepEvents on a run says whether Kubernetes events tell of each step: "true" or
// "false". Absent, or anything else: as the operator's flag --step-events says. Events of a run's
// begin, of its end and of what goes wrong come in any case. It may change at any time, and a child
// run has its own.
const AnnotationStepEvents = "syncopate.dev/step-events"

// AnnotationTraceparent on a run is a W3C trace context: the run's spans are below the span that it
// names, and are collected if its flag says so. The operator gives it to child runs. Absent, or not
// a trace context: the run has a trace of its own.
const AnnotationTraceparent = "syncopate.dev/traceparent"

// Label and annotation of a ControllerRevision that is a revision of a Workflow.
const (
	// LabelWorkflow names the Workflow.
	LabelWorkflow = "syncopate.dev/workflow"
	// AnnotationWorkflowUID is the UID of the Workflow that has, or had, this revision last.
	AnnotationWorkflowUID = "syncopate.dev/workflow-uid"
)

// LabelSchedule on a run names the Schedule that started it, and AnnotationSlot has the time of the
// slot, as 2026-03-29T03:00:00+02:00.
const (
	LabelSchedule  = "syncopate.dev/schedule"
	AnnotationSlot = "syncopate.dev/slot"
)

// Labels and annotations on namespaces.
const (
	// LabelTenant names the tenant of all runs of a namespace.
	LabelTenant = "syncopate.dev/tenant"
	// AnnotationAllowedTenants lists, separated by commas, the tenants that runs of a namespace may
	// name in spec.tenant.
	AnnotationAllowedTenants = "syncopate.dev/allowed-tenants"
	// AnnotationAllowedClasses lists, separated by commas, the workload classes that runs of a
	// namespace may have. Absent: all, unless the operator was started with --require-allow-lists.
	AnnotationAllowedClasses = "syncopate.dev/allowed-workload-classes"
	// AnnotationAllowedTopics lists, separated by commas, the topics to which runs of a namespace
	// may send jobs; "llm.*" stands for all that begin with "llm.". Absent: all, unless the
	// operator was started with --require-allow-lists.
	AnnotationAllowedTopics = "syncopate.dev/allowed-topics"
)
