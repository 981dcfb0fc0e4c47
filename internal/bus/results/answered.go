// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"time"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// maxAnswersRead bounds the messages among which the answer of one job is looked for.
const maxAnswersRead = 32

// Answered looks for a final answer with a valid token on a job's result subject. Started does not
// count: a job that a worker has is in JOBS until it is answered, so where it is not, its worker
// has nothing that anybody would get again. A message without a valid token does not count, or
// anybody could keep a job from being dispatched; it is judged by keys that were read after since:
// of many jobs that are asked about together, one read judges all.
func (r *Reader) Answered(ctx context.Context, id protocol.JobID, since time.Time) (bool, error) {
	s := r.scan(r.conn.Names.Result(id), 1)
	s.since = since
	for range maxAnswersRead {
		switch m, err := s.next(ctx); {
		case err != nil || m == nil:
			return false, err
		case m.authentic && !isStarted(m.Data):
			return true, nil
		}
	}
	return true, nil // a flood of forgeries: when in doubt, nothing is dispatched twice
}

// isStarted says whether a message is the news that a worker began. What cannot be read is an
// answer: its attempt fails by it.
func isStarted(body []byte) bool {
	r, err := protocol.DecodeResult(body)
	return err == nil && r.Status == protocol.StatusStarted
}
