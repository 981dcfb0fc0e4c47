package lifecycle

import (
	"encoding/json"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Input is all that a decision depends on.
type Input struct {
	Run     *v1alpha1.WorkflowRun     // spec and status as last persisted; never changed; Status may be nil
	Now     time.Time                 // by the operator's wall clock
	Results []Result                  // facts waiting for this run, in order of arrival
	Lock    Lock                      // the writer
	Policy  *v1alpha1.PolicyReference // nil: built-in defaults
	Tenant  Tenant                    // only used until status.tenant is pinned
	Permits Permits                   // only used at first sight
	Gate    Gate                      // only used until the run is admitted, under the lock
	Claim   Claim                     // of spec.idempotencyKey; only used until the run is admitted, under the lock

	Children map[string]Child // by name: what was seen of the child runs that Children names
	Parent   *Parent          // of a run that claims one; nil: it does not

	Workers   map[string]Workers // of the topics that WaitedFor names, as far as it is known
	Approvals []Approval         // all decisions about approvals of the run that are known; the first for a step counts

	NATSDown time.Time // since when NATS does not answer: no job goes out, and no result comes in; zero: it answers, as far as is known

	Answers Answers // of the stream of results: asked for where a time-out is due

	Lists map[string][]any // Lists of an earlier decision about the run, by step; what is not there is evaluated

	Evaluated *Evaluated // Evaluated of an earlier decision of the same pass; nil: there was none
	Quick     bool       // evaluates only what takes a few milliseconds; what takes longer is Cut, even if nothing begins
	Glance    bool       // only says whether the run would change: no expression is evaluated, and a step that could begin counts as a change

	Payloads      Payloads      // outputs in the object store that were looked at for this decision
	DeadLetters   []DeadLetter  // results that the shell is to put aside: given until a decision has Told, and put aside after that
	Form          Form          // how much of an end the API server has room for
	MaxRetryAfter time.Duration // caps what a worker may ask for with Retry; 0: the schema's default, 30 s
}

// DeadLetter is a result of the run that is put aside because processing it failed too often.
type DeadLetter struct {
	ID       protocol.JobID
	Started  bool   // it says only that a worker began: the answer is still to come
	Failures int    // deliveries that failed
	Cause    string // why the last one did
}

// Form says how much of its status a run that ends has room for. With another than FormFull a run does not go on: it ends in that form.
type Form int

// Forms of an end.
const (
	FormFull  Form = iota // all of it
	FormShort             // without outputs of steps, approvers' words, texts of errors, and most of what conditions say
	FormBare              // without steps and outputs, too: no larger than any status that was written before
)

// WorkersState is what the workers of a topic do.
type WorkersState int

// States of workers. The zero value says nothing.
const (
	WorkersUnknown WorkersState = iota
	WorkersPull
	WorkersAbsent // nobody pulls jobs
	WorkersStuck  // jobs wait, and for long none was taken or done
)

// Workers are those of one topic.
type Workers struct {
	State WorkersState
	Since time.Time // when that was first seen
}

// Approval is a decision about an approval step.
type Approval struct {
	Name     string // of its StepApproval
	Step     string
	Decision v1alpha1.ApprovalDecision
	Approver string
	Comment  string
	Output   json.RawMessage // nil: none
	At       time.Time       // when it was created
}

// LockState says whether this process may write the run.
type LockState int

// States of the run lock.
const (
	LockHeld        LockState = iota // this process holds a valid lease
	LockBusy                         // another lease holds the lock
	LockUnavailable                  // Redis cannot be used
)

// Lock describes the run lock as the writer sees it.
//
// Held: LeaseID and Fence are those of the lease. Busy and Unavailable: LeaseID is a fresh random id for a forced end, and Fence
// is ignored (a forced end writes status.fence + 1).
type Lock struct {
	State           LockState
	LeaseID         string
	Holder          string
	Fence           int64
	AcquiredAt      time.Time
	ForRun          bool      // the lease is kept from admission to the end of the run (scope Run)
	Renewed         bool      // renewed at least once
	RenewalFailures int32     // consecutive
	RenewalCause    string    // why the last renewal failed; "" if it did not
	UnlockedSince   time.Time // the validity ended then and the work goes on without the lock; zero: it did not
	Lost            string    // condition reason why this process lost its previous lease of this run; "" if it did not
	Message         string    // Unavailable: the cause. Busy: who holds it
	Overdue         bool      // Busy: it was waited for longer than may go unsaid
}

// Result is one message of a worker about one attempt.
type Result struct {
	ID          protocol.JobID
	Result      protocol.Result
	Rejected    string    // why the body is unusable; "" if it is usable
	PublishedAt time.Time // by the server's clock
}

// Verdict says what became of a result, and so whether it may be acknowledged.
type Verdict string

// Verdicts. Applied, Duplicate and Stale are acknowledged once the decision is persisted; Ahead and Waiting never are.
const (
	Applied   Verdict = "Applied"   // its effect is in Decision.Status
	Duplicate Verdict = "Duplicate" // that attempt was answered, or ended, before
	Stale     Verdict = "Stale"     // of an older attempt, or of a finished run
	Ahead     Verdict = "Ahead"     // of an attempt or step that status does not know: refresh and decide again
	Waiting   Verdict = "Waiting"   // not looked at: the run lock is not held
)

// Job is one attempt to hand to a worker.
type Job struct {
	ID       protocol.JobID
	Topic    string
	Input    json.RawMessage
	Deadline time.Time // after it nobody waits for the result
}

// Withdrawal is an attempt whose job must not start any more, and must stop if it did.
type Withdrawal struct {
	ID    protocol.JobID
	Topic string
}

// Types of events, as Kubernetes knows them.
const (
	EventNormal  = "Normal"
	EventWarning = "Warning"
)

// Event tells people about one transition.
type Event struct {
	Type    string // EventNormal or EventWarning
	Reason  string
	Message string
}

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
	Lists     map[string][]any           // items of steps with forEach that were looked at, by step: worth keeping for the next decision
	Evaluated *Evaluated                 // what expressions gave so far, for the next decision of this pass; nil: none was evaluated
	Cut       bool                       // expressions are left for the next decision, which is to be made at once: those so far took what a pass may

	NeedsNewer int32           // the run is left alone: the version that an operator has to know for it; 0: this core knows it
	Deferred   bool            // a time-out that is due waits for answers: see Answers
	Delete     bool            // the finished run's time to live is over: delete the object
	Told       bool            // Status tells of all Input.DeadLetters: they may be put aside; false if there are none
	Rejected   map[int]string  // by index of Input.Results, why one is unusable: its bytes are put aside when it is settled
	Granted    []time.Duration // one per applied Retry: the wait that its worker gets
	Wake       time.Time       // zero, or when Decide could decide otherwise with no new fact; always after Input.Now
}
