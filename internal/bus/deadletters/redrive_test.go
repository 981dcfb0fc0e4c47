// SPDX-License-Identifier: Apache-2.0

package deadletters_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// tool opens the dead letters of a server as a person's tool does.
func tool(t *testing.T, s *natstest.Server, adjust ...func(*bus.Config)) *deadletters.Store {
	t.Helper()
	c := bus.Config{URL: s.URL()}
	for _, f := range adjust {
		f(&c)
	}
	d, err := deadletters.Open(t.Context(), c)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(d.Close)
	return d
}

// bury makes a good result of a job a dead letter, for the given reason.
func bury(t *testing.T, b *consumer, got <-chan *results.Delivery, id protocol.JobID, reason string) {
	t.Helper()
	bustest.Answer(t, b.conn, id, bustest.Succeeded)
	settle(t, bustest.Receive(t, "result", got, 1)[0], results.Permanent(reason, errors.New("too much")))
}

func list(t *testing.T, d *deadletters.Store, f deadletters.Filter, limit int) ([]deadletters.Letter, int) {
	t.Helper()
	letters, more, err := d.List(t.Context(), f, limit)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return letters, more
}

// mutation: the Msg-Id of the first time makes this fail (the stream drops it), and so does
// leaving the letter.
func TestARedrivenResultIsConsumedAndItsLetterIsGone(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newConsumer(t, s)
	got, _ := collect(t, b)
	bury(t, b, got, bustest.JobID(1), "exhausted")
	d := tool(t, s)
	l, err := d.Get(t.Context(), 1)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if string(l.Body) != bustest.Succeeded || l.Reason != "exhausted" || l.RunUID != "run-1" || l.Subject != b.conn.Names.Result(bustest.JobID(1)) ||
		l.Cause != "exhausted: too much" || l.Deliveries != 1 || l.Original != 1 || l.Stream != "SYNCOPATE_RESULTS" || l.Size != len(bustest.Succeeded) {
		t.Errorf("letter: %+v", l)
	}
	if err := d.Redrive(t.Context(), 1, false); err != nil {
		t.Fatalf("redrive: %v", err)
	}
	again := bustest.Receive(t, "the redriven result", got, 1)[0]
	if again.ID != bustest.JobID(1) || again.Result.Status != protocol.StatusSucceeded || again.Rejected != nil {
		t.Errorf("delivery: %+v", again)
	}
	settle(t, again, nil)
	bustest.Eventually(t, "it is settled", func() bool { return bustest.Unsettled(t, b.conn) == 0 })
	if letters, _ := list(t, d, deadletters.Filter{}, 10); len(letters) != 0 {
		t.Errorf("letters left: %+v", letters)
	}
	if err := d.Redrive(t.Context(), 1, false); !errors.Is(err, deadletters.ErrNotFound) {
		t.Errorf("redrive of a letter that is gone: %v", err)
	}
}

// A list has no bodies, and the client library takes a message without one for a word of the server
// if it has a status. Whoever may publish results must not be able to hide dead letters.
// mutation: headers copied as they are make the list fail; without their names in reserved the
// redriven message has others.
func TestALetterThatLooksLikeAWordOfTheServerIsListed(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newConsumer(t, s)
	got, _ := collect(t, b)
	words := [][]string{
		{"Status", "400"}, {"Status", "100"}, {"Status", "409", "Description", "consumer deleted"}, {"Status", "503"},
	}
	for i, header := range words {
		id := bustest.JobID(i)
		bustest.PublishRaw(t, b.conn, b.conn.Names.Result(id), bustest.Succeeded, append(header, protocol.HeaderToken, bustest.Ring().Sign(id))...)
		settle(t, bustest.Receive(t, "result", got, 1)[0], results.Permanent("exhausted", errors.New("too much")))
	}
	bury(t, b, got, bustest.JobID(len(words)), "exhausted")
	d := tool(t, s)
	letters, more := list(t, d, deadletters.Filter{}, 10)
	if len(letters) != len(words)+1 || more != 0 {
		t.Fatalf("%d letters, and %d more: %+v", len(letters), more, letters)
	}
	for i, header := range words {
		l := letters[i].OriginalHeader()
		for j := 0; j < len(header); j += 2 {
			if diff := cmp.Diff([]string{header[j+1]}, l[header[j]]); diff != "" {
				t.Errorf("letter %d, header %s (-want +got):\n%s", i, header[j], diff)
			}
		}
	}
}

