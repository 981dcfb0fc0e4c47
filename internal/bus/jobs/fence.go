// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// maxFenceTries bounds how often Fence starts anew because something came between its look and its
// message: another epoch, or a worker that ended the job.
const maxFenceTries = 4

// fenceMargin is how long a fence message outlives the deadline of its attempt. From then on
// workers drop the job, so it must be more than their clocks differ from ours.
const fenceMargin = time.Hour

// fenceLife is how long a fence message stays if its job has no deadline.
const fenceLife = 7 * 24 * time.Hour

// Fence begins a new epoch of the dispatch of an attempt, and gives its name for Job.Epoch: no
// job of the attempt that is published in an earlier epoch is stored from now on, however long it
// was under way. It needs ID, Topic, Fence and Deadline of the job. Where nothing was dispatched
// it is one request, and now and then one for the consumer of fences.
//
// Errors: bus.ErrInvalidJob; *FencedError where a writer with a higher fence has begun one or
// published the job; else *RetryError, after which it is open whether an epoch has begun.
func (q *Queue) Fence(ctx context.Context, j Job) (epoch uint64, err error) {
	if err := checkNames(j.Topic, j.ID); err != nil {
		return 0, err
	}
	if err := q.conn.Usable(ctx); err != nil {
		return 0, q.conn.Retryable("fence job", err)
	}
	last := dispatchMark{}
	for range maxFenceTries {
		epoch, err = q.storeFence(ctx, j, last.seq)
		switch {
		case err == nil:
			q.metrics.fences.Inc()
			q.dropFence(ctx, last)
			return epoch, nil
		case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, jetstream.ErrStreamNotFound):
			if err = q.conn.RepairStreams(ctx); err != nil {
				return 0, err
			}
			last = dispatchMark{}
			continue
		case !wrongSequence(err):
			return 0, q.conn.Retryable("fence job", err)
		}
		var lookErr error
		if last, lookErr = q.lastDispatch(ctx, j); lookErr != nil {
			return 0, q.conn.Retryable("look for fence of job", lookErr)
		}
		if last.fence > j.Fence {
			return 0, &FencedError{ID: j.ID, Fence: j.Fence, By: last.fence}
		}
	}
	return 0, q.conn.Retryable("fence job", err)
}

// storeFence stores a fence message if the last message of the dispatch is the one expected.
func (q *Queue) storeFence(ctx context.Context, j Job, expected uint64) (uint64, error) {
	if err := q.topics.keepFences(ctx); err != nil {
		return 0, err
	}
	m := nats.NewMsg(q.conn.Names.Fence(j.Topic, j.ID))
	m.Header.Set(protocol.HeaderFence, strconv.FormatInt(j.Fence, 10))
	ack, err := q.conn.Store(ctx, q.conn.Names.JobsStream(), m,
		jetstream.WithExpectLastSequenceForSubject(expected, q.conn.Names.Dispatch(j.Topic, j.ID)),
		jetstream.WithMsgTTL(q.fenceTTL(j)),
		jetstream.WithRetryAttempts(1),
	)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

func (q *Queue) fenceTTL(j Job) time.Duration {
	if j.Deadline.IsZero() {
		return fenceLife
	}
	return timeToLive(max(j.Deadline.Sub(q.conn.Clock.Now()), 0) + fenceMargin)
}

// dropFence deletes the fence message before the last one, of which there is no need any more. What
// stays here goes with its time to live.
func (q *Queue) dropFence(ctx context.Context, before dispatchMark) {
	if !before.isFence {
		return
	}
	if err := q.conn.Delete(ctx, before.message); err != nil {
		q.conn.Log.V(1).Info("An earlier fence message stays until its time is over", "sequence", before.seq, "cause", err.Error())
	}
}

// dispatchMark is the last message about the dispatch of an attempt: its job or a fence message.
// The zero mark: there is none.
type dispatchMark struct {
	seq     uint64
	fence   int64
	isFence bool
	message *bus.Message
}

// lastDispatch asks the stream's leader.
func (q *Queue) lastDispatch(ctx context.Context, j Job) (dispatchMark, error) {
	m, err := q.conn.Read(ctx, q.conn.Names.JobsStream(), bus.Query{LastFor: q.conn.Names.Dispatch(j.Topic, j.ID)})
	if m == nil || err != nil {
		return dispatchMark{}, err
	}
	return dispatchMark{seq: m.Seq, fence: fenceOf(m), isFence: m.Subject == q.conn.Names.Fence(j.Topic, j.ID), message: m}, nil
}

// refused finds out why the stream did not take a job: it is there already, a later epoch has
// begun, or a rival is on its way, which counts once it is there.
func (q *Queue) refused(ctx context.Context, j Job, refusal error) (stored, error) {
	found, err := q.jobQueued(ctx, j)
	switch {
	case err != nil:
		return 0, errors.Join(refusal, err)
	case found:
		return storedBefore, nil
	}
	last, err := q.lastDispatch(ctx, j)
	switch {
	case err != nil:
		return 0, errors.Join(refusal, err)
	case last.fence > j.Fence:
		return 0, &FencedError{ID: j.ID, Fence: j.Fence, By: last.fence}
	default:
		return 0, refusal
	}
}

// fenceOf is the fence of the writer who stored a message; 0 where no operator did: it has no say.
func fenceOf(m *bus.Message) int64 {
	fence, err := strconv.ParseInt(m.Header.Get(protocol.HeaderFence), 10, 64)
	if err != nil {
		return 0
	}
	return fence
}

// wrongSequence tells that the expected last sequence was not met, or that a replicated stream saw
// a rival still on its way: whether that one will be stored is open.
func wrongSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
