// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// strandedCheck is how often a partition is looked at for results that the server will not deliver.
const strandedCheck = 30 * time.Second

// stranded finds results that are stored and below what the consumer has acknowledged, so that the
// server never delivers them.
//
// A server that is killed (SIGKILL, a power cut) may have written the acknowledgements of a
// consumer, and not yet the deletions that follow from them, or not the end of the stream, whose
// numbers it then gives out once more. In the first case such a result is a leftover; in the second
// it is news. The consumer is made anew and delivers both.
type stranded struct{ seen uint64 }

// look asks the server. Its error says why the consumer has to be made anew. It takes the same
// finding twice, since what was just acknowledged may still be there for a moment.
func (s *stranded) look(ctx context.Context, f *feed, c jetstream.Consumer) error {
	before := s.seen
	s.seen = 0
	first, floor, err := lowest(ctx, f, c)
	if err != nil {
		f.consumer.conn.Log.V(1).Info("Nobody knows whether results are stranded: the server is asked again", "partition", f.partition, "cause", err.Error())
		return nil
	}
	if first == 0 || first > floor {
		return nil
	}
	if s.seen = first; s.seen != before {
		return nil
	}
	f.anew = true
	return fmt.Errorf("result %d is stored, and the consumer takes all up to %d for acknowledged", first, floor)
}

// lowest is the number of the first result of the partition that is stored, 0 if none is, and the
// number up to which its consumer takes all for acknowledged.
func lowest(ctx context.Context, f *feed, c jetstream.Consumer) (first, floor uint64, err error) {
	ctx, cancel := f.consumer.conn.Bounded(ctx)
	defer cancel()
	info, err := c.Info(ctx)
	if err != nil || info.AckFloor.Stream == 0 {
		return 0, 0, err
	}
	results, err := f.consumer.conn.JetStream.Stream(ctx, f.consumer.conn.Names.ResultsStream())
	if err != nil {
		return 0, 0, err
	}
	m, err := results.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(f.consumer.conn.Names.PartitionResults(f.partition)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, info.AckFloor.Stream, nil
	}
	if err != nil {
		return 0, 0, err
	}
	return m.Sequence, info.AckFloor.Stream, nil
}
