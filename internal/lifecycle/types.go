// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Decision is what to persist, and then to do.
type Decision struct {
	Needs     Needs                      // what it lacks of outputs in the object store
	Status    v1alpha1.WorkflowRunStatus // what to persist
	Changed   bool                       // a write is needed: Status differs in more than fence, lock, policy and details of the RunLock conditions
	Verdicts  []Verdict                  // one per Input.Results
	Dispatch  []Job                      // attempts that begin with this decision, in step order
	Create    []ChildToCreate            // child runs that begin with this decision, in step order
	Withdraw  []Withdrawal               // attempts in flight that this decision ended without an answer
	Events    []Event                    // one per transition
	Lists     map[string][]any           // items of steps with forEach, by render.View.ListName, and keys of locks that are waited for: worth keeping for the next decision
	Evaluated *Evaluated                 // what expressions gave so far, for the next decision of this pass; nil: none was evaluated
	Cut       bool                       // expressions are left for the next decision, which is to be made at once: those so far took what a pass may
	Postponed bool                       // outputs in the object store are left for the next decision: they are more than one may load

	MayLag     bool            // Dispatch may be carried out before Status is written: see Running ahead
	NeedsNewer int32           // the run is left alone: the version that an operator has to know for it; 0: this core knows it
	Deferred   bool            // a time-out that is due waits for answers: see Answers
	Delete     bool            // the finished run's time to live is over: delete the object
	Told       bool            // Status tells of all Input.DeadLetters: they may be put aside; false if there are none
	Rejected   map[int]string  // by index of Input.Results, why one is unusable: its bytes are put aside when it is settled
	Granted    []time.Duration // one per applied Retry: the wait that its worker gets
	Wake       time.Time       // zero, or when Decide could decide otherwise with no new fact; always after Input.Now
}
