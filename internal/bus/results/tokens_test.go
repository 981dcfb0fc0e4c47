// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// answerWith answers a job with the token of a key.
func answerWith(t testing.TB, b *Consumer, k keys.Key, id protocol.JobID) {
	t.Helper()
	if _, err := b.conn.JetStream.PublishMsg(t.Context(), bustest.Result(b.conn.Names, keys.Keyring{Current: k}, id, bustest.Succeeded)); err != nil {
		t.Fatal(err)
	}
}

// inPartition are n jobs whose results come from one group.
func inPartition(n int) []protocol.JobID {
	var ids []protocol.JobID
	for i := 0; len(ids) < n; i++ {
		if id := bustest.JobID(i); partitionOf(id) == partitionOf(bustest.JobID(0)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Another replica signs with the new key already.
// mutation: refusing by the keys at hand makes this fail: the result would be a dead letter.
func TestAResultOfAKeyThatIsNotKnownYetIsNoForgery(t *testing.T) {
	t.Parallel()
	s := bustest.NewSafe(bustest.Rotated())
	b := newTestConsumer(t, natstest.Start(t), useKeys(s))
	got, _ := collect(t, b)
	answerWith(t, b, bustest.NextKey(), bustest.JobID(1))
	d := bustest.Receive(t, "the result", got, 1)[0]
	if d.ID != bustest.JobID(1) || d.Result.Status != protocol.StatusSucceeded || d.Rejected != nil {
		t.Errorf("delivery %+v", d) // mutation: no decode after the second look makes this fail
	}
	settle(t, d, nil)
	if token := b.keys.Sign(bustest.JobID(2)); !(keys.Keyring{Current: bustest.NextKey()}).Verify(bustest.JobID(2), token) {
		t.Errorf("jobs are still signed with the old key: %s", token)
	}
	answerWith(t, b, bustest.Ring().Current, bustest.JobID(3)) // mutation: a ring without the previous key makes this fail
	settle(t, bustest.Receive(t, "the result of a job that was under way", got, 1)[0], nil)
	bustest.Eventually(t, "all are acknowledged", func() bool { return unsettled(t, b) == 0 })
	if n := s.Reads(); n != 1 || len(bustest.DeadLetters(t, b.conn)) != 0 {
		t.Errorf("%d reads, %d dead letters", n, len(bustest.DeadLetters(t, b.conn)))
	}
}

// mutation: a read for each forgery, or no pause between reads, makes the count fail; no reason,
// the first check.
func TestForgeriesAreDeadLettersAndCostFewReads(t *testing.T) {
	t.Parallel()
	const n = 200
	s := bustest.NewSafe(bustest.Ring())
	b := newTestConsumer(t, natstest.Start(t), useKeys(s))
	got, _ := collect(t, b)
	begin := time.Now()
	for i := range n {
		answerWith(t, b, bustest.ForeignKey(), bustest.JobID(i))
	}
	bustest.Eventually(t, "all forgeries are put aside", func() bool { return len(bustest.DeadLetters(t, b.conn)) == n })
	for _, l := range bustest.DeadLetters(t, b.conn) {
		if reason := l.Header.Get(deadletters.HeaderReason); reason != deadletters.ReasonRejected {
			t.Fatalf("reason %q", reason)
		}
	}
	if limit := 2 + int(time.Since(begin)/(100*time.Millisecond)); s.Reads() > limit {
		t.Errorf("%d reads of the keys for %d forgeries, at most %d", s.Reads(), n, limit)
	}
	if len(got) != 0 {
		t.Errorf("%d forgeries were handed out", len(got))
	}
}

// mutation: no look at the token's form makes this fail.
func TestWhatNoKeyCouldHaveMadeIsRefusedWithoutARead(t *testing.T) {
	t.Parallel()
	s := bustest.NewSafe(bustest.Rotated())
	b := newTestConsumer(t, natstest.Start(t), useKeys(s))
	collect(t, b)
	for i, token := range []string{"", "k2", "k2.", "k2.short", ".", "k2." + string(make([]byte, 43)), "k.2." + b.keys.Sign(bustest.JobID(1))[3:]} {
		bustest.PublishRaw(t, b.conn, b.conn.Names.Result(bustest.JobID(i)), bustest.Succeeded, protocol.HeaderToken, token)
	}
	bustest.Eventually(t, "all are put aside", func() bool { return len(bustest.DeadLetters(t, b.conn)) == 7 })
	if s.Reads() != 0 {
		t.Errorf("%d reads of the keys", s.Reads())
	}
}

// mutation: a verdict of dead letter while the keys cannot be read, or a count of such tries,
// makes this fail.
func TestAResultThatCannotBeJudgedNowStays(t *testing.T) {
	t.Parallel()
	s := bustest.NewSafe(bustest.Rotated())
	s.Put(keys.Keyring{}, bustest.ErrAway)
	metrics := NewMetrics(newRegistry())
	b := newTestConsumer(t, natstest.Start(t), useKeys(s), func(c *config) {
		c.Options.Metrics, c.Rand = metrics, func() float64 { return 0 }
	})
	got, _ := collect(t, b)
	answerWith(t, b, bustest.NextKey(), bustest.JobID(1))
	bustest.Eventually(t, "it was given back more often than poison would be", func() bool {
		return histogramCount(t, metrics.retryDelay, bus.ClassStoreUnavailable) > maxPoisonTries
	})
	s.Put(bustest.Rotated(), nil)
	d := bustest.Receive(t, "the result", got, 1)[0]
	if d.Failures != 0 {
		t.Errorf("%d failures counted", d.Failures)
	}
	settle(t, d, nil)
	if n := len(bustest.DeadLetters(t, b.conn)); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// mutation: a ring that is stored before it is checked makes the first part fail, no bound for
// tries the second.
func TestKeysThatCannotBeUsedChangeNothing(t *testing.T) {
	t.Parallel()
	for name, unusable := range map[string]struct {
		ring keys.Keyring
		err  error
	}{
		"none at all":                {keys.Keyring{}, bustest.ErrNoKeys},
		"a short secret":             {keys.Keyring{Current: keys.Key{ID: "k2", Secret: []byte("short")}, Previous: bustest.Ring().Current}, nil},
		"an id with a dot":           {keys.Keyring{Current: keys.Key{ID: "k.2", Secret: bustest.NextKey().Secret}, Previous: bustest.Ring().Current}, nil},
		"an id with a line end":      {keys.Keyring{Current: keys.Key{ID: "k2\n", Secret: bustest.NextKey().Secret}, Previous: bustest.Ring().Current}, nil},
		"half a previous key":        {keys.Keyring{Current: bustest.NextKey(), Previous: keys.Key{ID: "k1"}}, nil},
		"the other half":             {keys.Keyring{Current: bustest.NextKey(), Previous: keys.Key{Secret: bustest.Ring().Current.Secret}}, nil},
		"an id that is far too long": {keys.Keyring{Current: keys.Key{ID: string(make([]byte, 65)), Secret: bustest.NextKey().Secret}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bustest.NewSafe(keys.Keyring{})
			s.Put(unusable.ring, unusable.err)
			b := newTestConsumer(t, natstest.Start(t), useKeys(s), func(c *config) { c.Rand = func() float64 { return 0 } })
			if err := b.keys.Reload(t.Context()); !errors.Is(err, bus.ErrConfig) {
				t.Errorf("reload: %v", err)
			}
			got, _ := collect(t, b)
			answerWith(t, b, bustest.ForeignKey(), bustest.JobID(2))
			bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
			settle(t, bustest.Receive(t, "a result of the key in use", got, 1)[0], nil)
			id := bustest.JobID(1)
			if b.keys.Sign(id) != bustest.Ring().Sign(id) || b.keys.Verify(id, bustest.Rotated().Sign(id)) {
				t.Error("other keys are in use")
			}
			bustest.Eventually(t, "the forgery is put aside", func() bool { return len(bustest.DeadLetters(t, b.conn)) == 1 })
			if n := bustest.DeadLetters(t, b.conn)[0].Header.Get(deadletters.HeaderDeliveries); n != fmt.Sprint(maxPoisonTries) {
				t.Errorf("put aside after %s deliveries", n)
			}
		})
	}
}

// mutation: a second look in the goroutine that receives makes this fail.
func TestWhileTheKeysHangOthersAreNotDelayed(t *testing.T) {
	t.Parallel()
	const n = 1000
	s := bustest.NewSafe(bustest.Ring())
	open := s.Shut()
	b := newTestConsumer(t, natstest.Start(t), useKeys(s))
	ids := inPartition(n + 1)
	done := make(chan protocol.JobID, n)
	var first sync.Once
	consume(t, b, func(_ context.Context, d *Delivery) {
		first.Do(func() {
			if n := s.GaveUp(); n != 0 {
				t.Errorf("the first came after %d reads had timed out", n)
			}
		})
		settle(t, d, nil)
		done <- d.ID
	})
	answerWith(t, b, bustest.ForeignKey(), ids[0])
	bustest.Eventually(t, "it is being judged", func() bool { return s.Reads() == 1 })
	for _, id := range ids[1:] {
		bustest.Answer(t, b.conn, id, bustest.Succeeded)
	}
	bustest.Receive(t, "those of its group", done, n)
	if n := len(bustest.DeadLetters(t, b.conn)); n != 0 {
		t.Errorf("it was judged meanwhile: %d dead letters", n)
	}
	open()
	bustest.Eventually(t, "the forgery is put aside", func() bool { return len(bustest.DeadLetters(t, b.conn)) == 1 })
}

// A message whose second look is under way when the operator stops goes back at once, and
// none is lost.
// mutation: settling it after ctx has ended gives it a delay, and this fails.
func TestTheDrainGivesBackWhatIsBeingJudged(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	s := bustest.NewSafe(bustest.Rotated())
	s.Shut()
	metrics := NewMetrics(newRegistry())
	a := newTestConsumer(t, server, useKeys(s), ackWait(time.Minute), func(c *config) { c.Options.Metrics = metrics })
	_, stop := collect(t, a)
	answerWith(t, a, bustest.NextKey(), bustest.JobID(1))
	bustest.Eventually(t, "it is being judged", func() bool { return s.Reads() == 1 })
	stop()
	if n := histogramCount(t, metrics.retryDelay, bus.ClassStoreUnavailable); n != 0 {
		t.Error("it was given back with a delay")
	}
	b := newTestConsumer(t, server, useKeys(bustest.NewSafe(bustest.Rotated())), ackWait(time.Minute))
	got, _ := collect(t, b)
	settle(t, bustest.Receive(t, "the result", got, 1)[0], nil)
	bustest.Eventually(t, "it is acknowledged", func() bool { return unsettled(t, b) == 0 })
}
