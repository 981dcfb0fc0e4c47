// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// scan reads messages of RESULTS one after the other.
type scan struct {
	reader  *Reader
	subject string // wildcards are allowed
	from    uint64 // the sequence from which the next read goes on
	since   time.Time
}

func (r *Reader) scan(subject string, from uint64) *scan {
	return &scan{reader: r, subject: subject, from: from, since: r.conn.Clock.Now()}
}

// scanned is a message of RESULTS.
type scanned struct {
	*bus.Message
	id        protocol.JobID
	authentic bool // its token is that of the job
}

// next is the next message; nil: there is none.
func (s *scan) next(ctx context.Context) (*scanned, error) {
	r := s.reader
	m, err := r.conn.Read(ctx, r.conn.Names.ResultsStream(), bus.Query{Seq: s.from, NextFor: s.subject})
	if err != nil || m == nil {
		return nil, err
	}
	found := &scanned{Message: m}
	if found.id, err = r.conn.Names.ParseResult(m.Subject); err == nil {
		// With keys that cannot be used those at hand judge: a broken Secret must not stop runs.
		found.authentic, err = r.keys.Authentic(ctx, found.id, m.Header.Get(protocol.HeaderToken), s.since)
		if err != nil && !found.authentic && !errors.Is(err, bus.ErrConfig) {
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
