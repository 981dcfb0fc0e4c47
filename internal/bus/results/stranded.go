package results

import (
	"context"
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
	ctx, cancel := f.consumer.conn.Bounded(ctx)
	defer cancel()
	before := s.seen
	s.seen = 0
	info, err := c.Info(ctx)
	if err != nil || info.AckFloor.Stream == 0 {
		return nil // who does not answer is asked again
	}
	results, err := f.consumer.conn.JetStream.Stream(ctx, f.consumer.conn.Names.ResultsStream())
	if err != nil {
		return nil
	}
	first, err := results.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(f.consumer.conn.Names.PartitionResults(f.partition)))
	if err != nil || first.Sequence > info.AckFloor.Stream {
		return nil
	}
	if s.seen = first.Sequence; s.seen != before {
		return nil
	}
	f.anew = true
	return fmt.Errorf("result %d is stored, and the consumer takes all up to %d for acknowledged", first.Sequence, info.AckFloor.Stream)
}
