// SPDX-License-Identifier: Apache-2.0

package deadletters

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// JobSight is what the server tells of the job of one attempt, and of the topic's jobs. It counts
// deliveries by consumer and not by job, so of one job among several it cannot tell how often it
// was delivered. The job itself is not read: it holds its token.
type JobSight struct {
	Stored     bool // it is in JOBS, so no worker has ended it
	Queued     int  // jobs of the topic that were never delivered
	Unanswered int  // jobs of the topic that were delivered and not answered
	Again      int  // of these, how many were delivered more than once
	Span       int  // deliveries of the topic since all jobs up to then were answered
}

// SeeJob looks at the job of an attempt, once. Errors: failures of NATS, a missing
// permission among them.
func (d *Store) SeeJob(ctx context.Context, topic string, id protocol.JobID) (JobSight, error) {
	ctx, cancel := context.WithTimeout(ctx, bus.CallTimeout)
	defer cancel()
	subject := d.names.Job(topic, id)
	s, err := d.js.Stream(ctx, d.names.JobsStream())
	if err != nil {
		return JobSight{}, d.failed("stream "+d.names.JobsStream(), err)
	}
	stream, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return JobSight{}, d.failed("look for the job", err)
	}
	sight := JobSight{Stored: stream.State.Subjects[subject] > 0}
	c, err := s.Consumer(ctx, protocol.Durable(topic))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return sight, nil
	}
	if err != nil {
		return JobSight{}, d.failed("ask about workers of "+topic, err)
	}
	info := c.CachedInfo()
	sight.Queued, sight.Unanswered, sight.Again = int(info.NumPending), info.NumAckPending, info.NumRedelivered
	sight.Span = int(info.Delivered.Consumer - info.AckFloor.Consumer)
	return sight, nil
}