// mutation: a random Msg-Id for each try makes this fail.
func TestARedriveThatDiedBeforeTheDeletionIsStoredOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newConsumer(t, s)
	got, _ := collect(t, b)
	bury(t, b, got, bustest.JobID(1), "exhausted")
	d := tool(t, s)
	l, err := d.Get(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := deadletters.Publish(d, t.Context(), l); err != nil { // and dies
		t.Fatal(err)
	}
	settle(t, bustest.Receive(t, "the redriven result", got, 1)[0], nil)
	if err := d.Redrive(t.Context(), 1, false); err != nil {
		t.Fatal(err)
	}
	if info := bustest.Info(t, b.conn, b.conn.Names.ResultsStream()); info.State.LastSeq != 2 {
		t.Errorf("results stored: %d, want the original and one redrive", info.State.LastSeq)
	}
	if len(bustest.DeadLetters(t, b.conn)) != 0 {
		t.Error("the letter is still there")
	}
}

// mutation: deleting before, or without, the PubAck makes this fail.
func TestALetterStaysWhenItsMessageIsNotStored(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newConsumer(t, s)
	got, stop := collect(t, b)
	bury(t, b, got, bustest.JobID(1), "exhausted")
	stop()
	config := bustest.Info(t, b.conn, b.conn.Names.ResultsStream()).Config
	config.MaxMsgSize = 10
	if _, err := b.conn.JetStream.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	d := tool(t, s)
	if err := d.Redrive(t.Context(), 1, false); err == nil {
		t.Error("no error, and nothing was stored")
	}
	if letters, _ := list(t, d, deadletters.Filter{}, 10); len(letters) != 1 {
		t.Errorf("%d letters", len(letters))
	}
}

// mutation: any PubAck taken for that of the stream of results makes this fail.
func TestALetterStaysWhenAnotherStreamTakesItsMessage(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newConsumer(t, s)
	got, stop := collect(t, b)
	bury(t, b, got, bustest.JobID(1), "exhausted")
	stop()
	if err := b.conn.JetStream.DeleteStream(t.Context(), b.conn.Names.ResultsStream()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.conn.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"syncopate.results.>"}}); err != nil {
		t.Fatal(err)
	}
	d := tool(t, s)
	if err := d.Redrive(t.Context(), 1, false); err == nil || !strings.Contains(err.Error(), "stream OTHER took it") {
		t.Errorf("redrive: %v", err)
	}
	if letters, _ := list(t, d, deadletters.Filter{}, 10); len(letters) != 1 {
		t.Errorf("%d letters", len(letters))
	}
}

