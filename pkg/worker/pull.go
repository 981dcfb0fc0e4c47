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
	over, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.pullWait+pullSlack)
	defer cancel()
	for range n {
		select {
		case m := <-came:
			if isWord(m) {
				return meaning(m)
			}
			receive(m)
		case <-over.Done():
			return t.rest(came, patience, receive)
		}
	}
	return nil
}

// rest hands over what is still under way when the server's word that the pull is over is late. The
// answer to a ping comes behind all that the server has sent.
func (t *topic) rest(came <-chan *nats.Msg, patience time.Duration, receive func(*nats.Msg)) error {
	if !t.nc.IsConnected() { // the library has kept the request for later, and says nothing
		return nats.ErrDisconnected
	}
	err := t.nc.FlushTimeout(patience)
	for {
		select {
		case m := <-came:
			if isWord(m) {
				return meaning(m)
			}
			t.log.Info("A job came late: the link to NATS is slow", "topic", t.name, "bytes", len(m.Data))
			receive(m)
		default:
			return err
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
