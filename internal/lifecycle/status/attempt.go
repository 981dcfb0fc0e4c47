package status

import (
	"fmt"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// ItemJobID names an attempt of an item of a step.
func ItemJobID(run *v1alpha1.WorkflowRun, step string, item int, attempt int32) protocol.JobID {
	id := JobID(run, step, attempt)
	id.Item = fmt.Sprint(item)
	return id
}

// JobID names an attempt of a step.
func JobID(run *v1alpha1.WorkflowRun, step string, attempt int32) protocol.JobID {
	return protocol.JobID{RunUID: string(run.UID), Step: step, Item: protocol.NoItem, Attempt: attempt}
}
