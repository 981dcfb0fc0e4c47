// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
	open   []jetstream.Msg // not settled yet, one for each place
	unsaid atomic.Bool     // Started is to be said
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
func (r *running) add(ctx context.Context, id protocol.JobID, at place, msg jetstream.Msg) (job context.Context, one *atWork, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one = r.jobs[id]; one != nil {
		if !one.places[at] {
			one.places[at], one.open = true, append(one.open, msg)
			one.unsaid.Store(true)
		}
		return nil, one, false
	}
	if r.jobs == nil {
		r.jobs = map[protocol.JobID]*atWork{}
	}
	job, cancel := context.WithCancelCause(ctx)
	one = &atWork{id: id, cancel: cancel, places: map[place]bool{at: true}, open: []jetstream.Msg{msg}}
	one.unsaid.Store(true)
	r.jobs[id] = one
	return job, one, true
}

func (r *running) remove(one *atWork) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leave(one)
	one.cancel(nil)
}

// leave makes room for the same job. The caller has the mutex.
func (r *running) leave(one *atWork) {
	if r.jobs[one.id] == one {
		delete(r.jobs, one.id)
	}
}

// messages are those of a job that are not settled yet.
func (r *running) messages(one *atWork) []jetstream.Msg {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(one.open)
}

// next takes a message that is to be settled, the last one first: the others may be in a stream
// that is gone, where no acknowledgement is confirmed. When there is none, the job has left.
func (r *running) next(one *atWork) jetstream.Msg {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(one.open) - 1
	if last < 0 {
		r.leave(one)
		return nil
	}
	msg := one.open[last]
	one.open = one.open[:last]
	return msg
}

// cancel stops the named jobs of a run; none named means all.
func (r *running) cancel(runUID string, ids []string) (stopped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, one := range r.jobs {
		if id.RunUID == runUID && (len(ids) == 0 || slices.Contains(ids, id.String())) {
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
		var c protocol.Control
		if err := json.Unmarshal(m.Data, &c); !ok || err != nil || c.Action != protocol.ActionCancel {
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
