// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"time"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Job is one attempt to hand to a worker.
type Job struct {
	ID       protocol.JobID
	Topic    string
	Input    json.RawMessage
	Deadline time.Time // after it nobody waits for the result
	Locks    []string  // that protect it, as "<lock>=<fence>"
}

// LostJob is an attempt in flight whose job is nowhere, and cannot be rendered any more.
type LostJob struct {
	ID    protocol.JobID
	Cause string // why it cannot be rendered, for people
}

// Withdrawal is an attempt whose job must not start any more, and must stop if it did.
type Withdrawal struct {
	ID    protocol.JobID
	Topic string
}
