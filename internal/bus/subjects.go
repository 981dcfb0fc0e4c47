// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

var errLeaderless = errors.New("the stream has no leader for now")

// TooManyError says that a stream has more subjects than were wanted.
type TooManyError struct {
	Stream string
	Has    uint64
	Most   int
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("stream %s has messages on %d subjects, and at most %d are read", e.Stream, e.Has, e.Most)
}

// Filled says which subjects of a stream have messages, of those that a filter has: by the leader's
// word, in two small requests, whatever the messages hold. Errors: *RetryError, also if the stream
// is not there or has no leader for now.
func (c *Conn) Filled(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	if err := c.Usable(ctx); err != nil {
		return nil, c.Retryable("list subjects", err)
	}
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	s, err := c.JetStream.Stream(ctx, stream)
	if err != nil {
		return nil, c.Retryable("list subjects", err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	switch {
	case err != nil:
		return nil, c.Retryable("list subjects", err)
	case leaderless(info):
		return nil, c.Retryable("list subjects", errLeaderless)
	}
	return info.State.Subjects, nil
}

// Subjects lists the subjects of a stream that have messages, at most so many; none of a stream
// that is not there. For now and then: it is a list of all. Errors: *TooManyError, *RetryError.
func (c *Conn) Subjects(ctx context.Context, stream, filter string, most int) ([]string, error) {
	if err := c.Usable(ctx); err != nil {
		return nil, c.Retryable("list subjects", err)
	}
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	s, err := c.JetStream.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, c.Retryable("list subjects", err)
	}
	if has := s.CachedInfo().State.NumSubjects; has > uint64(most) {
		return nil, &TooManyError{Stream: stream, Has: has, Most: most}
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, c.Retryable("list subjects", err)
	}
	all := make([]string, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		all = append(all, subject)
	}
	return all, nil
}
