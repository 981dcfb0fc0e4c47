// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// pullRequest is what the server wants to be asked.
type pullRequest struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires"`
}

// Words of the server that no job came.
const (
	wordNoMessages = "404"
	wordTimeout    = "408"
)

// fetch asks the server once for up to n jobs, and hands them over as they come.
//
// The library's Fetch drops what has not all arrived a second after the request is over. Over a
// slow link a large job would never come, and nothing would tell of it. This one has patience.
func (t *topic) fetch(ctx context.Context, n int, patience time.Duration, receive func(*nats.Msg)) error {
	came := make(chan *nats.Msg, n+1) // the jobs, and the server's word
	sub, err := t.nc.ChanSubscribe(t.nc.NewInbox(), came)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails where the connection is closed
	request, err := json.Marshal(pullRequest{Batch: n, Expires: t.pullWait})
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	subject := "$JS.API.CONSUMER.MSG.NEXT." + t.names.JobsStream() + "." + protocol.Durable(t.name)
	if err := t.nc.PublishRequest(subject, sub.Subject, request); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	open, closed := context.WithCancel(context.WithoutCancel(ctx))
	defer closed()
	defer context.AfterFunc(ctx, func() {
		pause(open, requestTimeout) // a worker that stops waits no longer for a silent link
		closed()
	})()
	over, late := make(chan error, 1), t.clock.Now().Add(t.pullWait+pullSlack)
	go func() { over <- t.over(open, patience) }()
	return handOver(came, over, n, func(m *nats.Msg) {
		if t.clock.Now().After(late) {
			t.log.Info("A job came late: the link to NATS is slow", "topic", t.name, "bytes", len(m.Data))
		}
		receive(m)
	})
}

// over returns when nothing of a pull can be under way any more, though the server's word that it
// is over has not come. The answer to a ping comes behind all that the server has sent. A request
// that was late itself has been read by then, and is open for as long as it said: hence twice.
func (t *topic) over(ctx context.Context, patience time.Duration) error {
	for _, wait := range []time.Duration{t.pullWait + pullSlack, t.pullWait} {
		pause(ctx, wait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !t.nc.IsConnected() { // the library has kept the request for later, and says nothing
			return nats.ErrDisconnected
		}
		if err := flush(ctx, t.nc, patience); err != nil {
			return err
		}
	}
	return nil
}

// pause goes by no clock of a test, as the server does.
func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

func flush(ctx context.Context, nc *nats.Conn, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return nc.FlushWithContext(ctx)
}

// handOver hands over what comes, until that is n jobs, or the server's word, or the pull is over.
func handOver(came <-chan *nats.Msg, over <-chan error, n int, receive func(*nats.Msg)) error {
	for range n {
		select {
		case m := <-came:
			if isWord(m) {
				return meaning(m)
			}
			receive(m)
		case err := <-over:
			return rest(came, err, receive)
		}
	}
	return nil
}

// rest hands over what had come when the pull was over, with that error.
func rest(came <-chan *nats.Msg, over error, receive func(*nats.Msg)) error {
	for {
		select {
		case m := <-came:
			if isWord(m) {
				return meaning(m)
			}
			receive(m)
		default:
			return over
		}
	}
}

// isWord says whether a message is the server's own: nobody can acknowledge it.
func isWord(m *nats.Msg) bool { return m.Reply == "" }

// meaning is nil for the word that no more jobs come.
func meaning(word *nats.Msg) error {
	status := word.Header.Get("Status")
	if status == wordNoMessages || status == wordTimeout {
		return nil
	}
	return fmt.Errorf("%w: %s %s", errPullEnded, status, word.Header.Get("Description"))
}
