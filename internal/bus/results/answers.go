package bus

import (
	"context"
	"errors"
	"time"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// maxAnswersRead bounds the messages among which the answer of one job is looked for.
	maxAnswersRead = 32
	// maxPageReads bounds the requests of one look for the results of a run, whoever filled RESULTS.
	maxPageReads = 128
	// maxPageBytes bounds the bytes that such a look holds; a single message may have more.
	maxPageBytes = 1 << 20
	// pageTimeout bounds the time of such a look: it may be made under a run's lock.
	pageTimeout = 2 * time.Second
)

// Answer is a result as it lies in RESULTS. It was only read: it is delivered, too, and settled
// then.
type Answer struct {
	ID          protocol.JobID
	Result      protocol.Result
	Rejected    error     // the body is no result; wraps protocol.ErrResult. Result is empty then
	PublishedAt time.Time // when the stream stored it
}

// AnswerPage is what one look into RESULTS found.
type AnswerPage struct {
	Answers []Answer // in the order in which they were stored
	Next    uint64   // the sequence from which the next look goes on
	More    bool     // there may be more from there on; else there is nothing beyond what was read
}

// Answers reads results of a run that the stream has stored and that are not settled, from a
// sequence on; 1 is the first. Only the stream's leader answers. Among them are those that Consume
// has handed out, has yet to, or has given back with a delay. What has no valid token is passed
// over. It takes one request if there is nothing, else one more than there are messages: 128 at
// most, and 1 MiB (or one message), and 2 s. A look that fails in the middle gives what it found.
// Errors: ErrInvalidJob, *RetryError.
func (b *Bus) Answers(ctx context.Context, runUID string, from uint64) (AnswerPage, error) {
	if err := checkRunUID(runUID); err != nil {
		return AnswerPage{}, err
	}
	if err := b.usable(ctx); err != nil {
		return AnswerPage{}, b.retryable("look for results", err)
	}
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	s := b.scanResults(b.names.RunResults(runUID), max(from, 1))
	page := AnswerPage{Next: s.from, More: true}
	for bytes, reads := 0, 0; bytes < maxPageBytes && reads < maxPageReads; reads++ {
		m, err := s.next(ctx)
		page.Next = s.from
		switch {
		case err != nil && reads == 0:
			return AnswerPage{}, b.retryable("look for results", err)
		case err != nil:
			return page, nil // what was read is good; the next look meets the error if it lasts
		case m == nil:
			page.More = false
			return page, nil
		}
		bytes += len(m.Data)
		if m.authentic {
			page.Answers = append(page.Answers, m.answer())
		}
	}
	return page, nil
}

// resultScan reads messages of RESULTS one after the other.
type resultScan struct {
	bus     *Bus
	subject string // wildcards are allowed
	from    uint64 // the sequence from which the next read goes on
	since   time.Time
}

func (b *Bus) scanResults(subject string, from uint64) *resultScan {
	return &resultScan{bus: b, subject: subject, from: from, since: b.clock.Now()}
}

// scanned is a message of RESULTS.
type scanned struct {
	*storedMessage
	id        protocol.JobID
	authentic bool // its token is that of the job
}

// next is the next message; nil: there is none.
func (s *resultScan) next(ctx context.Context) (*scanned, error) {
	b := s.bus
	m, err := b.leaderGet(ctx, b.names.ResultsStream(), getRequest{Seq: s.from, NextFor: s.subject})
	if err != nil || m == nil {
		return nil, err
	}
	found := &scanned{storedMessage: m}
	if found.id, err = b.names.ParseResult(m.Subject); err == nil {
		// With keys that cannot be used those at hand judge: a broken Secret must not stop runs.
		found.authentic, err = b.keys.authentic(ctx, found.id, m.header.Get(protocol.HeaderToken), s.since)
		if err != nil && !found.authentic && !errors.Is(err, ErrConfig) {
			return nil, err
		}
	}
	s.from = m.Seq + 1
	return found, nil
}

func (m *scanned) answer() Answer {
	a := Answer{ID: m.id, PublishedAt: m.Time}
	if a.Result, a.Rejected = decodeResult(m.Data); a.Rejected != nil {
		a.Result = protocol.Result{}
	}
	return a
}
