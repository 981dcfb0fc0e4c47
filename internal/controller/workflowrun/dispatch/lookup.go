// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// lookUpEvery is how often the jobs of a run's attempts in flight are looked for.
	lookUpEvery = 5 * time.Minute
	// lookUpPause is how long no run looks after one that got no answer: each would wait for one. A
	// run that is refused waits as long by itself.
	lookUpPause = time.Minute
)

// looks is what a run remembers of its looks for jobs.
type looks struct {
	at time.Time // of the last one, or of the first pass; zero: there was none
	// known are attempts that were known to be with NATS then. Only these are looked for the next
	// time: younger ones are still in the window in which NATS refuses to store a job again.
	known map[protocol.JobID]bool
	// gone are attempts that were found gone once. They are not looked for any more: a worker that
	// acknowledges what it does not answer would get them again and again. Pruned at each look.
	gone map[protocol.JobID]bool
}

// LookUp finds out, every five minutes, whether NATS has lost jobs of the run and nobody noticed: a
// server died without writing what it had confirmed, or somebody purged the stream. It gives the
// attempts that are in neither stream; of these it is not known any more that they are with NATS,
// so they are recovered. A look costs two small requests for each topic, a read or some, and
// neither the lock nor a write. Errors are those of NATS. If it does not answer, no run looks for a
// minute; if it refuses, or answers in part, this one does not.
func (s *Session) LookUp(ctx context.Context, run *v1alpha1.WorkflowRun) (gone []protocol.JobID, err error) {
	now := s.all.Clock.Now()
	if s.looks.at.IsZero() {
		s.looks.at = now
	}
	if now.Sub(s.looks.at) < lookUpEvery || s.all.looksPause(now) {
		return nil, nil
	}
	known, byTopic := s.toLookFor(run)
	answered := 0
	for topic, ids := range byTopic {
		lost, err := s.all.Jobs.Gone(ctx, topic, ids)
		if err != nil {
			switch {
			case silent(err, answered), errors.Is(err, bus.ErrUnreachable):
				s.all.pauseLooks(now)
			case ctx.Err() != nil && answered > 0:
				s.looks.at = now // it has looked for what it had time for
			default:
				s.looks.at = now.Add(lookUpPause - lookUpEvery)
			}
			return gone, fmt.Errorf("look for jobs of topic %s: %w", topic, err)
		}
		answered++
		for _, id := range lost {
			delete(s.published, id)
			delete(known, id)
			s.looks.gone[id] = true
		}
		gone = append(gone, lost...)
	}
	s.looks.at, s.looks.known = now, known
	return gone, nil
}

// Find looks for the attempts that this process does not know to be with NATS, and says whether it
// found all of them: there, or their answers. Then nothing is to be published, so the run need not
// be claimed by a write. They are fenced before, but where this process wrote last. What it did not
// find is Recover's, after a write: until then an earlier holder may still end the attempt and take
// its job back. It costs as much as a look. Errors are those of NATS; if it does not answer, no run
// looks for a minute.
func (s *Session) Find(ctx context.Context, run *v1alpha1.WorkflowRun) (all bool, err error) {
	now := s.all.Clock.Now()
	if s.all.looksPause(now) {
		return false, nil
	}
	byTopic := map[string][]lifecycle.Job{}
	for _, j := range lifecycle.OutlinesOf(run, s.Lacks(run)) {
		byTopic[j.Topic] = append(byTopic[j.Topic], j)
	}
	var errs []error
	for topic, list := range byTopic {
		if err := s.findSome(ctx, run, topic, list); err != nil {
			errs = append(errs, fmt.Errorf("look for jobs of topic %s: %w", topic, err))
		}
	}
	err = errors.Join(errs...)
	if silent(err, len(byTopic)-len(errs)) {
		s.all.pauseLooks(now)
	}
	return len(s.Lacks(run)) == 0, err
}

// silent says whether NATS did not answer. A run that has more topics than time had some answers,
// and so had one that waited for the keys, for results that are forged: they are no reason for
// others not to look.
func silent(err error, answered int) bool {
	return answered == 0 && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, jobs.ErrInPart)
}

// pauseLooks has no run look for a while.
func (d *Dispatcher) pauseLooks(now time.Time) {
	until := now.Add(lookUpPause)
	d.noLookUntil.Store(&until)
}

// findSome looks for those of a topic.
func (s *Session) findSome(ctx context.Context, run *v1alpha1.WorkflowRun, topic string, list []lifecycle.Job) error {
	ids := make([]protocol.JobID, len(list))
	for i, j := range list {
		ids[i] = j.ID
	}
	found, err := s.all.Jobs.Found(ctx, topic, ids)
	for _, j := range list {
		if where := found[j.ID]; where != 0 {
			s.all.Recoveries.WithLabelValues(where.String()).Inc()
			if where == jobs.Queued {
				s.found(run, s.job(run, j))
			}
			_ = s.note(nil, run, j, nil)
		}
	}
	return err
}

// looksPause says whether a look got no answer a moment ago. A pause that is longer than any was
// begun by a clock that was ahead.
func (d *Dispatcher) looksPause(now time.Time) bool {
	until := d.noLookUntil.Load()
	return until != nil && now.Before(*until) && until.Sub(now) <= lookUpPause
}

// toLookFor are the attempts that are known to be with NATS, and those to look for.
func (s *Session) toLookFor(run *v1alpha1.WorkflowRun) (known map[protocol.JobID]bool, byTopic map[string][]protocol.JobID) {
	known, byTopic = map[protocol.JobID]bool{}, map[string][]protocol.JobID{}
	gone := map[protocol.JobID]bool{}
	var old []protocol.JobID
	for _, id := range lifecycle.Unanswered(run) {
		if s.looks.gone[id] {
			gone[id] = true
			continue
		}
		if at, ok := s.published[id]; !ok || at != s.losses {
			continue
		}
		known[id] = true
		if s.looks.known[id] {
			old = append(old, id)
		}
	}
	s.looks.gone = gone
	for _, j := range lifecycle.OutlinesOf(run, old) {
		byTopic[j.Topic] = append(byTopic[j.Topic], j.ID)
	}
	return known, byTopic
}