// mutation: keeping the letter's own headers, or what was expected of the stream, makes this fail.
func TestARedriveHasTheOriginalHeaders(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newConsumer(t, s)
	got, stop := collect(t, b)
	id := bustest.JobID(1)
	token := bustest.Ring().Sign(id)
	bustest.PublishRaw(t, b.conn, b.conn.Names.Result(id), bustest.Succeeded, protocol.HeaderToken, token, "X-Own", "kept", jetstream.MsgIDHeader, "own-id",
		jetstream.ExpectedStreamHeader, b.conn.Names.ResultsStream(), jetstream.ExpectedLastSeqHeader, "0")
	settle(t, bustest.Receive(t, "result", got, 1)[0], results.Permanent("exhausted", nil))
	stop()
	if err := tool(t, s).Redrive(t.Context(), 1, false); err != nil {
		t.Fatal(err)
	}
	stream, err := b.conn.JetStream.Stream(t.Context(), b.conn.Names.ResultsStream())
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetMsg(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	fresh := m.Header.Get(jetstream.MsgIDHeader)
	m.Header.Del(jetstream.MsgIDHeader)
	want := nats.Header{protocol.HeaderToken: {token}, "X-Own": {"kept"}, jetstream.ExpectedStreamHeader: {"SYNCOPATE_RESULTS"}}
	if diff := cmp.Diff(want, m.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(fresh, "redrive-") || strings.Contains(fresh, token) || string(m.Data) != bustest.Succeeded || m.Subject != b.conn.Names.Result(id) {
		t.Errorf("message %s %q: %s", m.Subject, fresh, m.Data)
	}
}

// mutation: Redrive without Redrivable makes this fail.
func TestAForgedResultIsNotRedriven(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newConsumer(t, s)
	_, _ = collect(t, b)
	bustest.PublishRaw(t, b.conn, b.conn.Names.Result(bustest.JobID(1)), bustest.Succeeded, protocol.HeaderToken, "k1.forged")
	bustest.Eventually(t, "it is a dead letter", func() bool { return len(bustest.DeadLetters(t, b.conn)) == 1 })
	d := tool(t, s)
	if err := d.Redrive(t.Context(), 1, false); !errors.Is(err, deadletters.ErrHopeless) {
		t.Errorf("redrive: %v", err)
	}
	if letters, _ := list(t, d, deadletters.Filter{}, 1); len(letters) != 1 || letters[0].Reason != "rejected" {
		t.Errorf("letters: %+v", letters)
	}
	if err := d.Redrive(t.Context(), 1, true); err != nil {
		t.Errorf("by force: %v", err)
	}
	bustest.Eventually(t, "it is a dead letter again", func() bool { l, _ := list(t, d, deadletters.Filter{}, 1); return len(l) == 1 && l[0].Sequence == 2 })
}

// mutation: leaving out one part of the filter's subject, or the bound, makes this fail.
func TestAListHasTheLettersThatTheFilterPicks(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newConsumer(t, s)
	got, _ := collect(t, b)
	for n, reason := range []string{"a", "b", "a", "b", "a", "a"} {
		id := bustest.JobID(n % 2)
		id.Attempt = int32(n + 1)
		bury(t, b, got, id, reason)
	}
	d := tool(t, s)
	tests := map[string]struct {
		filter deadletters.Filter
		limit  int
		want   []uint64
		more   int
	}{
		"all":                       {limit: 10, want: []uint64{1, 2, 3, 4, 5, 6}},
		"one reason":                {filter: deadletters.Filter{Reason: "b"}, limit: 10, want: []uint64{2, 4}},
		"one run":                   {filter: deadletters.Filter{RunUID: "run-1"}, limit: 10, want: []uint64{2, 4, 6}},
		"both":                      {filter: deadletters.Filter{RunUID: "run-1", Reason: "a"}, limit: 10, want: []uint64{6}},
		"none":                      {filter: deadletters.Filter{Reason: "c"}, limit: 10},
		"as many as the limit says": {limit: 2, want: []uint64{1, 2}, more: 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			letters, more := list(t, d, tt.filter, tt.limit)
			var sequences []uint64
			for _, l := range letters {
				sequences = append(sequences, l.Sequence)
				if l.Size != len(bustest.Succeeded) || l.Body != nil || l.StoredAt.IsZero() {
					t.Errorf("letter: %+v", l)
				}
			}
			if diff := cmp.Diff(tt.want, sequences); diff != "" || more != tt.more {
				t.Errorf("letters (-want +got), %d more:\n%s", more, diff)
			}
		})
	}
	for _, f := range []deadletters.Filter{{Reason: "a.*"}, {Reason: ">"}, {RunUID: "*"}} {
		if _, _, err := d.List(t.Context(), f, 1); err == nil {
			t.Errorf("no error for %+v", f)
		}
	}
}

func TestAToolSaysAtOnceWhatIsMissing(t *testing.T) {
	t.Parallel()
	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		nobody, err := ports.Address()
		if err != nil {
			t.Fatal(err)
		}
		if _, err = deadletters.Open(t.Context(), bus.Config{URL: "nats://" + nobody}); !errors.Is(err, bus.ErrUnreachable) {
			t.Error(err)
		}
	})
	t.Run("no streams, and none are made", func(t *testing.T) {
		t.Parallel()
		d := tool(t, natstest.Start(t))
		for range 2 {
			if _, _, err := d.List(t.Context(), deadletters.Filter{}, 1); !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Error(err)
			}
		}
	})
	t.Run("no permission", func(t *testing.T) { // mutation: leaving out nc.LastError makes this fail: it is only a time-out then
		t.Parallel()
		s := natstest.Start(t, func(o *server.Options) {
			o.Users = []*server.User{{Username: "guest", Password: "guest", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.MSG.GET.>", "$JS.API.CONSUMER.INFO.>"}},
			}}, {Username: "operator", Password: "operator"}}
		})
		newConsumer(t, s, func(c *bus.Config) { c.User, c.Password = "operator", "operator" })
		d := tool(t, s, func(c *bus.Config) { c.User, c.Password = "guest", "guest" })
		// mutation: no bound in consumer makes this wait for ever.
		if _, _, err := d.List(t.Context(), deadletters.Filter{}, 1); err == nil || !strings.Contains(strings.ToLower(fmt.Sprint(err)), "permissions violation") {
			t.Error(err)
		}
		if _, err := d.Get(t.Context(), 1); err == nil || !strings.Contains(strings.ToLower(fmt.Sprint(err)), "permissions violation") {
			t.Error(err)
		}
	})
}
