// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch/backlog"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// publishParallel bounds the jobs of one pass that are published at the same time.
const publishParallel = 16

// queue is where jobs go; *jobs.Queue does it.
type queue interface {
	Publish(ctx context.Context, j jobs.Job) error
	Fence(ctx context.Context, j jobs.Job) (epoch uint64, err error)
	Recover(ctx context.Context, j jobs.Job) (jobs.RecoverOutcome, error)
	Gone(ctx context.Context, topic string, ids []protocol.JobID) ([]protocol.JobID, error)
	Found(ctx context.Context, topic string, ids []protocol.JobID) (map[protocol.JobID]jobs.RecoverOutcome, error)
}

// Dispatcher publishes jobs.
type Dispatcher struct {
	Jobs       queue
	Clock      clock.PassiveClock
	Recoveries *prometheus.CounterVec
	Latency    prometheus.Observer
	// Backlog has a share of the stream for the jobs of each run; nil: they may have all of it.
	Backlog *backlog.Room
	// Traces gives jobs their place in traces; nil, and an empty text: they have none.
	Traces func(run *v1alpha1.WorkflowRun, id protocol.JobID) string

	noLookUntil atomic.Pointer[time.Time] // see LookUp
}

// State is what this process remembers of the jobs of one run.
type State struct {
	// published are the attempts in flight which this process knew to be with NATS, with how often
	// NATS had lost data before that was found out: after another loss that is not known any more.
	// Pruned to those in status.
	published map[protocol.JobID]uint64
	// untold are attempts whose publish failed, so that their event waits until it is made up for.
	// Pruned like published.
	untold map[protocol.JobID]bool
	// lost are attempts that are nowhere and cannot be rendered any more, and why. Pruned like
	// published.
	lost map[protocol.JobID]string
	// sizes are those of attempts for which NATS had no room. Pruned like published.
	sizes map[protocol.JobID]int
	looks looks
	// unfencedSince is when the first write as a new holder was first put off because NATS could
	// not be told; zero: it was not.
	unfencedSince time.Time
	// fenced are attempts that have an epoch for the next write. An epoch is good for one dispatch:
	// what goes out after that may be late as well.
	fenced fenced
}

// Unpublished lists the attempts which are in status and not known to be with NATS, which has lost
// data so many times. Those whose answer is a dead letter have nothing there to look for.
func (st *State) Unpublished(run *v1alpha1.WorkflowRun, losses uint64) []protocol.JobID {
	var ids []protocol.JobID
	for _, id := range lifecycle.Unanswered(run) {
		if at, ok := st.published[id]; !ok || at != losses {
			ids = append(ids, id)
		}
	}
	return ids
}

