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
// Invariant: a job is in it from before its handler starts until it is settled, and no job is done
// beside itself.
type running struct {
	mu   sync.Mutex
	jobs map[protocol.JobID]context.CancelCauseFunc
}

// add gives the context of a job; remove must be called at its end. It says no of one that is
// there already.
func (r *running) add(ctx context.Context, id protocol.JobID) (jobCtx context.Context, remove func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jobs[id] != nil {
		return nil, nil, false
	}
	if r.jobs == nil {
		r.jobs = map[protocol.JobID]context.CancelCauseFunc{}
	}
	jobCtx, cancel := context.WithCancelCause(ctx)
	r.jobs[id] = cancel
	return jobCtx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.jobs, id)
		cancel(nil)
	}, true
}

// cancel stops the named jobs of a run; none named means all.
func (r *running) cancel(runUID string, ids []string) (stopped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, cancel := range r.jobs {
		if id.RunUID == runUID && (len(ids) == 0 || slices.Contains(ids, id.String())) {
			cancel(ErrCancelled)
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
