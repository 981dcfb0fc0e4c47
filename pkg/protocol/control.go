// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
)

// ActionCancel is the only action of a control message so far.
const ActionCancel = "Cancel"

// Control is a message to all workers about a run.
type Control struct {
	Action string   `json:"action"`         // ActionCancel
	Jobs   []string `json:"jobs,omitempty"` // job ids to stop; empty: all jobs of the run
}

// ErrControl is returned for text that is no control message. A worker ignores it.
var ErrControl = errors.New("not a control message")

// DecodeControl reads a control message. Unknown members and actions are allowed, so that the
// protocol can grow. Its error wraps ErrControl.
func DecodeControl(body []byte) (Control, error) {
	var c Control
	if err := readMembers(body, member{"action", &c.Action}, member{"jobs", &c.Jobs}); err != nil {
		return Control{}, fmt.Errorf("%w: %w", ErrControl, err)
	}
	return c, nil
}
