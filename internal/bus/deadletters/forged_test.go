// SPDX-License-Identifier: Apache-2.0

package deadletters_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// entry is the n-th result of a stream, of 90 KiB, which is put aside.
func entry(names protocol.Names, n int, reason, uid string) deadletters.Entry {
	id := protocol.JobID{RunUID: uid, Step: "fetch", Item: protocol.NoItem, Attempt: 1}
	return deadletters.Entry{
		Reason: reason, Cause: errors.New("no"), RunUID: uid, Subject: names.Result(id), Sequence: uint64(n), StoredAt: time.Unix(int64(n), 0),
		Deliveries: 1, Header: nats.Header{"X-Own": {"kept"}, protocol.HeaderToken: {"k1.forged"}}, Body: bytes.Repeat([]byte("x"), 90<<10),
	}
}

// mutation: forged letters with all of their bytes, on subjects of the runs that they name, or
// a stream without a limit for each subject make this fail.
func TestForgedResultsPushOutNobodysDeadLetters(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	conn := bustest.Connect(t, bus.Config{URL: s.URL(), MaxBytes: bus.MaxBytes{DeadLetters: 4 << 20}})
	w := deadletters.NewWriter(conn)
	write := func(n int, reason, uid string) {
		if err := w.Write(t.Context(), entry(conn.Names, n, reason, uid)); err != nil {
			t.Fatal(err)
		}
	}
	write(1, deadletters.ReasonDeliveriesExhausted, "run-1")
	for n := range 1000 {
		write(2+n, deadletters.ReasonRejected, fmt.Sprintf("forged-%d", n))
	}
	for n := range 1000 {
		write(2000+n, deadletters.ReasonUndecodable, "")
	}
	letters, _ := list(t, tool(t, s), deadletters.Filter{RunUID: "run-1"}, 10)
	if len(letters) != 1 || letters[0].Reason != deadletters.ReasonDeliveriesExhausted || letters[0].Size != 90<<10 || letters[0].Truncated {
		t.Errorf("letters of the run: %+v", letters)
	}
	if state := bustest.Info(t, conn, conn.Names.DeadLettersStream()).State; state.Bytes > 90<<10+2<<10+(4<<20)/4 || state.Msgs < 100 {
		t.Errorf("the stream holds %d messages of %d bytes", state.Msgs, state.Bytes)
	}
}

