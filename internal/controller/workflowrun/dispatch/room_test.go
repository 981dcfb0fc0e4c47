// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// fullQueue has room for so many jobs.
type fullQueue struct {
	emptyQueue
	room, asked atomic.Int64
}

func (q *fullQueue) take() error {
	q.asked.Add(1)
	if q.room.Add(-1) < 0 {
		return fmt.Errorf("publish job: %w", bus.ErrNoRoom)
	}
	return nil
}

func (q *fullQueue) Publish(context.Context, jobs.Job) error { return q.take() }

func (q *fullQueue) Recover(context.Context, jobs.Job) (jobs.RecoverOutcome, error) {
	if err := q.take(); err != nil {
		return 0, err
	}
	return jobs.Published, nil
}

// A run with thousands of attempts must not have a full NATS refuse each of them in each pass, and
// an attempt that was not tried must not count as published: it would be lost.
// mutation: each that goes on after a refusal, or notes what it left out as published, makes this
// fail.
func TestSession_StopsAtTheFirstJobWithoutRoom(t *testing.T) {
	const attempts = 2000
	q := &fullQueue{}
	s, run, list := recovery(&q.emptyQueue, attempts)
	s.all.Jobs = q
	input := func(context.Context, protocol.JobID) (json.RawMessage, error) { return nil, nil }
	for what, do := range map[string]func() (bool, error){
		"Publish": func() (bool, error) { return false, s.Publish(t.Context(), run, q, list()) },
		"Recover": func() (bool, error) { return s.Recover(t.Context(), run, q, list(), input) },
	} {
		q.asked.Store(0)
		more, err := do()
		if asked := q.asked.Load(); !errors.Is(err, bus.ErrNoRoom) || more || asked == 0 || asked > publishParallel {
			t.Errorf("%s: %d asked, more %t, %v", what, asked, more, err)
		}
		if left := len(s.Lacks(run)); left != attempts {
			t.Errorf("%s: %d of %d attempts are still to be published", what, left, attempts)
		}
	}

	q.room.Store(10)
	if _, err := s.Recover(t.Context(), run, q, list(), input); !errors.Is(err, bus.ErrNoRoom) {
		t.Errorf("with room for some: %v", err)
	}
	if left := len(s.Lacks(run)); left != attempts-10 {
		t.Errorf("%d attempts are still to be published, want %d", left, attempts-10)
	}
	q.room.Store(attempts)
	if _, err := s.Recover(t.Context(), run, q, list(), input); err != nil {
		t.Errorf("with room for all: %v", err)
	}
	if left := len(s.Lacks(run)); left > 0 {
		t.Errorf("%d attempts are left", left)
	}
}
