// SPDX-License-Identifier: Apache-2.0

package deadletters

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Sentinels of Redrive. No retry helps.
var (
	// ErrHopeless: the message can never be applied; force publishes what is kept of it.
	ErrHopeless = errors.New("it can never be applied")
	// ErrNotOurs: the letter does not name a subject of results. Whoever may write dead letters
	// must not be able to have an administrator publish wherever they like, so nothing forces this.
	ErrNotOurs = errors.New("its original subject is not one of results")
	// ErrLeftOver: the message is published again, but its letter is still there. Redriving it
	// again does no harm.
	ErrLeftOver = errors.New("it was redriven, but its letter could not be deleted")
)

// Hopeless says why a redrive cannot help; "": it may.
func (l Letter) Hopeless() string {
	why := hopeless(l.Reason)
	if why == "" && l.Truncated {
		return "its headers did not fit into the letter, and with them its token is gone"
	}
	return why
}

// hopeless says why a message that was put aside for a reason can never be applied; "": it may.
func hopeless(reason string) string {
	switch {
	case strings.EqualFold(reason, ReasonRejected):
		return "its token is missing or wrong, and would be again"
	case strings.EqualFold(reason, ReasonUndecodable):
		return "its subject names no job"
	case reason == ReasonResultRejected:
		return "its body is unusable, and the attempt has failed for it"
	default:
		return ""
	}
}

// unproved says whether nothing shows that a message with that reason is of the run that it names.
func unproved(reason string) bool { return strings.EqualFold(reason, ReasonRejected) }

// Redrive publishes the message of a letter again, where it was published first and as it was but
// for its Msg-Id, waits until it is stored, and deletes the letter. A crash in between leaves the
// letter; redriven again, the message is dropped as a duplicate by the stream (within its window)
// or by the run (an attempt is answered once). Errors: ErrNotFound, ErrHopeless unless force,
// ErrNotOurs, ErrLeftOver, failures of NATS; but for ErrLeftOver the letter is as it was.
func (d *Store) Redrive(ctx context.Context, sequence uint64, force bool) error {
	l, err := d.Get(ctx, sequence)
	if err != nil {
		return err
	}
	if err := d.Redrivable(l, force); err != nil {
		return err
	}
	if err := d.publish(ctx, l); err != nil {
		return err
	}
	return d.delete(ctx, sequence)
}

// Redrivable says whether Redrive would try. Errors: ErrHopeless unless force, ErrNotOurs.
func (d *Store) Redrivable(l Letter, force bool) error {
	if !strings.HasPrefix(l.Subject, d.names.Prefix+".results.") || strings.ContainsAny(l.Subject, "*> \t\r\n") {
		return fmt.Errorf("dead letter %d: %w: %q", l.Sequence, ErrNotOurs, l.Subject)
	}
	if why := l.Hopeless(); why != "" && !force {
		return fmt.Errorf("dead letter %d: %w: %s", l.Sequence, ErrHopeless, why)
	}
	return nil
}

func (d *Store) publish(ctx context.Context, l Letter) error {
	ctx, cancel := context.WithTimeout(ctx, bus.CallTimeout)
	defer cancel()
	what := fmt.Sprintf("redrive dead letter %d", l.Sequence)
	ack, err := d.js.PublishMsg(ctx, l.message(), jetstream.WithRetryAttempts(1))
	if err != nil {
		return d.failed(what, err)
	}
	if ack.Stream != d.names.ResultsStream() { // no consumer of results would see it
		return fmt.Errorf("%s: stream %s took it, not %s", what, ack.Stream, d.names.ResultsStream())
	}
	return nil
}

// message is what the letter was made of, with a Msg-Id of its own: the server remembers the first
// one for a while, and would drop the message. The new id is the same for each try, and nobody
// without the token can take it first. It is short, and no header is added, since a result may be
// as large as its stream allows.
func (l Letter) message() *nats.Msg {
	m := nats.NewMsg(l.Subject)
	m.Data = l.Body
	for name, values := range l.OriginalHeader() {
		// What the message expected of its stream was so once, and is not any more.
		if lower := strings.ToLower(name); lower == "nats-msg-id" || strings.HasPrefix(lower, "nats-expected-last-") {
			continue
		}
		m.Header[name] = values
	}
	token := m.Header.Get(protocol.HeaderToken)
	sum := sha256.Sum256(fmt.Appendf(nil, "redrive/%d/%d/%s", l.Sequence, l.StoredAt.UnixNano(), token))
	m.Header.Set(jetstream.MsgIDHeader, "redrive-"+base64.RawURLEncoding.EncodeToString(sum[:16]))
	return m
}

func (d *Store) delete(ctx context.Context, sequence uint64) error {
	s, err := d.stream(ctx)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, bus.CallTimeout)
		defer cancel()
		err = s.DeleteMsg(ctx, sequence)
	}
	if err == nil {
		return nil
	}
	if _, lookErr := d.Get(ctx, sequence); errors.Is(lookErr, ErrNotFound) {
		return nil // somebody redrove it at the same time, with the same id
	}
	return fmt.Errorf("%w: %w", ErrLeftOver, d.failed(fmt.Sprintf("delete dead letter %d", sequence), err))
}
