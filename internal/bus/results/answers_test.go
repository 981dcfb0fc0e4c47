// SPDX-License-Identifier: Apache-2.0

package results

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// requests counts the reads of RESULTS that b makes from now on.
func requests(t *testing.T, b *Consumer) func() int {
	t.Helper()
	seen := make(chan *nats.Msg, 10_000)
	sub, err := b.conn.NATS.ChanSubscribe("$JS.API.STREAM.MSG.GET."+b.conn.Names.ResultsStream(), seen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	return func() int {
		if err := b.conn.NATS.Flush(); err != nil {
			t.Fatal(err)
		}
		return len(seen)
	}
}

func attempt(n int) protocol.JobID {
	id := bustest.JobID(1)
	id.Attempt = int32(n)
	return id
}

func answersOf(t *testing.T, b *Consumer, from uint64) (ids []protocol.JobID, page AnswerPage) {
	t.Helper()
	page, err := readerOf(b).Answers(t.Context(), bustest.JobID(1).RunUID, from)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range page.Answers {
		ids = append(ids, a.ID)
	}
	return ids, page
}

// mutation: a filter of one attempt, or of a whole partition, makes this fail.
func TestAnswersAreThoseOfTheRun(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	count := requests(t, b)
	if ids, page := answersOf(t, b, 0); len(ids) > 0 || page.More || count() != 1 {
		t.Fatalf("of nothing: %v, more %t, in %d requests", ids, page.More, count())
	}
	other := bustest.JobID(1)
	other.RunUID = "another"
	begin := time.Now().Add(-time.Minute)
	bustest.PublishRaw(t, b.conn, b.conn.Names.Result(attempt(1)), `{"status":"Started"}`, protocol.HeaderToken, b.keys.Sign(attempt(1)))
	bustest.Answer(t, b.conn, other, bustest.Succeeded)
	bustest.Answer(t, b.conn, attempt(1), bustest.Succeeded)
	bustest.Answer(t, b.conn, attempt(2), `nonsense`)
	ids, page := answersOf(t, b, 1)
	if diff := cmp.Diff([]protocol.JobID{attempt(1), attempt(1), attempt(2)}, ids); diff != "" || page.More {
		t.Fatalf("more %t, answers (-want +got):\n%s", page.More, diff)
	}
	first, second, third := page.Answers[0], page.Answers[1], page.Answers[2]
	if first.Result.Status != protocol.StatusStarted || second.Result.Status != protocol.StatusSucceeded || first.PublishedAt.Before(begin) {
		t.Errorf("%+v, %+v", first, second)
	}
	if !errors.Is(third.Rejected, protocol.ErrResult) || third.Result.Status != "" {
		t.Errorf("%+v", third)
	}
	if n := count(); n != 1+4 {
		t.Errorf("%d requests", n)
	}
}

// mutation: no check of the token, or a parse of the subject that ends the look, makes this fail.
func TestForgedResultsAreNoAnswers(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	bustest.PublishRaw(t, b.conn, b.conn.Names.Result(attempt(1)), bustest.Succeeded, protocol.HeaderToken, "k1.forged")
	bustest.PublishRaw(t, b.conn, b.conn.Names.Result(attempt(1))+".more", bustest.Succeeded)
	bustest.PublishRaw(t, b.conn, b.conn.Names.Result(attempt(1)), bustest.Succeeded)
	bustest.Answer(t, b.conn, attempt(1), bustest.Succeeded)
	if ids, page := answersOf(t, b, 1); len(ids) != 1 || page.More {
		t.Errorf("answers %v, more %t", ids, page.More)
	}
}

// mutations: no bound, or a Next that is that of the last answer, make this fail.
func TestALookIsBoundedAndGoesOnWhereItEnded(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	for n := range maxPageReads {
		bustest.PublishRaw(t, b.conn, b.conn.Names.Result(attempt(1)), bustest.Succeeded, protocol.HeaderToken, fmt.Sprint("k1.forged", n))
	}
	bustest.Answer(t, b.conn, attempt(1), bustest.Succeeded)
	count := requests(t, b)
	ids, page := answersOf(t, b, 1)
	if len(ids) > 0 || !page.More || count() != maxPageReads {
		t.Fatalf("of a flood: %v, more %t, in %d requests", ids, page.More, count())
	}
	if ids, page = answersOf(t, b, page.Next); len(ids) != 1 || page.More {
		t.Errorf("behind it: %v, more %t", ids, page.More)
	}
}

// mutation: no bound of bytes makes this fail.
func TestALookHoldsSoManyBytesAtMost(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	const each, all = 90 << 10, 16
	for n := range all {
		bustest.Answer(t, b.conn, attempt(n+1), fmt.Sprintf(`{"status":"Succeeded","output":%q}`, strings.Repeat("x", each)))
	}
	held, page := 0, AnswerPage{More: true}
	for looks := 0; page.More; looks++ {
		ids, next := answersOf(t, b, page.Next)
		if n := len(ids); n > maxPageBytes/each+1 || looks > all {
			t.Fatalf("%d answers in look %d", n, looks)
		}
		held, page = held+len(ids), next
	}
	if held != all {
		t.Errorf("%d answers", held)
	}
}

// mutation: "none" for an error makes this fail.
func TestAStreamThatCannotBeAskedIsNotEmpty(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newTestConsumer(t, s)
	s.Shutdown()
	bustest.Eventually(t, "the connection is lost", func() bool { return !b.conn.Connected() })
	_, err := readerOf(b).Answers(t.Context(), bustest.JobID(1).RunUID, 1)
	var again *bus.RetryError
	if !errors.As(err, &again) || !errors.Is(err, bus.ErrUnreachable) {
		t.Errorf("%v", err)
	}
	if _, err := readerOf(b).Answers(t.Context(), "a.>", 1); !errors.Is(err, bus.ErrInvalidJob) {
		t.Errorf("a wildcard: %v", err)
	}
}
