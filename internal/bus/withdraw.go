package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// maxJobsPerControl keeps one control message well below any max_payload: a job id has at most 121 bytes.
const maxJobsPerControl = 1000

// Withdraw takes one job out of the queue; that it is not there is success. A worker that has the job already is not stopped,
// see Cancel. Errors: ErrInvalidJob, *RetryError.
func (b *Bus) Withdraw(ctx context.Context, topic string, id protocol.JobID) error {
	if err := checkNames(topic, id); err != nil {
		return err
	}
	return b.purge(ctx, b.names.JobsStream(), b.names.Job(topic, id))
}

// WithdrawRun takes all jobs of a run on the given topics out of the queue. Errors: ErrInvalidJob, *RetryError.
func (b *Bus) WithdrawRun(ctx context.Context, topics []string, runUID string) error {
	if err := checkRunUID(runUID); err != nil {
		return err
	}
	for _, topic := range topics {
		if err := checkTopic(topic); err != nil {
			return err
		}
		if err := b.purge(ctx, b.names.JobsStream(), b.names.RunJobs(topic, runUID)); err != nil {
			return err
		}
	}
	return nil
}

// PurgeResults removes all results of a run, when it is finished and they are acknowledged. Errors: ErrInvalidJob, *RetryError.
func (b *Bus) PurgeResults(ctx context.Context, runUID string) error {
	if err := checkRunUID(runUID); err != nil {
		return err
	}
	return b.purge(ctx, b.names.ResultsStream(), b.names.RunResults(runUID))
}

// Cancel tells all workers to stop the given jobs of a run; none given means all its jobs. Workers may miss it, so that a late
// result must be expected. Errors: ErrInvalidJob, *RetryError.
func (b *Bus) Cancel(ctx context.Context, runUID string, jobs []protocol.JobID) error {
	if err := checkRunUID(runUID); err != nil {
		return err
	}
	if !b.connected() {
		return b.retryable("publish cancel", ErrUnreachable)
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

func (b *Bus) purge(ctx context.Context, stream, subject string) error {
	if !b.connected() {
		return b.retryable("purge "+subject, ErrUnreachable)
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(subject))
	}
	if err != nil {
		return b.retryable("purge "+subject, err)
	}
	return nil
}

// RunsWithMessages lists the runs that have jobs or results in the streams: run UID to the topics of its queued jobs, for
// whoever removes what ended or deleted runs left behind. It reads the list of all subjects, so it is for now and then.
// Errors: *RetryError.
func (b *Bus) RunsWithMessages(ctx context.Context) (map[string][]string, error) {
	if !b.connected() {
		return nil, b.retryable("list runs", ErrUnreachable)
	}
	runs := map[string][]string{}
	for _, stream := range []string{b.names.JobsStream(), b.names.ResultsStream()} {
		if err := b.collectRuns(ctx, stream, runs); err != nil {
			return nil, b.retryable("list subjects of "+stream, err)
		}
	}
	return runs, nil
}

func (b *Bus) collectRuns(ctx context.Context, stream string, runs map[string][]string) error {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return err
	}
	for subject := range info.State.Subjects {
		// Both kinds of subjects end in run, step, item and attempt. What has no such end is not a run's.
		tokens := strings.Split(subject, ".")
		n := len(tokens) - 4
		if n <= 0 || checkRunUID(tokens[n]) != nil {
			continue
		}
		uid := tokens[n]
		topics := runs[uid]
		if rest, ok := strings.CutPrefix(strings.Join(tokens[:n], "."), b.names.Prefix+".jobs."); ok && !slices.Contains(topics, rest) {
			topics = append(topics, rest)
		}
		runs[uid] = topics
	}
	return nil
}

func checkRunUID(uid string) error {
	if _, err := protocol.ParseJobID(protocol.JobID{RunUID: uid, Step: "s", Item: protocol.NoItem, Attempt: 1}.String()); err != nil {
		return fmt.Errorf("%w: run UID %q", ErrInvalidJob, uid)
	}
	return nil
}
