// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// running knows the jobs at work, so that the operator can stop them.
//
// Invariant: a job is in it from before its handler starts until after it returned.
type running struct {
	mu   sync.Mutex
	next int
	jobs map[int]runningJob // a redelivered job may be here twice
}

type runningJob struct {
	id     protocol.JobID
	cancel context.CancelCauseFunc
}

// add gives the context of a job; remove must be called at its end.
func (r *running) add(ctx context.Context, id protocol.JobID) (jobCtx context.Context, remove func()) {
	jobCtx, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jobs == nil {
		r.jobs = map[int]runningJob{}
	}
	key := r.next
	r.next++
	r.jobs[key] = runningJob{id: id, cancel: cancel}
	return jobCtx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.jobs, key)
		cancel(nil)
	}
}

// cancel stops the named jobs of a run; none named means all.
func (r *running) cancel(runUID string, ids []string) (stopped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range r.jobs {
		if j.id.RunUID == runUID && (len(ids) == 0 || slices.Contains(ids, j.id.String())) {
			j.cancel(ErrCancelled)
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
