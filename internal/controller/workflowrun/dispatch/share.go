// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"errors"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// errShareUsed keeps a job back: its run or its namespace holds all that it may of the stream of
// jobs. It is no error of a pass.
var errShareUsed = errors.New("the share of the stream of jobs is used up")

// hold has a job that is about to be published count, if its share has room for it.
func (s *Session) hold(run *v1alpha1.WorkflowRun, job jobs.Job, input int) bool {
	return s.all.Backlog.Take(run.Namespace, job.ID, jobs.StoredBytes(job, input))
}

// found has a job count that is in the stream. How large it is would cost a read of it, so the
// input counts as it stands in the spec: without the outputs that it is made of.
func (s *Session) found(run *v1alpha1.WorkflowRun, job jobs.Job) {
	if s.all.Backlog == nil {
		return
	}
	input, steps := 0, dag.Steps(run)
	for i := range steps {
		if step := &steps[i]; step.Name == job.ID.Step && step.Job != nil && step.Job.Input != nil {
			input = len(step.Job.Input.Raw)
		}
	}
	s.all.Backlog.Found(run.Namespace, job.ID, jobs.StoredBytes(job, input))
}

// giveBack gives back what a job holds that was not published for sure. After other errors it may
// be in the stream.
func (s *Session) giveBack(id protocol.JobID, err error) {
	_, lost := errors.AsType[*render.LostError](err)
	if lost || errors.Is(err, bus.ErrNoRoom) || errors.Is(err, jobs.ErrTooManyTopics) || errors.Is(err, render.ErrEnough) {
		s.all.Backlog.Drop(id)
	}
}

// Tidy forgets attempts that are no longer in flight. What their jobs hold of the stream is given
// back, but for those that are still to be withdrawn.
func (s *Session) Tidy(run *v1alpha1.WorkflowRun, owed []lifecycle.Withdrawal) {
	s.Prune(run)
	left := make([]protocol.JobID, len(owed))
	for i, w := range owed {
		left[i] = w.ID
	}
	inFlight := lifecycle.Unanswered(run)
	s.all.Backlog.Keep(string(run.UID), inFlight, left)
	s.all.Backlog.Fences().Keep(string(run.UID), inFlight)
}

// Forget forgets a run that is gone, or that another replica drives.
func (d *Dispatcher) Forget(uid string) {
	d.Backlog.Forget(uid)
	d.Backlog.Fences().Forget(uid)
}

// Leave forgets the runs that another replica drives from now on.
func (d *Dispatcher) Leave(gone func(uid string) bool) {
	d.Backlog.Leave(gone)
	d.Backlog.Fences().Leave(gone)
}

// TryAfter is after which time a run may try again whose jobs found no room in its share.
func (d *Dispatcher) TryAfter(namespace string, now time.Time) time.Duration {
	return d.Backlog.TryAfter(namespace, now)
}
