package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// maxJobsPerControl keeps one control message well below any max_payload: a job id has at most 121 bytes.
const maxJobsPerControl = 1000

// Withdraw takes one job out of the queue; that it is not there is success. A worker that has the job already is not stopped,
// see Cancel. Errors: ErrInvalidJob, *RetryError.
//
// The message is deleted by its sequence. A purge by subject would be one call, and would take all jobs of a run at once, but
// nats-server (2.15 at least) then forgets what its consumers had queued for redelivery, of all subjects: measured, 181 of 300
// redeliveries came up to two AckWaits late, and under load some never came (ADR 0007).
func (b *Bus) Withdraw(ctx context.Context, topic string, id protocol.JobID) error {
	if err := checkNames(topic, id); err != nil {
		return err
	}
	if err := b.usable(ctx); err != nil {
		return b.retryable("withdraw job", err)
	}
	last := getRequest{LastFor: b.names.Job(topic, id)}
	seen := b.losses.before(b.names.JobsStream())
	m, err := b.leaderGet(ctx, b.names.JobsStream(), last)
	if err != nil {
		return b.retryable("look for job", err)
	}
	if m == nil {
		return nil
	}
	if err = b.deleteMessage(ctx, seen, m.Seq); err == nil {
		return nil
	}
	if m, lookErr := b.leaderGet(ctx, b.names.JobsStream(), last); lookErr == nil && m == nil {
		return nil // its worker acknowledged it meanwhile
	}
	return b.retryable("delete job", err)
}

// deleteMessage deletes a message of a stream by its sequence, if the stream has not lost data since it was seen: the sequence may be
// that of another message by now. Of a loss that is not noticed yet, all that was published before is looked up when it is.
func (b *Bus) deleteMessage(ctx context.Context, seen sighting, seq uint64) error {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	body, err := json.Marshal(deleteRequest{Seq: seq, NoErase: true})
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	if b.losses.of(seen.stream) != seen.losses {
		return errStreamLost
	}
	reply, err := b.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.DELETE."+seen.stream, body)
	if err != nil {
		return err
	}
	var r struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &r); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	if r.Error != nil {
		return r.Error
	}
	return nil
}

type deleteRequest struct {
	Seq     uint64 `json:"seq"`
	NoErase bool   `json:"no_erase"` // the bytes need not be overwritten
}

// Cancel tells all workers to stop the given jobs of a run; none given means all its jobs. Workers may miss it, so that a late
// result must be expected. Errors: ErrInvalidJob, *RetryError.
func (b *Bus) Cancel(ctx context.Context, runUID string, jobs []protocol.JobID) error {
	if err := checkRunUID(runUID); err != nil {
		return err
	}
	if err := b.usable(ctx); err != nil {
		return b.retryable("publish cancel", err)
	}
	names := make([]string, 0, len(jobs))
	for _, id := range jobs {
		names = append(names, id.String())
	}
	if len(names) == 0 {
		return b.publishControl(ctx, runUID, nil)
	}
	for chunk := range slices.Chunk(names, maxJobsPerControl) {
		if err := b.publishControl(ctx, runUID, chunk); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bus) publishControl(ctx context.Context, runUID string, jobs []string) error {
	body, err := json.Marshal(protocol.Control{Action: protocol.ActionCancel, Jobs: jobs})
	if err != nil {
		return fmt.Errorf("encode cancel: %w", err)
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	_, err = b.js.Publish(ctx, b.names.Control(runUID), body, jetstream.WithExpectStream(b.names.ControlStream()))
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		// Who is to hear it is connected now or never; a stream made now has no listeners. It must only be there next time.
		err = b.repairStreams(ctx)
	}
	if err != nil {
		return b.retryable("publish cancel", err)
	}
	return nil
}

// QueuedJob is a job that waits for a worker, or is with one.
type QueuedJob struct {
	Topic string
	ID    protocol.JobID
}

// QueuedJobs lists all jobs in the queue, for whoever withdraws those of ended or deleted runs. It reads the list of all
// subjects, so it is for now and then. Errors: *RetryError.
func (b *Bus) QueuedJobs(ctx context.Context) ([]QueuedJob, error) {
	if err := b.usable(ctx); err != nil {
		return nil, b.retryable("list jobs", err)
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, b.names.JobsStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, b.retryable("list jobs", err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return nil, b.retryable("list jobs", err)
	}
	var jobs []QueuedJob
	for subject := range info.State.Subjects {
		if topic, id, err := b.names.ParseJob(subject); err == nil { // what is no job's subject is nobody's to withdraw
			jobs = append(jobs, QueuedJob{Topic: topic, ID: id})
		}
	}
	return jobs, nil
}

func checkRunUID(uid string) error {
	if _, err := protocol.ParseJobID(protocol.JobID{RunUID: uid, Step: "s", Item: protocol.NoItem, Attempt: 1}.String()); err != nil {
		return fmt.Errorf("%w: run UID %q", ErrInvalidJob, uid)
	}
	return nil
}
