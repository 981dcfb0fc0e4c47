// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// RecoverOutcome says where Recover found a job.
type RecoverOutcome int

// The outcomes of Recover.
const (
	Queued    RecoverOutcome = iota + 1 // it waits, or a worker has it
	Answered                            // its result waits in the stream of results
	Published                           // it was in neither place, and is queued now
)

// String gives the name of the outcome.
func (o RecoverOutcome) String() string {
	switch o {
	case Queued:
		return "Queued"
	case Answered:
		return "Answered"
	case Published:
		return "Published"
	default:
		return "Unknown"
	}
}

// Recover makes sure that a job whose dispatch is in the run's status is under way,
// whatever happened since, without giving it to a second worker. It is idempotent. Errors
// are those of Publish, and of Job.Render.
//
// What was published before, and is still on its way, must not be stored after the looks: they come
// after a Fence. Where Job.Epoch is of one that was made for this call, it is not made again.
func (q *Queue) Recover(ctx context.Context, j Job) (RecoverOutcome, error) {
	if err := checkNames(j.Topic, j.ID); err != nil {
		return 0, err
	}
	if err := q.conn.Usable(ctx); err != nil {
		return 0, q.conn.Retryable("recover job", err)
	}
	if err := q.topics.ensure(ctx, j.Topic); err != nil { // a queued job is of no use if no worker can bind
		return 0, err
	}
	if j.Epoch == 0 {
		var err error
		j.Epoch, err = q.Fence(ctx, j)
		if errors.Is(err, bus.ErrNoRoom) {
			return q.findUnfenced(ctx, j, err)
		}
		if err != nil {
			return 0, err
		}
	}
	if found, err := q.find(ctx, j); err != nil || found != 0 {
		return found, err
	}
	return q.publishAbsent(ctx, j)
}

// publishAbsent publishes what was found nowhere.
func (q *Queue) publishAbsent(ctx context.Context, j Job) (RecoverOutcome, error) {
	if j.Render != nil {
		var err error
		if j.Input, err = j.Render(ctx); err != nil {
			return 0, err
		}
	}
	s, err := q.publish(ctx, j)
	if err != nil {
		return 0, err
	}
	switch s {
	case storedNow:
		return Published, nil
	case storedBefore:
		return Queued, nil
	default:
		return q.afterDuplicate(ctx, j)
	}
}

// find looks for the job in JOBS and then for its result in RESULTS. The order matters: a worker
// publishes its result before it acknowledges the job, so a job that is gone from JOBS has its
// result in RESULTS already. The other way round, a job that is finished between the two looks
// would be seen in neither.
func (q *Queue) find(ctx context.Context, j Job) (RecoverOutcome, error) {
	queued, err := q.stillQueued(ctx, j)
	if _, fenced := errors.AsType[*FencedError](err); fenced {
		return 0, err
	}
	if err != nil {
		return 0, q.conn.Retryable("look for job", err)
	}
	if queued {
		return Queued, nil
	}
	answered, err := q.answers.Answered(ctx, j.ID, q.conn.Clock.Now())
	if err != nil {
		return 0, q.conn.Retryable("look for result", err)
	}
	if answered {
		return Answered, nil
	}
	return 0, nil
}

// findUnfenced looks for a job that could not be fenced, as there is no room: one that is found
// needs none. Else the refusal is the error.
func (q *Queue) findUnfenced(ctx context.Context, j Job, refusal error) (RecoverOutcome, error) {
	queued, err := q.jobQueued(ctx, j)
	if err != nil {
		return 0, q.conn.Retryable("look for job", err)
	}
	if queued {
		return Queued, nil
	}
	answered, err := q.answers.Answered(ctx, j.ID, q.conn.Clock.Now())
	switch {
	case err != nil:
		return 0, q.conn.Retryable("look for result", err)
	case answered:
		return Answered, nil
	default:
		return 0, refusal
	}
}

// mostAsked bounds the answers that Gone and Found look for.
const mostAsked = 16

// Gone lists those of a run's attempts, all of one topic, that are in neither stream. It costs two
// small requests, and a read for each job that is not in JOBS: for 16 of them. If one of these is
// gone, all that it did not ask about are listed, too. It fences nothing, and makes sure that what
// is queued can be had by workers, if there is room for the topic. What is to be done about those
// that are gone is Recover's, which looks for each. Errors are those of Recover, but for
// ErrTooManyTopics, and ErrInPart.
func (q *Queue) Gone(ctx context.Context, topic string, ids []protocol.JobID) (gone []protocol.JobID, err error) {
	_, gone, notAsked, err := q.look(ctx, topic, ids)
	if len(gone) > 0 { // jobs that go out together are lost together
		gone = append(gone, notAsked...)
	}
	return gone, err
}

