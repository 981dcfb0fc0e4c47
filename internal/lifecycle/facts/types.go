// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"time"

	"github.com/syncopate-dev/syncopate/internal/document"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// DeadLetter is a result of the run that is put aside because processing it failed too often.
type DeadLetter struct {
	ID       protocol.JobID
	Started  bool   // it says only that a worker began: the answer is still to come
	Failures int    // deliveries that failed
	Cause    string // why the last one did
}

// Form says how much of its status a run that ends has room for. With another than FormFull a run
// does not go on: it ends in that form.
type Form int

// Forms of an end.
const (
	FormFull  Form = iota // all of it
	FormShort             // without outputs of steps, approvers' words, texts of errors, and most of what conditions say
	FormBare              // without steps and outputs, too: no larger than any status that was written before
)

// Lack is what has no room for jobs or outputs of a run.
type Lack int

// Lacks.
const (
	LackNATS  Lack = iota // NATS: a stream, the account or the server is full
	LackShare             // NATS is not full: what the run or its namespace may have of it for jobs is used up
	LackTopic             // NATS is not full: there are too many topics, and those of jobs have no consumer
)

// WorkersState is what the workers of a topic do.
type WorkersState int

// States of workers. The zero value says nothing.
const (
	WorkersUnknown WorkersState = iota
	WorkersPull
	WorkersAbsent // nobody pulls jobs
	WorkersStuck  // jobs wait, and for long none was taken or done
	WorkersFull   // the same, but as many jobs are with workers as the topic may have
	WorkersBarred // the topic has no consumer, so that workers get none of its jobs
)

// Workers are those of one topic.
type Workers struct {
	State WorkersState
	Since time.Time // when that was first seen
}

// Payload is what is known of one output in the object store.
type Payload struct {
	Data    []byte           // its bytes; nil: they are as the reference says, and were not kept
	JSON    document.Checked // Data, if they were checked; else zero
	Problem string           // why it cannot be used; "" if it can. Never of a store that could not be asked: that is no fact
	// Stored is where the canonical form is of an output that has this name as its worker sent it;
	// nil: such bytes are not stored under another name.
	Stored *protocol.OutputRef
}

// Parse reads the bytes. pause is called now and then if it is not nil.
func (p Payload) Parse(pause func()) (document.Value, error) {
	if p.JSON.IsZero() {
		return bounds.ParseJSON(p.Data, pause)
	}
	return p.JSON.Parse(pause).Root(), nil
}

// Payloads are the outputs in the object store that were looked at, by name of the object, and
// those that were stored, also by the name that they have as their workers sent them.
type Payloads map[string]Payload

// Evaluated is what the expressions of a run gave in the decisions of one pass, so that none is
// evaluated twice in it, and what that took. Decision.Evaluated is a new one; Input.Evaluated
// is never changed.
type Evaluated struct {
	Cost   int                        // of all of them, in cost units of expr; the shell takes some off to let a pass evaluate more
	Bytes  int                        // of Values
	Valid  bool                       // the spec was validated, and has no mistakes
	Values map[string]json.RawMessage // by place, and by what could be seen from there
}
