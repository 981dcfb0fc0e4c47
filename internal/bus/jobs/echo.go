// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

const (
	// echoTime is how long after a reconnect cancels are kept. The operator is back within a second
	// and withdraws at once what it could not; workers come later, each by its own settings.
	echoTime = 10 * time.Second
	// maxEcho bounds the bytes of what is kept; what finds no room is sent once.
	maxEcho = 8 << 20
	// echoCost is what a message takes beside its bytes.
	echoCost = 256
	// echoPause is how long it waits after a failure, and echoTries how often it tries. A cancel
	// that comes while others are tried again has the tries that those have left.
	echoPause = 5 * time.Second
	echoTries = 12
)

// echo keeps the cancels that come soon after a reconnect. They are sent once more at the end of
// that time, for workers that had not subscribed again when they were sent first.
type echo struct {
	mu         sync.Mutex
	reconnects uint64    // of the connection, as last seen
	until      time.Time // cancels are kept until then
	kept       []*nats.Msg
	bytes      int // of what is kept, and of what is on its way
}

// left is for how long cancels are to be kept from now on. The time begins with the first call
// after a reconnect, and anew while there is no connection.
func (e *echo) left(conn *bus.Conn) time.Duration {
	reconnects, connected, now := conn.NATS.Stats().Reconnects, conn.Connected(), conn.Clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if reconnects != e.reconnects || !connected {
		e.reconnects, e.until = reconnects, now.Add(echoTime)
	}
	return e.until.Sub(now)
}

func echoBytes(m *nats.Msg) int { return len(m.Data) + len(m.Subject) + echoCost }

// keep says whether this is the first message that is kept.
func (e *echo) keep(m *nats.Msg) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	cost := echoBytes(m)
	if e.bytes+cost > maxEcho {
		return false
	}
	e.kept, e.bytes = append(e.kept, m), e.bytes+cost
	return len(e.kept) == 1
}

// take gives what is kept. Each message is to be dropped, or put back.
func (e *echo) take() []*nats.Msg {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := e.kept
	e.kept = nil
	return kept
}

// drop forgets messages that were taken.
func (e *echo) drop(messages ...*nats.Msg) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range messages {
		e.bytes -= echoBytes(m)
	}
}

// putBack keeps messages that were taken, before those that came meanwhile.
func (e *echo) putBack(messages []*nats.Msg) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = append(messages, e.kept...)
}

// again has a cancel that was sent sent once more, if the connection was not there shortly before.
func (q *Queue) again(ctx context.Context, m *nats.Msg) {
	if q.echo.left(q.conn) > 0 && q.echo.keep(m) {
		go q.repeat(ctx)
	}
}

// repeat sends what is kept at the end of its time. What fails is tried again after a pause, and
// after another such time if the connection was gone. It ends with the connection.
func (q *Queue) repeat(ctx context.Context) {
	for try := 1; ; try++ {
		for left := q.echo.left(q.conn); left > 0; left = q.echo.left(q.conn) {
			if !bus.Pause(q.conn, left) {
				return
			}
		}
		rest, err := q.sendKept(ctx)
		if err == nil {
			return
		}
		if try == echoTries {
			q.echo.drop(rest...)
			q.conn.Log.Info("Cancels were not sent again, workers may have missed them", "cancels", len(rest), "cause", err.Error())
			return
		}
		q.echo.putBack(rest)
		if !bus.Pause(q.conn, echoPause) {
			return
		}
	}
}

// sendKept sends what is kept until one fails, and gives what is left.
func (q *Queue) sendKept(ctx context.Context) (rest []*nats.Msg, err error) {
	kept := q.echo.take()
	for i, m := range kept {
		if err := q.sendControl(ctx, m); err != nil {
			return kept[i:], err
		}
		q.echo.drop(m)
	}
	return nil, nil
}