// Found says of those of a run's attempts, all of one topic, that are Queued or Answered which they
// are. It asks no more than Gone, so not all that are Answered may be among them. It fences
// nothing, and makes sure that what is queued can be had by workers, as Gone does. Errors are those
// of Gone.
func (q *Queue) Found(ctx context.Context, topic string, ids []protocol.JobID) (map[protocol.JobID]RecoverOutcome, error) {
	found, _, _, err := q.look(ctx, topic, ids)
	return found, err
}

// look looks for jobs in JOBS, and for the results of the first of those that are not there. The
// topic's consumer may be gone, with its jobs still queued: it makes that first, as nothing else
// would until the next job of the topic.
func (q *Queue) look(ctx context.Context, topic string, ids []protocol.JobID) (found map[protocol.JobID]RecoverOutcome, gone, notAsked []protocol.JobID, err error) {
	if len(ids) == 0 {
		return nil, nil, nil, nil
	}
	if err := q.conn.Usable(ctx); err != nil {
		return nil, nil, nil, q.conn.Retryable("look for jobs", err)
	}
	if err := q.topics.ensureIfRoom(ctx, topic); err != nil {
		return nil, nil, nil, err
	}
	queued, err := q.conn.Filled(ctx, q.conn.Names.JobsStream(), q.conn.Names.RunJobs(topic, ids[0].RunUID))
	if err != nil {
		return nil, nil, nil, err
	}
	found = map[protocol.JobID]RecoverOutcome{}
	asked, since := 0, q.conn.Clock.Now()
	for _, id := range ids {
		switch {
		case queued[q.conn.Names.Job(topic, id)] > 0:
			found[id] = Queued
		case asked == mostAsked:
			notAsked = append(notAsked, id)
		default:
			asked++
			answered, err := q.answers.Answered(ctx, id, since)
			if err != nil {
				return nil, nil, nil, q.conn.Retryable("look for result", fmt.Errorf("%w: %w", ErrInPart, err))
			}
			if answered {
				found[id] = Answered
			} else {
				gone = append(gone, id)
			}
		}
	}
	return found, gone, notAsked, nil
}

// afterDuplicate tells the two cases apart in which the stream drops a job that find did not see:
// somebody else published it meanwhile, or it was there and is gone without a result (withdrawn, or
// acknowledged by a worker that broke the protocol).
func (q *Queue) afterDuplicate(ctx context.Context, j Job) (RecoverOutcome, error) {
	found, err := q.find(ctx, j)
	if err != nil || found != 0 {
		return found, err
	}
	return 0, q.conn.Retryable("recover job", ErrRecentlyGone)
}

func (q *Queue) jobQueued(ctx context.Context, j Job) (bool, error) {
	m, err := q.conn.Read(ctx, q.conn.Names.JobsStream(), bus.Query{LastFor: q.conn.Names.Job(j.Topic, j.ID)})
	return m != nil, err
}

// stillQueued says whether the job is in JOBS, by the word of a server that has the fence message
// of the job's epoch: one that lags, and still takes itself for the leader, is not believed. All
// jobs that were stored before that message are in front of it.
func (q *Queue) stillQueued(ctx context.Context, j Job) (bool, error) {
	next := uint64(1)
	for range maxFencesRead {
		m, err := q.conn.Read(ctx, q.conn.Names.JobsStream(), bus.Query{Seq: next, NextFor: q.conn.Names.Dispatch(j.Topic, j.ID)})
		switch {
		case err != nil:
			return false, err
		case m == nil:
			return false, errFenceGone
		}
		if m.Subject == q.conn.Names.Job(j.Topic, j.ID) {
			return true, nil
		}
		switch by := fenceOf(m); {
		case m.Seq == j.Epoch:
			return false, nil
		case m.Seq > j.Epoch && by > j.Fence:
			return false, &FencedError{ID: j.ID, Fence: j.Fence, By: by}
		}
		next = m.Seq + 1
	}
	return false, errFenceGone
}

// maxFencesRead bounds the fence messages of an attempt that are looked through. There is one, and
// for a moment two.
const maxFencesRead = 16
