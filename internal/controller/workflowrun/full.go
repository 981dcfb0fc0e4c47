// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

const (
	// nearlyFull is from how many bytes beside its status on an object may have no room for one:
	// etcd takes 1.5 MiB, and with each key who manages it, which is not counted here.
	nearlyFull = 512 << 10
	// meetWithin is the time, from when a process begins to drive them, in which it tries the runs
	// which another one may have found full. After a change of owner there may be thousands, and
	// each costs three large writes.
	meetWithin = time.Minute
)

// full is what this process knows of a run whose object has no room for its status.
type full struct {
	on         string         // resourceVersion of the object that form is for
	generation int64          // its own
	metadata   int            // bytes of its metadata: with as many there is no room
	form       lifecycle.Form // of an end, which is to be tried next
	tries      int            // of the bare form, that were refused
	until      time.Time      // nothing is written before; zero: at once
}

func fullAs(run *v1alpha1.WorkflowRun) *full {
	return &full{on: run.ResourceVersion, generation: run.Generation, metadata: metadataBytes(run)}
}

// forms name the forms of a status in metrics.
var forms = map[lifecycle.Form]string{lifecycle.FormFull: "full", lifecycle.FormShort: "short", lifecycle.FormBare: "bare"}

// form is how much of an end a run has room for, as far as is known.
func (m *memory) form() lifecycle.Form {
	if m.full == nil {
		return lifecycle.FormFull
	}
	return m.full.form
}

// meet has a large run that nobody has written for a while tried a little later, at random: another
// process may have found it full, and told nobody. None may have that is younger than this
// process's work on its partition, which began at since: that is this process's own clock.
func (m *memory) meet(run *v1alpha1.WorkflowRun, since, now time.Time, random func() float64) {
	known := m.met
	m.met = true
	if known || !run.Unwritten() || now.Sub(since) >= meetWithin || !run.CreationTimestamp.Time.Before(since.Truncate(time.Second)) {
		return
	}
	if size, err := m.beside.of(run); err == nil && size > nearlyFull {
		m.full = fullAs(run)
		m.full.until = now.Add(time.Duration(random() * float64(meetWithin)))
	}
}

// roomAgain forgets that an object had no room once it may have some. One that was never written,
// and is no smaller after an edit, has none: it is tried when it was to be tried, or at once if
// its spec is another, since that may be a cancel.
func (m *memory) roomAgain(run *v1alpha1.WorkflowRun, now time.Time) {
	f := m.full
	switch {
	case f == nil || f.on == run.ResourceVersion:
	case !run.Unwritten() || metadataBytes(run) < f.metadata:
		m.full = nil
	case f.generation != run.Generation || !f.until.After(now):
		f.on, f.generation, f.form, f.until = run.ResourceVersion, run.Generation, lifecycle.FormFull, time.Time{}
	}
}
