// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Withdraw takes one job out of the queue; that it is not there is success. A worker that has the
// job already is not stopped, see Cancel. Errors: bus.ErrInvalidJob, *RetryError.
//
// The message is deleted by its sequence. A purge by subject would be one call, and would take all
// jobs of a run at once, but nats-server (2.15 at least) then forgets what its consumers had queued
// for redelivery, of all subjects: measured, 181 of 300 redeliveries came up to two AckWaits late,
// and under load some never came (ADR 0007).
func (q *Queue) Withdraw(ctx context.Context, topic string, id protocol.JobID) error {
	if err := checkNames(topic, id); err != nil {
		return err
	}
	if err := q.conn.Usable(ctx); err != nil {
		return q.conn.Retryable("withdraw job", err)
	}
	last := bus.Query{LastFor: q.conn.Names.Job(topic, id)}
	m, err := q.conn.Read(ctx, q.conn.Names.JobsStream(), last)
	if err != nil {
		return q.conn.Retryable("look for job", err)
	}
	if m == nil {
		return nil
	}
	if err = q.conn.Delete(ctx, m); err == nil {
		return nil
	}
	if m, lookErr := q.conn.Read(ctx, q.conn.Names.JobsStream(), last); lookErr == nil && m == nil {
		return nil // its worker acknowledged it meanwhile
	}
	return q.conn.Retryable("delete job", err)
}

// QueuedJob is a job that waits for a worker, or is with one.
type QueuedJob struct {
	Topic string
	ID    protocol.JobID
}

// maxListed bounds a list. The server makes the whole list anew for each 100,000 of it, and stores
// no job meanwhile.
const maxListed = 200_000

// List lists all jobs in the queue, for whoever withdraws those of ended or deleted runs. It reads
// the list of all subjects, so it is for now and then. Errors: *bus.TooManyError, *bus.RetryError.
func (q *Queue) List(ctx context.Context) ([]QueuedJob, error) {
	return ListQueued(ctx, q.conn, maxListed)
}

// ListQueued lists the jobs in the queue, at most so many. Errors:
// *bus.TooManyError, *bus.RetryError.
func ListQueued(ctx context.Context, conn *bus.Conn, most int) ([]QueuedJob, error) {
	subjects, err := conn.Subjects(ctx, conn.Names.JobsStream(), ">", most)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var jobs []QueuedJob
	for _, subject := range subjects {
		if topic, id, err := conn.Names.ParseJob(subject); err == nil { // what is no job's subject is nobody's to withdraw
			jobs = append(jobs, QueuedJob{Topic: topic, ID: id})
		}
	}
	return jobs, nil
}
