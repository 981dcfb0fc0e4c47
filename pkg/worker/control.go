// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// running knows the jobs at work, so that the operator can stop them.
//
// Invariant: a job is in it from before its handler starts until all its messages are settled, and
// no job is done beside itself.
type running struct {
	mu   sync.Mutex
	jobs map[protocol.JobID]*atWork
}

// atWork is a job at work. The server may have several messages of it: one is of before a loss of
// data, or the operator published the job again when the window of its Msg-Id was over.
type atWork struct {
	id     protocol.JobID
	cancel context.CancelCauseFunc
	places map[place]bool
	open   []delivered // that the job ends, one for each place
	sealed bool        // no more messages are ended with it
	unsaid atomic.Bool // Started is to be said

	cancelled atomic.Bool // nobody wants the result
}

// cause says why the job's context ended; nil: it did not. A context keeps its first cause, so one
// that ended with the grace period does not tell of a cancel that came later.
func (one *atWork) cause(ctx context.Context) error {
	if one.cancelled.Load() {
		return ErrCancelled
	}
	return context.Cause(ctx)
}

// delivered is a message, and where it is in the stream.
type delivered struct {
	place
	*nats.Msg
}

// place is where a message is in the stream. In one that was made anew another message may have the
// same sequence.
type place struct {
	sequence uint64
	stored   int64 // Unix time in nanoseconds
}

// add notes a message. It says yes if that begins a job, which then has that context, and leaves
// when remove is called. A message of its own of a job at work is pinged and settled as that job's
// first one is, and Started is said once more: the stream of results may be a new one, too.
func (r *running) add(ctx context.Context, id protocol.JobID, at place, msg *nats.Msg) (job context.Context, one *atWork, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one = r.jobs[id]; one != nil {
		one.join(at, msg)
		return nil, one, false
	}
	if r.jobs == nil {
		r.jobs = map[protocol.JobID]*atWork{}
	}
	job, cancel := context.WithCancelCause(ctx)
	one = &atWork{id: id, cancel: cancel, places: map[place]bool{}}
	one.join(at, msg)
	r.jobs[id] = one
	return job, one, true
}

// joins notes a message if its job is at work.
func (r *running) joins(id protocol.JobID, at place, msg *nats.Msg) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.jobs[id]
	if one != nil {
		one.join(at, msg)
	}
	return one != nil
}

// join notes a message of its own. The caller has the mutex. A stream never goes back in its
// sequences, so a message that was stored before this one and has no lower place is gone with its
// stream. What is said of it would count for the message that has its place now, which may be
// another job's.
//
// A later delivery of a message takes the place of the one before: if the topic's consumer was made
// anew, the server takes no NAK of a delivery by the one that is gone.
func (one *atWork) join(at place, msg *nats.Msg) {
	if one.sealed {
		return
	}
	if one.places[at] {
		if i := slices.IndexFunc(one.open, func(m delivered) bool { return m.place == at }); i >= 0 {
			one.open[i].Msg = msg
		}
		return
	}
	one.places[at] = true
	one.open = slices.DeleteFunc(one.open, func(m delivered) bool { return m.sequence >= at.sequence && m.stored < at.stored })
	one.open = append(one.open, delivered{at, msg})
	one.unsaid.Store(true)
}

func (r *running) remove(one *atWork) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, one.id)
	one.cancel(nil)
}

// messages are those that the job ends.
func (r *running) messages(one *atWork) []delivered {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(one.open)
}

// seal gives the messages that are to be settled, the last one first: the others may be in a stream
// that is gone, where no acknowledgement is confirmed. A message that comes later comes again after
// its AckWait: NATS may have lost the result before it was stored.
func (r *running) seal(one *atWork) []delivered {
	r.mu.Lock()
	defer r.mu.Unlock()
	one.sealed = true
	all := slices.Clone(one.open)
	slices.Reverse(all)
	return all
}

// cancel stops the named jobs of a run; none named means all.
func (r *running) cancel(runUID string, ids []string) (stopped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, one := range r.jobs {
		if id.RunUID == runUID && (len(ids) == 0 || slices.Contains(ids, id.String())) {
			one.cancelled.Store(true)
			one.cancel(ErrCancelled)
			stopped++
		}
	}
	return stopped
}

// listen obeys control messages until the subscription ends.
func (w *Worker) listen() (*nats.Subscription, error) {
	sub, err := w.nc.Subscribe(w.names.Control("*"), func(m *nats.Msg) {
		uid, ok := w.names.ParseControl(m.Subject)
		c, err := protocol.DecodeControl(m.Data)
		if !ok || err != nil || c.Action != protocol.ActionCancel {
			w.log.Info("Control message not understood", "subject", m.Subject)
			return
		}
		if n := w.running.cancel(uid, c.Jobs); n > 0 {
			w.log.Info("Jobs cancelled", "run", uid, "jobs", n)
		}
	})
	if errors.Is(err, nats.ErrConnectionClosed) {
		err = ErrConnectionClosed
	}
	if err != nil {
		return nil, fmt.Errorf("subscribe to control messages: %w", err)
	}
	return sub, nil
}
