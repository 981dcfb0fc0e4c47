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

// conn is a connection that ends with a write that takes too long. Where the peer ended it, what
// that one said last is still to be read, and the reader finds the end.
type conn struct {
	net.Conn
	patience atomic.Int64          // with a write without progress, as the library has set it
	late     atomic.Pointer[error] // of the write that ended it
}

// SetWriteDeadline bounds writes. A deadline that is to come is for each piece.
func (c *conn) SetWriteDeadline(t time.Time) error {
	var patience time.Duration
	if !t.IsZero() {
		patience = time.Until(t) //nolint:forbidigo // the deadlines of sockets are by the clock of the machine
	}
	c.patience.Store(int64(patience))
	return c.Conn.SetWriteDeadline(t)
}

// Write writes, or ends the connection if nothing is taken for long.
func (c *conn) Write(b []byte) (n int, err error) {
	for {
		if patience := time.Duration(c.patience.Load()); patience > 0 {
			if err = c.Conn.SetWriteDeadline(time.Now().Add(patience)); err != nil { //nolint:forbidigo // as above
				return n, err
			}
		}
		taken, err := c.Conn.Write(b[n:min(len(b), n+piece)])
		n += taken
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.late.CompareAndSwap(nil, &err)
			_ = c.Conn.Close()
		}
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// Read reads. Its error is why the library makes the connection anew, and what people are told.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if late := c.late.Load(); err != nil && late != nil {
		err = *late
	}
	return n, err
}
