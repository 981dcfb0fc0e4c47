// SPDX-License-Identifier: Apache-2.0

// Package facts is what the console knows of a cluster, as internal/console/cluster reads it and
// internal/console/views shows it. It has types only.
package facts

import (
	"cmp"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// Row is a run as the list shows it.
type Row struct {
	Namespace, Name, UID string
	Phase, Steps, Tenant string
	Class, Policy        string
	Holder, Fence        string // of the last write
	Reason, Message      string
	Created              time.Time
}

// Ended says whether the run has ended.
func (r *Row) Ended() bool {
	return slices.Contains([]string{"Succeeded", "Failed", "Cancelled", "TimedOut"}, r.Phase)
}

// Rows are the runs of a list at a moment.
type Rows struct {
	All  []Row // the newest first
	More bool  // there are others, which the list has no room for
	// Stale is why the rows are not kept up to date now; nil: they are.
	Stale error
}

// Run is a run with all that its page tells of.
type Run struct {
	Stored     *v1alpha1.WorkflowRun // as the API server has it
	Run        *v1alpha1.WorkflowRun // with the steps of the Workflow that it follows
	Children   []v1alpha1.WorkflowRun
	Policies   []v1alpha1.LockPolicy // nil: they may not be seen
	Events     []corev1.Event        // the newest first; nil: they may not be seen, or NoEvents says why
	NoEvents   error                 // why the events could not be read
	EventsLeft bool                  // there are older events
	// EventsUnread says that there are more events than were read: these may not be the newest.
	EventsUnread bool
	Others       []v1alpha1.WorkflowRun // outlines of those under way, if the run waits in a queue or for locks
	All          bool                   // Others are those of all namespaces
	Unread       error                  // why there are no Others where the run waits for them; nil: they were read
	Tops         runview.Tops           // of Others, if the run waits for locks
	Semaphores   []v1alpha1.Semaphore   // with Others; nil: they may not be seen, or are too many
	Owner        runview.Owner          // who drives the run
	Missing      []error                // what else could not be read of it; nil: nothing
}

// Owners are who owns which partition, and the Leases of the replicas.
type Owners struct {
	Claims []ownership.Claim // nil: there is no ConfigMap of them
	Leases []coordinationv1.Lease
	Leader *coordinationv1.Lease // that of --ownership=leader; nil: there is none, or it may not be seen
}

// Letters are dead letters.
type Letters struct {
	All     []Letter // the oldest
	More    int      // how many more there are
	Warning string   // whose they are, if not this cluster's; "": nobody tells
}

// Letter is a dead letter.
type Letter struct {
	Sequence      uint64
	StoredAt      time.Time
	Reason, Cause string
	Namespace     string // "": the run is gone, or may not be seen
	Run           string // its name, or else its UID
	Unproved      bool   // only the message says that it is of this run
	Step          string
	Attempt       int32
	Deliveries    uint64
	Bytes         int
	Refused       string // why a redrive would be refused; "": it would not
}

// Sample is how busy the run locks of a policy were at a moment.
type Sample struct {
	At            time.Time
	BusyPerMinute int64
	P95Millis     int64
}

// EventTime is when an event happened last.
func EventTime(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
}
