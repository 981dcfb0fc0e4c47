// SPDX-License-Identifier: Apache-2.0

package natsdial

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// piece is how much is written within one time-out. The library writes messages of some MB at once,
// and after an outage all that was kept. On a slow link that takes longer, so it would
// fail each time.
const piece = 64 << 10

// patiences is how many time-outs all may take that is written under one deadline. Who holds the
// lock of the connection meanwhile holds up all others: a server that takes a piece now and then
// would do so for minutes.
const patiences = 5

// conn is a connection that ends with a write that takes too long. Where the peer ended it, what
// that one said last is still to be read, and the reader finds the end.
type conn struct {
	net.Conn
	bound atomic.Pointer[bound] // of writes, as the library has set it; nil: there is none
	late  atomic.Pointer[error] // of the write that ended it
}

// bound is how long writes may take.
type bound struct {
	patience time.Duration // with a piece
	end      time.Time     // of all
}

// SetWriteDeadline bounds writes. A deadline that is to come is for each piece. All have an end
// together: TLS makes several writes of what the library writes at once.
func (c *conn) SetWriteDeadline(t time.Time) error {
	now := time.Now() //nolint:forbidigo // the deadlines of sockets are by the clock of the machine
	var b *bound
	if patience := t.Sub(now); patience > 0 {
		b = &bound{patience: patience, end: now.Add(patiences * patience)}
	}
	c.bound.Store(b)
	return c.Conn.SetWriteDeadline(t)
}

// Write writes, or ends the connection if nothing is taken for long, or too little.
func (c *conn) Write(b []byte) (n int, err error) {
	for {
		if err := c.renew(); err != nil {
			return n, err
		}
		taken, err := c.Conn.Write(b[n:min(len(b), n+piece)])
		n += taken
		if isLate(err) {
			c.late.CompareAndSwap(nil, &err)
			_ = c.Conn.Close()
		}
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// renew gives the next piece its time.
func (c *conn) renew() error {
	b := c.bound.Load()
	if b == nil {
		return nil
	}
	next := time.Now().Add(b.patience) //nolint:forbidigo // as above
	if next.After(b.end) {
		next = b.end
	}
	return c.Conn.SetWriteDeadline(next)
}

// isLate says whether a write took too long. A dialer of somebody else may have a time-out
// of its own.
func isLate(err error) bool {
	timed, ok := errors.AsType[net.Error](err)
	return errors.Is(err, os.ErrDeadlineExceeded) || ok && timed.Timeout()
}

// Read reads. Its error is why the library makes the connection anew, and what people are told.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if late := c.late.Load(); err != nil && late != nil {
		err = *late
	}
	return n, err
}
