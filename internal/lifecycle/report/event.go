// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Dispatched tells that a job was taken by NATS. It is no event of a decision: nothing has gone out
// when that is persisted. Of an item nothing is told: ok is false.
func Dispatched(j facts.Job) (e Event, ok bool) {
	if j.ID.Item != protocol.NoItem {
		return Event{}, false
	}
	message := fmt.Sprintf("Step %s: attempt %d goes to topic %s", j.ID.Step, j.ID.Attempt, j.Topic)
	return newDetail("StepDispatched", message), true
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
	// Detail: nothing is wrong, and it is neither the begin nor the end of the run. Status says it,
	// too, so it is written only for those who ask for step events.
	Detail bool
}
