// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Job is one attempt of one step, for a worker.
type Job struct {
	ID       protocol.JobID
	Topic    string
	Input    json.RawMessage // valid JSON, at most MaxInputBytes; empty means {}
	Fence    int64           // of the writer that dispatches it
	Deadline time.Time       // after it nobody waits for the result and the job leaves the queue; zero: never
	Locks    []string        // locks across runs that protect it, as "<lock>=<fence>"
	Source   string          // ce-source
	// TraceParent is where the job is in a trace, as W3C says it; empty: nowhere.
	TraceParent string
	// Render gives the input in place of Input, if Recover finds the job nowhere; nil:
	// Input has it.
	Render func(ctx context.Context) (json.RawMessage, error)
	// Epoch is what the last Fence for the attempt gave; 0: there was none. The stream takes the
	// job in this epoch only.
	Epoch uint64
}

// stored says what the stream did with a job.
type stored int

const (
	storedNow     stored = iota // it is a new message
	storedBefore                // the subject has a message already
	storedForgone               // dropped as a duplicate Msg-Id: it was there, which does not mean that it still is
)

// Publish puts a job into the queue and waits until it is stored; that the job is there already is
// success. It makes the topic's consumer if that is unknown, and streams that vanished.
//
// bus.ErrInvalidJob, ErrInputTooLarge and ErrDeadlinePassed are final. A *FencedError says that the
// caller has been taken over from. All else is a *RetryError of class publish_failed, after which
// it is open whether the job was stored: the next call for this job must be Recover.
func (q *Queue) Publish(ctx context.Context, j Job) error {
	_, err := q.publish(ctx, j)
	return err
}

func (q *Queue) publish(ctx context.Context, j Job) (stored, error) {
	if err := j.check(q.conn.Clock.Now()); err != nil {
		return 0, err
	}
	if err := q.conn.Usable(ctx); err != nil {
		return 0, q.conn.Retryable("publish job", err)
	}
	if err := q.topics.ensure(ctx, j.Topic); err != nil {
		return 0, err
	}
	s, err := q.store(ctx, j)
	if errors.Is(err, jetstream.ErrNoStreamResponse) { // the stream is gone, and its consumers with it
		q.topics.forget()
		if err := q.topics.ensure(ctx, j.Topic); err != nil {
			return 0, err
		}
		s, err = q.store(ctx, j)
	}
	if _, fenced := errors.AsType[*FencedError](err); fenced {
		return 0, err
	}
	if err != nil {
		return 0, q.conn.Retryable("publish job", err)
	}
	return s, nil
}

func (q *Queue) store(ctx context.Context, j Job) (stored, error) {
	opts := []jetstream.PublishOpt{
		jetstream.WithMsgID(j.ID.String()),
		jetstream.WithExpectLastSequenceForSubject(j.Epoch, q.conn.Names.Dispatch(j.Topic, j.ID)),
		jetstream.WithRetryAttempts(1),
	}
	if !j.Deadline.IsZero() {
		opts = append(opts, jetstream.WithMsgTTL(timeToLive(j.Deadline.Sub(q.conn.Clock.Now()))))
	}
	ack, err := q.conn.Store(ctx, q.conn.Names.JobsStream(), q.jobMessage(j), opts...)
	switch {
	case err == nil && ack.Duplicate:
		return storedForgone, nil
	case err == nil:
		return storedNow, nil
	case wrongSequence(err):
		return q.refused(ctx, j, err)
	}
	return 0, err
}

// timeToLive rounds up to what JetStream knows: whole seconds, at least one.
func timeToLive(d time.Duration) time.Duration {
	return max(time.Second, (d + time.Second - 1).Truncate(time.Second))
}

func (q *Queue) jobMessage(j Job) *nats.Msg {
	m := nats.NewMsg(q.conn.Names.Job(j.Topic, j.ID))
	m.Data = j.Input
	if len(m.Data) == 0 {
		m.Data = []byte("{}")
	}
	id := j.ID.String()
	m.Header.Set(protocol.HeaderCESpec, "1.0")
	m.Header.Set(protocol.HeaderCEID, id)
	m.Header.Set(protocol.HeaderCEType, protocol.CETypeJob)
	m.Header.Set(protocol.HeaderCESource, j.Source)
	m.Header.Set(protocol.HeaderCESubject, id)
	m.Header.Set(protocol.HeaderFence, strconv.FormatInt(j.Fence, 10))
	m.Header.Set(protocol.HeaderReply, q.conn.Names.Result(j.ID))
	m.Header.Set(protocol.HeaderToken, q.signer.Sign(j.ID))
	if j.TraceParent != "" {
		m.Header.Set(protocol.HeaderTraceParent, j.TraceParent)
	}
	for _, fence := range j.Locks {
		m.Header.Add(protocol.HeaderLockFence, fence)
	}
	if !j.Deadline.IsZero() {
		m.Header.Set(protocol.HeaderDeadline, j.Deadline.UTC().Format(time.RFC3339Nano))
	}
	return m
}

const maxTopicLength = 100

// topicPattern is the API's rule for topics. A wildcard or an odd token here would reach
// other topics' jobs.
var topicPattern = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*$`)

func checkTopic(topic string) error {
	if !topicPattern.MatchString(topic) || len(topic) > maxTopicLength {
		return fmt.Errorf("%w: topic %q", bus.ErrInvalidJob, topic)
	}
	return nil
}

// checkNames keeps what would be a wildcard out of subjects.
func checkNames(topic string, id protocol.JobID) error {
	if err := checkTopic(topic); err != nil {
		return err
	}
	if _, err := protocol.ParseJobID(id.String()); err != nil {
		return fmt.Errorf("%w: %w", bus.ErrInvalidJob, err)
	}
	return nil
}

func (j Job) check(now time.Time) error {
	if err := checkNames(j.Topic, j.ID); err != nil {
		return err
	}
	switch {
	case len(j.Input) > MaxInputBytes:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrInputTooLarge, len(j.Input), MaxInputBytes)
	case len(j.Input) > 0 && !json.Valid(j.Input):
		return fmt.Errorf("%w: input is not JSON", bus.ErrInvalidJob)
	case !j.Deadline.IsZero() && !j.Deadline.After(now):
		return fmt.Errorf("%w: it was %s", ErrDeadlinePassed, j.Deadline.UTC().Format(time.RFC3339))
	}
	return nil
}
