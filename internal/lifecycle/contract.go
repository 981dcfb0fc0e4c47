// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// The parts of Input and Decision have their types here too, so that the shell imports one package.
type (
	// Answers is what the shell found out about results that the stream has stored and that need
	// not have been delivered.
	Answers = facts.Answers
	// Child is what was seen of the child run of a step.
	Child = facts.Child
	// ChildState is what is known of the child run of a step.
	ChildState = facts.ChildState
	// Checkpoint says how far a run may be ahead of its status.
	Checkpoint = facts.Checkpoint
	// Claim is what was found out about the idempotency key of a run.
	Claim = facts.Claim
	// ClaimState is what became of a run's claim of its idempotency key.
	ClaimState = facts.ClaimState
	// DeadLetter is a result of the run that is put aside because processing it failed too often.
	DeadLetter = facts.DeadLetter
	// Form says how much of its status a run that ends has room for.
	Form = facts.Form
	// Gate is what the tenant's gate answered, after the run of this decision was read.
	Gate = facts.Gate
	// GateState is what the tenant's gate says of a run that is not admitted.
	GateState = facts.GateState
	// Input is all that a decision depends on.
	Input = facts.Input
	// Job is one attempt to hand to a worker.
	Job = facts.Job
	// Lack is what has no room for jobs or outputs of a run.
	Lack = facts.Lack
	// LocksAnswer is what became of a question for locks across runs.
	LocksAnswer = facts.LocksAnswer
	// LocksAsk is what a run, or one of its steps, needs all at once.
	LocksAsk = facts.LocksAsk
	// LocksState is what became of a question for locks.
	LocksState = facts.LocksState
	// Lock describes the run lock as the writer sees it.
	Lock = facts.Lock
	// LockState says whether this process may write the run.
	LockState = facts.LockState
	// LostJob is an attempt in flight whose job is nowhere, and cannot be rendered any more.
	LostJob = facts.LostJob
	// Origin is what was found of the run that spec.startFrom names.
	Origin = facts.Origin
	// Parent is what was seen of the parent that a run claims to have
	// (v1alpha1.WorkflowRun.ClaimsParent).
	Parent = facts.Parent
	// Permits are the workload classes and topics that the runs of a namespace may use.
	Permits = facts.Permits
	// Result is one message of a worker about one attempt.
	Result = facts.Result
	// Signal is what came from outside for a step that waits.
	Signal = facts.Signal
	// Template is what was found of the Workflow that a run follows.
	Template = facts.Template
	// Tenant is whom a run is accounted to, and whether its namespace may do so.
	Tenant = facts.Tenant
	// Verdict says what became of a result, and so whether it may be acknowledged.
	Verdict = facts.Verdict
	// Withdrawal is an attempt whose job must not start any more, and must stop if it did.
	Withdrawal = facts.Withdrawal
	// Workers are those of one topic.
	Workers = facts.Workers
	// WorkersState is what the workers of a topic do.
	WorkersState = facts.WorkersState
	// ChildToCreate is a child run that status names, as it is to be created.
	ChildToCreate = render.ChildToCreate
	// Evaluated is what the expressions of a run gave in the decisions of one pass.
	Evaluated = facts.Evaluated
	// Needs is what a decision lacks.
	Needs = render.Needs
	// Payload is what is known of one output in the object store.
	Payload = facts.Payload
	// Payloads are the outputs in the object store that were looked at, by name of the object.
	Payloads = facts.Payloads
	// StoredOutput is an output to put into the object store.
	StoredOutput = render.StoredOutput
	// Event tells people about one transition.
	Event = report.Event
)

// Their values.
const (
	ChildUnknown   = facts.ChildUnknown
	ChildThere     = facts.ChildThere
	ChildGone      = facts.ChildGone
	ChildTaken     = facts.ChildTaken
	ChildRefused   = facts.ChildRefused
	ChildPostponed = facts.ChildPostponed

	ClaimUnasked     = facts.ClaimUnasked
	ClaimOurs        = facts.ClaimOurs
	ClaimTaken       = facts.ClaimTaken
	ClaimUnavailable = facts.ClaimUnavailable

	FormFull  = facts.FormFull
	FormShort = facts.FormShort
	FormBare  = facts.FormBare

	GateUnasked     = facts.GateUnasked
	GateAsked       = facts.GateAsked
	GateOpen        = facts.GateOpen
	GateFull        = facts.GateFull
	GateBusy        = facts.GateBusy
	GateUnavailable = facts.GateUnavailable
	GateRebuilding  = facts.GateRebuilding
	GateNoPolicy    = facts.GateNoPolicy

	LockHeld        = facts.LockHeld
	LockBusy        = facts.LockBusy
	LockUnavailable = facts.LockUnavailable

	LocksHeld        = facts.LocksHeld
	LocksWaiting     = facts.LocksWaiting
	LocksRefused     = facts.LocksRefused
	LocksUnavailable = facts.LocksUnavailable

	Applied   = facts.Applied
	Duplicate = facts.Duplicate
	Stale     = facts.Stale
	Ahead     = facts.Ahead
	Waiting   = facts.Waiting

	WorkersUnknown = facts.WorkersUnknown
	WorkersPull    = facts.WorkersPull
	WorkersAbsent  = facts.WorkersAbsent
	WorkersStuck   = facts.WorkersStuck
	WorkersFull    = facts.WorkersFull
	WorkersBarred  = facts.WorkersBarred

	LackNATS  = facts.LackNATS
	LackShare = facts.LackShare
	LackTopic = facts.LackTopic

	EventNormal  = report.EventNormal
	EventWarning = report.EventWarning
)

// AskInTurn asks for locks one after the other, no more than may use what they get.
func AskInTurn(asks []LocksAsk, ask func(LocksAsk) LocksState) { facts.AskInTurn(asks, ask) }

// Finished says whether the run ended, in whichever way.
func Finished(run *v1alpha1.WorkflowRun) bool { return status.Finished(run) }

// WithoutTemplate is a run whose revision is gone, as far as its status tells of its steps.
func WithoutTemplate(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	return facts.WithoutTemplate(run)
}
