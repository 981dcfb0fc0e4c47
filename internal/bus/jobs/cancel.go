// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// maxJobsPerControl keeps one control message well below any max_payload: a job id has at
// most 121 bytes.
const maxJobsPerControl = 1000

// Cancel tells all workers to stop the given jobs of a run; none given means all its jobs.
// Soon after a reconnect it is said twice, as workers may come back later than the
// operator. Workers may miss it all the same, so that a late result must be expected.
// Errors: bus.ErrInvalidJob, *RetryError.
func (q *Queue) Cancel(ctx context.Context, runUID string, jobs []protocol.JobID) error {
	if err := bus.CheckRunUID(runUID); err != nil {
		return err
	}
	if err := q.conn.Usable(ctx); err != nil {
		return q.conn.Retryable("publish cancel", err)
	}
	names := make([]string, 0, len(jobs))
	for _, id := range jobs {
		names = append(names, id.String())
	}
	if len(names) == 0 {
		return q.publishControl(ctx, runUID, nil)
	}
	for chunk := range slices.Chunk(names, maxJobsPerControl) {
		if err := q.publishControl(ctx, runUID, chunk); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queue) publishControl(ctx context.Context, runUID string, jobs []string) error {
	body, err := json.Marshal(protocol.Control{Action: protocol.ActionCancel, Jobs: jobs})
	if err != nil {
		return fmt.Errorf("encode cancel: %w", err)
	}
	m := nats.NewMsg(q.conn.Names.Control(runUID))
	m.Data = body
	if err := q.sendControl(ctx, m); err != nil {
		return err
	}
	q.again(context.WithoutCancel(ctx), m)
	return nil
}

func (q *Queue) sendControl(ctx context.Context, m *nats.Msg) error {
	_, err := q.conn.Store(ctx, q.conn.Names.ControlStream(), m)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		// Who is to hear it is connected now or never; a stream made now has no listeners. It must
		// only be there next time.
		err = q.conn.RepairStreams(ctx)
	}
	if err != nil {
		return q.conn.Retryable("publish cancel", err)
	}
	return nil
}
