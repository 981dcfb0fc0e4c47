// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"testing"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// newQueueWith makes a queue with the keys of a safe.
func newQueueWith(t *testing.T, s *bustest.Safe) (*Queue, *keys.Live) {
	t.Helper()
	live, err := keys.New(bustest.Ring(), s.Load, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	conn := bustest.Connect(t, bus.Config{URL: natstest.Start(t).URL()})
	return New(conn, live, results.NewReader(conn, live), Options{}), live
}

// answerWith answers a job with the token of a key.
func answerWith(t testing.TB, c *bus.Conn, k keys.Key, id protocol.JobID) {
	t.Helper()
	if _, err := c.JetStream.PublishMsg(t.Context(), bustest.Result(c.Names, keys.Keyring{Current: k}, id, bustest.Succeeded)); err != nil {
		t.Fatal(err)
	}
}

// mutation: recovery that judges by the keys at hand gives the job to a second worker.
func TestRecoveryKnowsAnAnswerOfANewKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ring    keys.Keyring
		err     error
		key     keys.Key
		want    RecoverOutcome
		wantErr error
	}{
		"an answer of a key that is not known yet":                 {bustest.Rotated(), nil, bustest.NextKey(), Answered, nil},
		"a forgery does not keep a job from being dispatched":      {bustest.Rotated(), nil, bustest.ForeignKey(), Published, nil},
		"nor does it while the keys cannot be used":                {keys.Keyring{}, bustest.ErrNoKeys, bustest.ForeignKey(), Published, nil},
		"while the keys cannot be read nothing is dispatched":      {keys.Keyring{}, bustest.ErrAway, bustest.NextKey(), 0, bustest.ErrAway},
		"an answer of a key at hand needs no look, whatever it is": {keys.Keyring{}, bustest.ErrAway, bustest.Ring().Current, Answered, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bustest.NewSafe(keys.Keyring{})
			s.Put(c.ring, c.err)
			b, _ := newQueueWith(t, s)
			answerWith(t, b.conn, c.key, bustest.JobID(1))
			got, err := b.Recover(t.Context(), testJob(1))
			if got != c.want || !errors.Is(err, c.wantErr) {
				t.Errorf("%s, %v; want %s, %v", got, err, c.want, c.wantErr)
			}
		})
	}
}

// gone16 has 16 attempts whose jobs are gone, each with a forged result.
func gone16(t *testing.T, b *Queue) (ids []protocol.JobID) {
	t.Helper()
	for n := range mostAsked {
		id := bustest.JobID(1)
		id.Attempt = int32(n + 1)
		answerWith(t, b.conn, bustest.ForeignKey(), id)
		ids = append(ids, id)
	}
	return ids
}

// A read of the keys comes 100 ms after the one before, and waits for those of all others.
// mutation: look that lets each result ask for a read of its own.
func TestALookForJobsReadsTheKeysOnceHoweverManyResultsAreForged(t *testing.T) {
	t.Parallel()
	s := bustest.NewSafe(bustest.Ring())
	b, _ := newQueueWith(t, s)
	ids := gone16(t, b)
	if gone, err := b.Gone(t.Context(), testJob(1).Topic, ids); len(gone) != len(ids) || err != nil || s.Reads() != 1 {
		t.Errorf("%d gone, %d reads of the keys, %v; want %d and 1", len(gone), s.Reads(), err, len(ids))
	}
}

// mutation: look that gives this error as it is: NATS has answered.
func TestALookThatWaitsForTheKeysWasAnsweredInPart(t *testing.T) {
	t.Parallel()
	s := bustest.NewSafe(bustest.Ring())
	defer s.Shut()()
	b, _ := newQueueWith(t, s)
	ids := gone16(t, b)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		_, err := b.Gone(ctx, testJob(1).Topic, ids)
		done <- err
	}()
	bustest.Eventually(t, "it reads the keys", func() bool { return s.Reads() == 1 })
	stop()
	if err := bustest.Receive(t, "the look", done, 1)[0]; !errors.Is(err, ErrInPart) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrInPart for what ended it", err)
	}
}

// mutation: a job signed with the keys of the start makes this fail.
func TestAfterAReloadJobsAreSignedWithTheNewKey(t *testing.T) {
	t.Parallel()
	s := bustest.NewSafe(bustest.Ring())
	b, live := newQueueWith(t, s)
	for i, c := range []struct {
		ring keys.Keyring
		key  keys.Key
	}{{bustest.Ring(), bustest.Ring().Current}, {bustest.Rotated(), bustest.NextKey()}, {bustest.Rotated(), bustest.NextKey()}} {
		s.Put(c.ring, nil)
		if err := live.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Publish(t.Context(), testJob(i)); err != nil {
			t.Fatal(err)
		}
		m := bustest.Take(t, b.conn, testJob(i).Topic)
		if !(keys.Keyring{Current: c.key}).Verify(bustest.JobID(i), m.Headers().Get(protocol.HeaderToken)) {
			t.Errorf("job %d is signed with %s", i, m.Headers().Get(protocol.HeaderToken))
		}
	}
	if err := bustest.Keys(t).Reload(t.Context()); err != nil {
		t.Errorf("keys that never change: %v", err)
	}
}
