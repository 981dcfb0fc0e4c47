// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Judge compares an attempt with the persisted one of its step. Applied means: this attempt
// is in flight.
func Judge(run *v1alpha1.WorkflowRun, steps []v1alpha1.StepStatus, index map[string]int, id protocol.JobID) (int, Verdict) {
	i, known := index[id.Step]
	if !known || i >= len(steps) || id.RunUID != string(run.UID) || (id.Item != protocol.NoItem) != status.IsForEach(&steps[i]) {
		return 0, Ahead
	}
	switch s := &steps[i]; {
	case status.IsForEach(s):
		return i, Duplicate // see fanout.Judge
	case id.Attempt > s.Attempt:
		return i, Ahead
	case id.Attempt < s.Attempt:
		return i, Stale
	case status.WithWorker(s):
		return i, Applied
	default:
		return i, Duplicate
	}
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

// Verdicts. Applied, Duplicate and Stale are acknowledged once the decision is persisted; Ahead and
// Waiting never are.
const (
	Applied   Verdict = "Applied"   // its effect is in Decision.Status
	Duplicate Verdict = "Duplicate" // that attempt was answered, or ended, before
	Stale     Verdict = "Stale"     // of an older attempt, or of a finished run
	Ahead     Verdict = "Ahead"     // of an attempt or step that status does not know: refresh and decide again
	Waiting   Verdict = "Waiting"   // not looked at: the run lock is not held
)