// Lost are the attempts that were to be published again and cannot be: the core is to end them.
func (st *State) Lost() []lifecycle.LostJob {
	list := make([]lifecycle.LostJob, 0, len(st.lost))
	for id, cause := range st.lost {
		list = append(list, lifecycle.LostJob{ID: id, Cause: cause})
	}
	slices.SortFunc(list, func(a, b lifecycle.LostJob) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return list
}

// Prune forgets published attempts that are no longer in flight.
func (st *State) Prune(run *v1alpha1.WorkflowRun) {
	inFlight := lifecycle.InFlight(run)
	if len(st.untold)+len(st.lost)+len(st.sizes) > 0 {
		known := make(map[protocol.JobID]bool, len(inFlight)) // thousands may wait for room
		for _, id := range inFlight {
			known[id] = true
		}
		maps.DeleteFunc(st.untold, func(id protocol.JobID, _ bool) bool { return !known[id] })
		maps.DeleteFunc(st.lost, func(id protocol.JobID, _ string) bool { return !known[id] })
		maps.DeleteFunc(st.sizes, func(id protocol.JobID, _ int) bool { return !known[id] })
	}
	if len(st.published) <= len(inFlight) {
		return
	}
	kept := make(map[protocol.JobID]uint64, len(inFlight))
	for _, id := range inFlight {
		if at, ok := st.published[id]; ok {
			kept[id] = at
		}
	}
	st.published = kept
}

// Session is what one pass does with the jobs of its run.
type Session struct {
	*State
	all *Dispatcher
	// losses is how often NATS had lost data when the pass began: what it publishes is known to be
	// there until the next loss.
	losses uint64
	epochs map[protocol.JobID]uint64 // of attempts, as far as the write of this pass needed them
	events []lifecycle.Event         // of jobs that NATS took in this pass

	gate     *gate
	lostMore bool // the last Recover found an attempt that is lost, which was not known
}

// Session begins a pass over a run.
func (d *Dispatcher) Session(st *State, losses uint64) *Session {
	if st.published == nil {
		st.published, st.untold, st.lost = map[protocol.JobID]uint64{}, map[protocol.JobID]bool{}, map[protocol.JobID]string{}
		st.sizes = map[protocol.JobID]int{}
	}
	return &Session{State: st, all: d, losses: losses, gate: &gate{sizes: st.sizes}}
}

// Lacks lists the attempts that are to be recovered.
func (s *Session) Lacks(run *v1alpha1.WorkflowRun) []protocol.JobID {
	return s.Unpublished(run, s.losses)
}

// Events are those of the jobs that NATS took in this pass.
func (s *Session) Events() []lifecycle.Event { return s.events }

// lease says whether the run's lock is still held; *lockmgr.Lease does.
type lease interface{ Err() error }

// Publish publishes the attempts that begin with the write just made. No other can have published
// them before: the fence and resourceVersion of that write say that it is ours.
func (s *Session) Publish(ctx context.Context, run *v1alpha1.WorkflowRun, held lease, fresh []lifecycle.Job) error {
	return s.each(run, held, fresh, func(j lifecycle.Job) (bool, error) {
		job := s.job(run, j)
		if !s.hold(run, job, len(j.Input)) {
			s.gate.note(j, 0, errShareUsed)
			return false, errShareUsed
		}
		err := s.all.Jobs.Publish(ctx, job)
		s.gate.note(j, 0, err)
		s.giveBack(j.ID, err)
		if err != nil {
			return true, fmt.Errorf("publish job %s: %w", j.ID, err)
		}
		return true, nil
	})
}

// renderer gives the input of an attempt. Its error may wrap render.ErrEnough, which leaves the
// attempt, and those after it, for the next pass, or a *render.LostError.
type renderer func(ctx context.Context, id protocol.JobID) (json.RawMessage, error)

// Recover brings attempts to NATS of which this process does not know whether they got there. Each
// is looked for, and only what is nowhere is rendered: the inputs of a large run take much time and
// memory. It says whether the next pass has more to do at once: attempts are left for it, or one is
// lost, which the core is to know.
func (s *Session) Recover(ctx context.Context, run *v1alpha1.WorkflowRun, held lease, list []lifecycle.Job, input renderer) (more bool, err error) {
	var enough atomic.Bool
	s.lostMore = false
	err = s.each(run, held, list, func(j lifecycle.Job) (bool, error) {
		if enough.Load() || ctx.Err() != nil {
			enough.Store(true)
			return false, render.ErrEnough
		}
		outcome, err := s.recoverOne(ctx, run, j, input)
		if errors.Is(err, render.ErrEnough) {
			enough.Store(true)
		}
		if err != nil {
			return false, fmt.Errorf("recover job %s: %w", j.ID, err)
		}
		s.all.Recoveries.WithLabelValues(outcome.String()).Inc()
		return outcome == jobs.Published, nil
	})
	return enough.Load() || s.lostMore, err
}

// recoverOne brings one attempt to NATS, if it is nowhere and its share has room for it. Where it
// is known not to have, because the attempt was refused before, NATS is not asked.
func (s *Session) recoverOne(ctx context.Context, run *v1alpha1.WorkflowRun, j lifecycle.Job, input renderer) (jobs.RecoverOutcome, error) {
	job, rendered := s.job(run, j), 0
	if known := s.gate.known(j.ID); known > 0 && !s.hold(run, job, known) {
		s.gate.note(j, known, errShareUsed)
		return 0, errShareUsed
	}
	job.Render = func(ctx context.Context) (json.RawMessage, error) {
		data, err := input(ctx, j.ID)
		rendered = len(data)
		if err == nil && !s.hold(run, job, len(data)) {
			err = errShareUsed
		}
		return data, err
	}
	outcome, err := s.all.Jobs.Recover(ctx, job)
	s.gate.note(j, rendered, err)
	s.giveBack(j.ID, err)
	switch outcome {
	case jobs.Queued:
		s.found(run, job)
	case jobs.Answered:
		s.all.Backlog.Drop(j.ID)
	case jobs.Published: // it was taken before
	}
	return outcome, err
}

// each does something for several jobs at a time, and remembers those for which it worked as
// published. do also says whether the job goes out for the first time by it, as far as is known:
// people are told when it has. What the gate keeps back is left for the next pass.
func (s *Session) each(run *v1alpha1.WorkflowRun, held lease, list []lifecycle.Job, do func(lifecycle.Job) (first bool, err error)) error {
	var (
		mu     sync.Mutex
		failed error
		group  errgroup.Group
	)
	group.SetLimit(publishParallel)
	for _, j := range s.gate.inOrder(list) {
		group.Go(func() error {
			// After a pause of the process the lease knows first that it is over, and another
			// process may have recovered the job.
			first, err := false, held.Err()
			switch {
			case err != nil:
			case !s.gate.admits(j):
				err = render.ErrEnough // it stays unpublished
			default:
				first, err = do(j)
			}
			mu.Lock()
			defer mu.Unlock()
			if first {
				s.untold[j.ID] = true
			}
			failed = s.note(failed, run, j, err)
			return nil
		})
	}
	_ = group.Wait() // failed has all of them
	for _, j := range list {
		delete(s.fenced.epochs, j.ID)
	}
	return failed
}

// note notes what became of a job, and adds its error to those before, unless it is none that is
// tried again.
func (s *Session) note(failed error, run *v1alpha1.WorkflowRun, j lifecycle.Job, err error) error {
	lost, isLost := errors.AsType[*render.LostError](err)
	switch {
	case isLost:
		_, known := s.lost[j.ID]
		s.lost[j.ID], s.lostMore = lost.Error(), s.lostMore || !known
	case errors.Is(err, render.ErrEnough), errors.Is(err, errShareUsed):
	case err != nil:
		return errors.Join(failed, err)
	default:
		s.published[j.ID] = s.losses
		delete(s.lost, j.ID)
		s.taken(run, j)
	}
	return failed
}

// taken measures the time from the decision to the PubAck of a job that went out, and tells of it.
func (s *Session) taken(run *v1alpha1.WorkflowRun, j lifecycle.Job) {
	if !s.untold[j.ID] {
		return
	}
	if e, worth := report.Dispatched(j); worth {
		s.events = append(s.events, e)
	}
	delete(s.untold, j.ID)
	for i := range run.Status.Steps {
		if step := &run.Status.Steps[i]; step.Name == j.ID.Step && step.DispatchedAt != nil {
			s.all.Latency.Observe(s.all.Clock.Since(step.DispatchedAt.Time).Seconds())
			return
		}
	}
}

func (s *Session) job(run *v1alpha1.WorkflowRun, j lifecycle.Job) jobs.Job {
	fence, _ := leases.FenceOf(run)
	place := ""
	if s.all.Traces != nil {
		place = s.all.Traces(run, j.ID)
	}
	return jobs.Job{
		ID: j.ID, Topic: j.Topic, Input: j.Input, Deadline: j.Deadline, Locks: j.Locks, Fence: fence,
		Source: "/namespaces/" + run.Namespace + "/workflowruns/" + run.Name, Epoch: s.epochs[j.ID],
		TraceParent: place,
	}
}
