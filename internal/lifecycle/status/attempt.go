// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
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

// StartedAt is when a worker began. The server's clock said when, which may differ from ours: it is
// believed only between dispatch and now.
func StartedAt(published time.Time, dispatched *metav1.MicroTime, now time.Time) *metav1.MicroTime {
	at := published
	if dispatched != nil && at.Before(dispatched.Time) {
		at = dispatched.Time
	}
	if at.After(now) {
		at = now
	}
	return bounds.Micro(at)
}
