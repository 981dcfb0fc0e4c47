// SPDX-License-Identifier: Apache-2.0

package audit

import "time"

// Part is something that is read as a whole, or not at all.
type Part string

// The parts of a snapshot.
const (
	Runs     Part = "runs"
	Slots    Part = "slots"
	Locks    Part = "locks"
	RunLocks Part = "run-locks"
	Jobs     Part = "jobs"
	Results  Part = "results"
	Outputs  Part = "outputs"
)

// Snapshot is what the stores said, one after the other: first Redis and NATS, then the runs. Jobs
// were read before results: a job is in one of both until its result is in status.
type Snapshot struct {
	At time.Time
	// Unread are the parts that could not be read, each with why.
	Unread map[Part]string

	Runs map[string]Run // by UID

	Slots, Places []Slot
	// Closed are the quotas whose data is being rebuilt: nothing is said of them.
	Closed   map[Quota]bool
	Keys     []Claim
	Holds    []Hold
	Waiters  []Hold
	RunLocks []RunLock
	Jobs     []Job
	Results  []Result
	Outputs  []Output
}

// Quota is where runs are counted.
type Quota struct {
	Policy string `json:"policy,omitempty"`
	Tenant string `json:"tenant,omitempty"`
}

// Run is what the API server says of a run.
type Run struct {
	Name string // namespace/name
	// Newer: an operator of a newer version wrote it. Only its existence counts, and nothing else
	// of it is set.
	Newer bool
	Ended bool
	// Refused: it ended because another run has its idempotency key.
	Refused bool
	// Quota is where it has to have a slot; nil: nowhere.
	Quota   *Quota
	Fence   int64
	Tickets map[string]Ticket
	// Children are the uids of its child runs that were let in.
	Children []string
	// Unanswered are the ids of the jobs that have to be in NATS, or their results.
	Unanswered []string
	// Over are those of the queued jobs of which no result is wanted any more.
	Over map[string]bool
	// Outputs are the names of its objects in the object store.
	Outputs []string
}

// Ticket is what a run, or a step of it, says of locks across runs.
type Ticket struct {
	Fence int64 // of its hold; 0: it has none
	Over  bool  // it never needs locks again
	// Children are those of the run's inside of a part that is over: until they have ended, too, it
	// keeps what it has.
	Children []string
}

// Slot is a slot of a run, or its place in the queue.
type Slot struct {
	Quota
	UID string
}

// Claim is an idempotency key that a run owns.
type Claim struct{ Tenant, Key, UID string }

// Hold is what a ticket has of locks across runs.
type Hold struct {
	Ticket, UID string
	Fence       int64
}

// RunLock is the lock of a run in Redis. Nobody has it if Token is empty.
type RunLock struct {
	UID, Token string
	Fence      int64
	Left       time.Duration // below 0: it does not end by itself
}

// Job is a job in the stream.
type Job struct{ ID, Topic, UID string }

// Result is a message in the stream of results. Stored is known of those whose run is gone or has
// ended.
type Result struct {
	ID, UID string
	Stored  time.Time
}

// Output is an object in the object store, by its entry. Whether its parts are there is
// not looked at.
type Output struct{ Name, UID string }

func (s *Snapshot) read(parts ...Part) bool {
	for _, p := range parts {
		if _, unread := s.Unread[p]; unread {
			return false
		}
	}
	return true
}