// mutation: headers or more bytes of the sender, a token longer than ours are, or a rune in the
// middle, make this fail.
func TestWhatCanNeverBeAppliedKeepsNoBulk(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	conn := bustest.Connect(t, bus.Config{URL: s.URL()})
	w := deadletters.NewWriter(conn)
	long := bytes.Repeat([]byte("\xc3\xa4"), 40<<10)
	for n, reason := range []string{deadletters.ReasonRejected, deadletters.ReasonUndecodable, deadletters.ReasonResultRejected, deadletters.ReasonRejected} {
		e := entry(conn.Names, n+1, reason, "run-1")
		e.Subject += strings.Repeat("x", n)
		if e.Body = long; n == 3 {
			e.Body = []byte("short")
			e.Header.Set(protocol.HeaderToken, strings.Repeat("k", 129))
		}
		if err := w.Write(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	d := tool(t, s)
	listed, _ := list(t, d, deadletters.Filter{}, 10)
	for n, want := range []struct{ size, least, most, headers int }{{80 << 10, 4000, 4096, 1}, {80 << 10, 4000, 4096, 1}, {80 << 10, 4000, 4096, 1}, {5, 5, 5, 0}} {
		l, err := d.Get(t.Context(), uint64(n+1))
		if err != nil {
			t.Fatal(err)
		}
		if l.Size != want.size || listed[n].Size != want.size || len(l.Body) < want.least || len(l.Body) > want.most || l.Kept != len(l.Body) ||
			listed[n].Kept != l.Kept || !l.Truncated || len(l.OriginalHeader()) != want.headers || !utf8.Valid(l.Body) {
			t.Errorf("letter %d: %d bytes of %d, headers %v; listed %d of %d", n+1, len(l.Body), l.Size, l.OriginalHeader(), listed[n].Kept, listed[n].Size)
		}
	}
}

// Letters of before had the run that the message names in their subject.
//
// mutation: a list of a run with what only says to be of it, or one that counts what it leaves out
// as more, makes this fail.
func TestALetterWithoutATokenIsOfNoKnownRun(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	conn := bustest.Connect(t, bus.Config{URL: s.URL()})
	w := deadletters.NewWriter(conn)
	for n, e := range []struct{ reason, uid string }{
		{deadletters.ReasonRejected, "run-1"},
		{deadletters.ReasonRejected, "run-2"},
		{deadletters.ReasonResultRejected, "run-1"},
		{deadletters.ReasonRejected, "run-1"},
		{deadletters.ReasonRejected, "run-1"},
		{deadletters.ReasonRejected, "run-2"},
	} {
		if err := w.Write(t.Context(), entry(conn.Names, n+1, e.reason, e.uid)); err != nil {
			t.Fatal(err)
		}
	}
	old := nats.NewMsg(conn.Names.Prefix + ".deadletters.rejected.run-1")
	old.Header = nats.Header{deadletters.HeaderReason: {"rejected"}, deadletters.HeaderSubject: {entry(conn.Names, 1, "", "run-1").Subject}}
	if _, err := conn.JetStream.PublishMsg(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	d := tool(t, s)
	for name, tt := range map[string]struct {
		filter deadletters.Filter
		limit  int
		want   []uint64
		more   int
	}{
		"a run":                       {deadletters.Filter{RunUID: "run-1"}, 10, []uint64{3}, 0},
		"what says to be of it":       {deadletters.Filter{RunUID: "run-1", Reason: "rejected"}, 10, []uint64{1, 4, 5, 7}, 0},
		"the first that say so":       {deadletters.Filter{RunUID: "run-1", Reason: "rejected"}, 2, []uint64{1, 4}, 2},
		"one where others come after": {deadletters.Filter{RunUID: "run-2", Reason: "rejected"}, 1, []uint64{2}, 1},
		"a part of a run":             {deadletters.Filter{RunUID: "run-1"}, 1, []uint64{3}, 0},
		"all":                         {deadletters.Filter{}, 10, []uint64{1, 2, 3, 4, 5, 6, 7}, 0},
	} {
		letters, more := list(t, d, tt.filter, tt.limit)
		var got []uint64
		for _, l := range letters {
			got = append(got, l.Sequence)
			if l.Unproved != (l.Reason == "rejected") || l.RunUID == "" {
				t.Errorf("%s: %+v", name, l)
			}
		}
		if !slices.Equal(got, tt.want) || more != tt.more {
			t.Errorf("%s: %v and %d more, want %v and %d", name, got, more, tt.want, tt.more)
		}
	}
}

// mutation: letters of a run on one subject make this fail: it has a limit of 102.
func TestALimitOfASubjectLosesNoLetterThatMayBeRedriven(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	conn := bustest.Connect(t, bus.Config{URL: s.URL(), MaxBytes: bus.MaxBytes{DeadLetters: 4 << 20}})
	w := deadletters.NewWriter(conn)
	for n := range 200 {
		e := entry(conn.Names, n+1, deadletters.ReasonDeliveriesExhausted, "run-1")
		e.Subject = conn.Names.Result(protocol.JobID{RunUID: "run-1", Step: "fetch", Item: strconv.Itoa(n), Attempt: 1})
		e.Body = []byte("small")
		if err := w.Write(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range map[string]deadletters.Filter{"all": {}, "a run": {RunUID: "run-1"}, "a reason": {Reason: deadletters.ReasonDeliveriesExhausted}} {
		letters, more := list(t, tool(t, s), f, 1000)
		if len(letters) != 200 || more != 0 || letters[0].RunUID != "run-1" {
			t.Errorf("%s: %d letters and %d more: %+v", name, len(letters), more, letters[:min(1, len(letters))])
		}
	}
	if letters, _ := list(t, tool(t, s), deadletters.Filter{RunUID: "run-2"}, 10); len(letters) != 0 {
		t.Errorf("letters of another run: %+v", letters)
	}
}

// mutation: a sender's headers that are copied into a letter which is whole make this fail.
func TestASenderSaysNothingOfItsLetter(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	conn := bustest.Connect(t, bus.Config{URL: s.URL()})
	e := entry(conn.Names, 1, deadletters.ReasonDeliveriesExhausted, "run-1")
	e.Header[deadletters.HeaderTruncated], e.Header[deadletters.HeaderSize] = []string{"headers,body"}, []string{"1000000"}
	e.Header["syncopate-dead-letter-size"] = []string{"1000000"}
	if err := deadletters.NewWriter(conn).Write(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	l, err := tool(t, s).Get(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if l.Truncated || l.Size != len(e.Body) || l.Hopeless() != "" {
		t.Errorf("of %d bytes, truncated: %t, hopeless: %q", l.Size, l.Truncated, l.Hopeless())
	}
	if headers := l.OriginalHeader(); len(headers) != 2 || headers["X-Own"] == nil || headers[protocol.HeaderToken] == nil {
		t.Errorf("headers: %v", headers)
	}
}

// mutation: a look that goes on when its time is over makes this fail.
func TestAPageIsNotWaitedForUntilAllLettersAreSorted(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	conn := bustest.Connect(t, bus.Config{URL: s.URL()})
	w := deadletters.NewWriter(conn)
	for n := range 5 {
		if err := w.Write(t.Context(), entry(conn.Names, 1+n, deadletters.ReasonRejected, "run-1")); err != nil {
			t.Fatal(err)
		}
	}
	got, err := tool(t, s).Sort(t.Context(), deadletters.Filter{}, deadletters.Sorting{Limit: 10, For: time.Nanosecond})
	if err != nil || len(got.Refused) != 1 || got.Hopeless != 1 || got.Rest != 4 {
		t.Errorf("%v; %d of %d are shown, %d left", err, len(got.Refused), got.Hopeless, got.Rest)
	}
}
