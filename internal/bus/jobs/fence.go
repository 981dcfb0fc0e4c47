package bus

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// maxFenceTries bounds how often Fence starts anew because something came between its look and its message: another epoch, or a worker
// that ended the job.
const maxFenceTries = 4

// fenceMargin is how long a fence message outlives the deadline of its attempt. From then on workers drop the job, so it must be more than
// their clocks differ from ours.
const fenceMargin = time.Hour

// fenceLife is how long a fence message stays if its job has no deadline.
const fenceLife = 7 * 24 * time.Hour

// Fence begins a new epoch of the dispatch of an attempt, and gives its name for Job.Epoch: no job of the attempt that is published in
// an earlier epoch is stored from now on, however long it was under way. It needs ID, Topic, Fence and Deadline of the job. Where nothing
// was dispatched it is one request.
//
// Errors: ErrInvalidJob; *FencedError where a writer with a higher fence has begun one or published the job; else *RetryError, after
// which it is open whether an epoch has begun.
func (b *Bus) Fence(ctx context.Context, j Job) (epoch uint64, err error) {
	if err := checkNames(j.Topic, j.ID); err != nil {
		return 0, err
	}
	if err := b.usable(ctx); err != nil {
		return 0, b.retryable("fence job", err)
	}
	last := dispatchMark{}
	for range maxFenceTries {
		epoch, err = b.storeFence(ctx, j, last.seq)
		switch {
		case err == nil:
			b.metrics.fences.Inc()
			b.dropFence(ctx, last)
			return epoch, nil
		case errors.Is(err, jetstream.ErrNoStreamResponse):
			if err = b.repairStreams(ctx); err != nil {
				return 0, err
			}
			last = dispatchMark{}
			continue
		case !wrongSequence(err):
			return 0, b.retryable("fence job", err)
		}
		var lookErr error
		if last, lookErr = b.lastDispatch(ctx, j); lookErr != nil {
			return 0, b.retryable("look for fence of job", lookErr)
		}
		if last.fence > j.Fence {
			return 0, &FencedError{ID: j.ID, Fence: j.Fence, By: last.fence}
		}
	}
	return 0, b.retryable("fence job", err)
}

// storeFence stores a fence message if the last message of the dispatch is the one expected.
func (b *Bus) storeFence(ctx context.Context, j Job, expected uint64) (uint64, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	m := nats.NewMsg(b.names.Fence(j.Topic, j.ID))
	m.Header.Set(protocol.HeaderFence, strconv.FormatInt(j.Fence, 10))
	before := b.losses.before(b.names.JobsStream())
	ack, err := b.js.PublishMsg(ctx, m,
		jetstream.WithExpectStream(b.names.JobsStream()),
		jetstream.WithExpectLastSequenceForSubject(expected, b.names.Dispatch(j.Topic, j.ID)),
		jetstream.WithMsgTTL(b.fenceTTL(j)),
		jetstream.WithRetryAttempts(1),
	)
	if err != nil {
		return 0, err
	}
	b.losses.acked(before, ack.Sequence)
	return ack.Sequence, nil
}

func (b *Bus) fenceTTL(j Job) time.Duration {
	if j.Deadline.IsZero() {
		return fenceLife
	}
	return timeToLive(max(j.Deadline.Sub(b.clock.Now()), 0) + fenceMargin)
}

// dropFence deletes the fence message before the last one, of which there is no need any more. What stays here goes with its time to live.
func (b *Bus) dropFence(ctx context.Context, before dispatchMark) {
	if !before.isFence {
		return
	}
	if err := b.deleteMessage(ctx, before.seen, before.seq); err != nil {
		b.log.V(1).Info("An earlier fence message stays until its time is over", "sequence", before.seq, "cause", err.Error())
	}
}

// dispatchMark is the last message about the dispatch of an attempt: its job or a fence message. The zero mark: there is none.
type dispatchMark struct {
	seq     uint64
	fence   int64
	isFence bool
	seen    sighting
}

// lastDispatch asks the stream's leader.
func (b *Bus) lastDispatch(ctx context.Context, j Job) (dispatchMark, error) {
	seen := b.losses.before(b.names.JobsStream())
	m, err := b.leaderGet(ctx, b.names.JobsStream(), getRequest{LastFor: b.names.Dispatch(j.Topic, j.ID)})
	if m == nil || err != nil {
		return dispatchMark{}, err
	}
	b.losses.present(seen, m.Seq)
	return dispatchMark{seq: m.Seq, fence: m.fence(), isFence: m.Subject == b.names.Fence(j.Topic, j.ID), seen: seen}, nil
}

// refused finds out why the stream did not take a job: it is there already, a later epoch has begun, or a rival is on its way, which
// counts once it is there.
func (b *Bus) refused(ctx context.Context, j Job, refusal error) (stored, error) {
	found, err := b.jobQueued(ctx, j)
	switch {
	case err != nil:
		return 0, errors.Join(refusal, err)
	case found:
		return storedBefore, nil
	}
	last, err := b.lastDispatch(ctx, j)
	switch {
	case err != nil:
		return 0, errors.Join(refusal, err)
	case last.fence > j.Fence:
		return 0, &FencedError{ID: j.ID, Fence: j.Fence, By: last.fence}
	default:
		return 0, refusal
	}
}
