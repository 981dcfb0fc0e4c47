// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Signal is what came from outside for a step that waits: of an approval, a decision about it.
type Signal struct {
	Step   string
	At     time.Time       // when it was sent
	Output json.RawMessage // nil: none

	// Of a decision.
	Name     string // of its StepApproval
	Decision v1alpha1.ApprovalDecision
	Approver string
	Comment  string
}
