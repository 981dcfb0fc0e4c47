// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// maxPageReads bounds the requests of one look for the results of a run, whoever
	// filled RESULTS.
	maxPageReads = 128
	// maxPageBytes bounds the bytes that such a look holds; a single message may have more.
	maxPageBytes = 1 << 20
	// pageTimeout bounds the time of such a look: it may be made under a run's lock.
	pageTimeout = 2 * time.Second
)

// Reader reads RESULTS without taking anything from it. Its methods may be called concurrently.
type Reader struct {
	conn *bus.Conn
	keys *keys.Live
}

// NewReader makes a Reader on a connection.
func NewReader(conn *bus.Conn, keys *keys.Live) *Reader { return &Reader{conn: conn, keys: keys} }

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
// Errors: bus.ErrInvalidJob, *bus.RetryError.
func (r *Reader) Answers(ctx context.Context, runUID string, from uint64) (AnswerPage, error) {
	if err := bus.CheckRunUID(runUID); err != nil {
		return AnswerPage{}, err
	}
	if err := r.conn.Usable(ctx); err != nil {
		return AnswerPage{}, r.conn.Retryable("look for results", err)
	}
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	s := r.scan(r.conn.Names.RunResults(runUID), max(from, 1))
	page := AnswerPage{Next: s.from, More: true}
	for bytes, reads := 0, 0; bytes < maxPageBytes && reads < maxPageReads; reads++ {
		m, err := s.next(ctx)
		page.Next = s.from
		switch {
		case err != nil && reads == 0:
			return AnswerPage{}, r.conn.Retryable("look for results", err)
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
