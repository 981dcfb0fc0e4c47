// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Input is all that a decision depends on.
type Input struct {
	Run      *v1alpha1.WorkflowRun     // spec and status as last persisted; never changed; Status may be nil
	Now      time.Time                 // by the operator's wall clock
	Results  []Result                  // facts waiting for this run, in order of arrival
	Lock     Lock                      // the writer
	Policy   *v1alpha1.PolicyReference // nil: built-in defaults
	Tenant   Tenant                    // only used until status.tenant is pinned
	Permits  Permits                   // only used at first sight
	Template Template                  // of a run that follows a Workflow: Run has its steps then
	Origin   Origin                    // of the run that spec.startFrom names; only used at first sight
	Gate     Gate                      // only used until the run is admitted, under the lock
	Locks    map[string]LocksAnswer    // by step, "" for spec.locks; only used until they are in status, under the lock
	Claim    Claim                     // of spec.idempotencyKey; only used until the run is admitted, under the lock

	Children map[string]Child // by name: what was seen of the child runs that Children names
	Parent   *Parent          // of a run that claims one; nil: it does not

	Workers map[string]Workers // of the topics that WaitedFor names, as far as it is known
	Signals []Signal           // all that came for steps of the run, as far as it is known; the first for a step counts

	SignalsAsOf time.Time // all that was sent until then is among Signals: asked for where a time-out is due; zero: nobody asked

	NATSDown time.Time // since when NATS does not answer: no job goes out, and no result comes in; zero: it answers, as far as is known

	NoRoom time.Time // since when jobs or outputs of this run find no room in NATS; zero: they do, as far as is known
	Lack   Lack      // what has none

	Checkpoint Checkpoint // how far the run may be ahead of its status

	Lost []LostJob // attempts that were to be published again and cannot be

	Answers Answers // of the stream of results: asked for where a time-out is due

	Lists map[string][]any // Lists of an earlier decision about the run; what is not there is evaluated

	Evaluated *Evaluated // Evaluated of an earlier decision of the same pass; nil: there was none
	Quick     bool       // evaluates only what takes a few milliseconds; what takes longer is Cut, even if nothing begins
	Glance    bool       // only says whether the run would change: no expression is evaluated, and a step that could begin counts as a change

	Pause func() // called now and then by what takes long, and may wait; nil: never
	// Yield is called by what may take seconds, at first sight of a run, after each piece; false:
	// this decision is of no use any more. Nil: never.
	Yield func() bool

	Payloads      Payloads      // outputs in the object store that were looked at for this decision
	EndStored     time.Time     // when the API server stored the end of a run of which lifecycle.EndsAhead holds; zero: not known
	DeadLetters   []DeadLetter  // results that the shell is to put aside: given until a decision has Told, and put aside after that
	Form          Form          // how much of an end the API server has room for
	MaxRetryAfter time.Duration // caps what a worker may ask for with Retry; 0: the schema's default, 30 s
}
