package bus

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// tool opens the dead letters of a server as a person's tool does.
func tool(t *testing.T, s *natstest.Server, adjust ...func(*Config)) *DeadLetters {
	t.Helper()
	c := Config{URL: s.URL()}
	for _, f := range adjust {
		f(&c)
	}
	d, err := OpenDeadLetters(t.Context(), c)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(d.Close)
	return d
}

// bury makes a good result of a job a dead letter, for the given reason.
func bury(t *testing.T, b *Bus, got <-chan *Delivery, id protocol.JobID, reason string) {
	t.Helper()
	answer(t, b, id, succeeded)
	settle(t, receive(t, "result", got, 1)[0], Permanent(reason, errors.New("too much")))
}

func list(t *testing.T, d *DeadLetters, f LetterFilter, limit int) ([]Letter, int) {
	t.Helper()
	letters, more, err := d.List(t.Context(), f, limit)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return letters, more
}

// mutation: the Msg-Id of the first time makes this fail (the stream drops it), and so does leaving the letter.
func TestARedrivenResultIsConsumedAndItsLetterIsGone(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s)
	got, _ := collect(t, b)
	bury(t, b, got, jobID(1), "exhausted")
	d := tool(t, s)
	l, err := d.Get(t.Context(), 1)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if string(l.Body) != succeeded || l.Reason != "exhausted" || l.RunUID != "run-1" || l.Subject != b.names.Result(jobID(1)) ||
		l.Cause != "exhausted: too much" || l.Deliveries != 1 || l.Original != 1 || l.Stream != "SYNCOPATE_RESULTS" || l.Size != len(succeeded) {
		t.Errorf("letter: %+v", l)
	}
	if err := d.Redrive(t.Context(), 1, false); err != nil {
		t.Fatalf("redrive: %v", err)
	}
	again := receive(t, "the redriven result", got, 1)[0]
	if again.ID != jobID(1) || again.Result.Status != protocol.StatusSucceeded || again.Rejected != nil {
		t.Errorf("delivery: %+v", again)
	}
	settle(t, again, nil)
	eventually(t, "it is settled", func() bool { return unsettled(t, b) == 0 })
	if letters, _ := list(t, d, LetterFilter{}, 10); len(letters) != 0 {
		t.Errorf("letters left: %+v", letters)
	}
	if err := d.Redrive(t.Context(), 1, false); !errors.Is(err, ErrNoLetter) {
		t.Errorf("redrive of a letter that is gone: %v", err)
	}
}

// mutation: a random Msg-Id for each try makes this fail.
func TestARedriveThatDiedBeforeTheDeletionIsStoredOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s)
	got, _ := collect(t, b)
	bury(t, b, got, jobID(1), "exhausted")
	d := tool(t, s)
	l, err := d.Get(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.publish(t.Context(), l); err != nil { // and dies
		t.Fatal(err)
	}
	settle(t, receive(t, "the redriven result", got, 1)[0], nil)
	if err := d.Redrive(t.Context(), 1, false); err != nil {
		t.Fatal(err)
	}
	if info := streamInfo(t, b, b.names.ResultsStream()); info.State.LastSeq != 2 {
		t.Errorf("results stored: %d, want the original and one redrive", info.State.LastSeq)
	}
	if len(deadLetters(t, b)) != 0 {
		t.Error("the letter is still there")
	}
}

// mutation: deleting before, or without, the PubAck makes this fail.
func TestALetterStaysWhenItsMessageIsNotStored(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s)
	got, stop := collect(t, b)
	bury(t, b, got, jobID(1), "exhausted")
	stop()
	config := streamInfo(t, b, b.names.ResultsStream()).Config
	config.MaxMsgSize = 10
	if _, err := b.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	d := tool(t, s)
	if err := d.Redrive(t.Context(), 1, false); err == nil {
		t.Error("no error, and nothing was stored")
	}
	if letters, _ := list(t, d, LetterFilter{}, 10); len(letters) != 1 {
		t.Errorf("%d letters", len(letters))
	}
}

// mutation: any PubAck taken for that of the stream of results makes this fail.
func TestALetterStaysWhenAnotherStreamTakesItsMessage(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s)
	got, stop := collect(t, b)
	bury(t, b, got, jobID(1), "exhausted")
	stop()
	if err := b.js.DeleteStream(t.Context(), b.names.ResultsStream()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"syncopate.results.>"}}); err != nil {
		t.Fatal(err)
	}
	d := tool(t, s)
	if err := d.Redrive(t.Context(), 1, false); err == nil || !strings.Contains(err.Error(), "stream OTHER took it") {
		t.Errorf("redrive: %v", err)
	}
	if letters, _ := list(t, d, LetterFilter{}, 10); len(letters) != 1 {
		t.Errorf("%d letters", len(letters))
	}
}

// mutation: keeping the letter's own headers, or what was expected of the stream, makes this fail.
func TestARedriveHasTheOriginalHeaders(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s)
	got, stop := collect(t, b)
	id := jobID(1)
	token := b.config.Keys.Sign(id)
	publishRaw(t, b, b.names.Result(id), succeeded, protocol.HeaderToken, token, "X-Own", "kept", jetstream.MsgIDHeader, "own-id",
		jetstream.ExpectedStreamHeader, b.names.ResultsStream(), jetstream.ExpectedLastSeqHeader, "0")
	settle(t, receive(t, "result", got, 1)[0], Permanent("exhausted", nil))
	stop()
	if err := tool(t, s).Redrive(t.Context(), 1, false); err != nil {
		t.Fatal(err)
	}
	stream, err := b.js.Stream(t.Context(), b.names.ResultsStream())
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
	if !strings.HasPrefix(fresh, "redrive-") || strings.Contains(fresh, token) || string(m.Data) != succeeded || m.Subject != b.names.Result(id) {
		t.Errorf("message %s %q: %s", m.Subject, fresh, m.Data)
	}
}

// mutation: Redrivable returning nil makes this fail.
func TestWhatCanNeverBeAppliedIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason, subject string
		truncated       bool
		force           bool
		want            error
	}{
		"a message that may be applied":                     {reason: "DeliveriesExhausted"},
		"a reason that this version does not know":          {reason: "news"},
		"a forged token":                                    {reason: "rejected", want: ErrHopeless},
		"a forged token, by force":                          {reason: "rejected", force: true},
		"a subject without a job":                           {reason: "undecodable", want: ErrHopeless},
		"the same reason as the API spells it":              {reason: "Undecodable", want: ErrHopeless},
		"an unusable body":                                  {reason: "ResultRejected", want: ErrHopeless},
		"headers that are gone":                             {reason: "news", truncated: true, want: ErrHopeless},
		"a letter that would publish jobs":                  {reason: "news", subject: "syncopate.jobs.a.run-1.fetch.-.1", want: ErrNotOurs},
		"a letter that would publish jobs, by force":        {reason: "news", subject: "syncopate.jobs.a.run-1.fetch.-.1", force: true, want: ErrNotOurs},
		"a letter that would call the API, by force":        {reason: "news", subject: "$JS.API.STREAM.DELETE.X", force: true, want: ErrNotOurs},
		"a letter without an original subject, by force":    {reason: "news", subject: "-", force: true, want: ErrNotOurs},
		"a letter with a line break in the name, by force":  {reason: "news", subject: "syncopate.results.01.a\r\nPUB x", force: true, want: ErrNotOurs},
		"a letter of another installation's name, by force": {reason: "news", subject: "other.results.01.run-1.fetch.-.1", force: true, want: ErrNotOurs},
	}
	d := &DeadLetters{names: protocol.Names{Prefix: protocol.DefaultPrefix}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := Letter{Sequence: 7, Reason: tt.reason, Truncated: tt.truncated, Subject: tt.subject}
			if l.Subject == "" {
				l.Subject = d.names.Result(jobID(1))
			}
			if err := d.Redrivable(l, tt.force); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// mutation: Redrive without Redrivable makes this fail.
func TestAForgedResultIsNotRedriven(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s)
	_, _ = collect(t, b)
	publishRaw(t, b, b.names.Result(jobID(1)), succeeded, protocol.HeaderToken, "k1.forged")
	eventually(t, "it is a dead letter", func() bool { return len(deadLetters(t, b)) == 1 })
	d := tool(t, s)
	if err := d.Redrive(t.Context(), 1, false); !errors.Is(err, ErrHopeless) {
		t.Errorf("redrive: %v", err)
	}
	if letters, _ := list(t, d, LetterFilter{}, 1); len(letters) != 1 || letters[0].Reason != "rejected" {
		t.Errorf("letters: %+v", letters)
	}
	if err := d.Redrive(t.Context(), 1, true); err != nil {
		t.Errorf("by force: %v", err)
	}
	eventually(t, "it is a dead letter again", func() bool { l, _ := list(t, d, LetterFilter{}, 1); return len(l) == 1 && l[0].Sequence == 2 })
}

// mutation: leaving out one part of the filter's subject, or the bound, makes this fail.
func TestAListHasTheLettersThatTheFilterPicks(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s)
	got, _ := collect(t, b)
	for n, reason := range []string{"a", "b", "a", "b", "a", "a"} {
		id := jobID(n % 2)
		id.Attempt = int32(n + 1)
		bury(t, b, got, id, reason)
	}
	d := tool(t, s)
	tests := map[string]struct {
		filter LetterFilter
		limit  int
		want   []uint64
		more   int
	}{
		"all":                       {limit: 10, want: []uint64{1, 2, 3, 4, 5, 6}},
		"one reason":                {filter: LetterFilter{Reason: "b"}, limit: 10, want: []uint64{2, 4}},
		"one run":                   {filter: LetterFilter{RunUID: "run-1"}, limit: 10, want: []uint64{2, 4, 6}},
		"both":                      {filter: LetterFilter{RunUID: "run-1", Reason: "a"}, limit: 10, want: []uint64{6}},
		"none":                      {filter: LetterFilter{Reason: "c"}, limit: 10},
		"as many as the limit says": {limit: 2, want: []uint64{1, 2}, more: 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			letters, more := list(t, d, tt.filter, tt.limit)
			var sequences []uint64
			for _, l := range letters {
				sequences = append(sequences, l.Sequence)
				if l.Size != len(succeeded) || l.Body != nil || l.StoredAt.IsZero() {
					t.Errorf("letter: %+v", l)
				}
			}
			if diff := cmp.Diff(tt.want, sequences); diff != "" || more != tt.more {
				t.Errorf("letters (-want +got), %d more:\n%s", more, diff)
			}
		})
	}
	for _, f := range []LetterFilter{{Reason: "a.*"}, {Reason: ">"}, {RunUID: "*"}} {
		if _, _, err := d.List(t.Context(), f, 1); err == nil {
			t.Errorf("no error for %+v", f)
		}
	}
}

func TestAToolSaysAtOnceWhatIsMissing(t *testing.T) {
	t.Parallel()
	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if _, err = OpenDeadLetters(t.Context(), Config{URL: "nats://" + l.Addr().String()}); !errors.Is(err, ErrUnreachable) {
			t.Error(err)
		}
	})
	t.Run("no streams, and none are made", func(t *testing.T) {
		t.Parallel()
		d := tool(t, natstest.Start(t))
		for range 2 {
			if _, _, err := d.List(t.Context(), LetterFilter{}, 1); !errors.Is(err, jetstream.ErrStreamNotFound) {
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
		newBus(t, s, func(c *Config) { c.User, c.Password = "operator", "operator" })
		d := tool(t, s, func(c *Config) { c.User, c.Password = "guest", "guest" })
		// mutation: no bound in consumer makes this wait for ever.
		if _, _, err := d.List(t.Context(), LetterFilter{}, 1); err == nil || !strings.Contains(strings.ToLower(fmt.Sprint(err)), "permissions violation") {
			t.Error(err)
		}
		if _, err := d.Get(t.Context(), 1); err == nil || !strings.Contains(strings.ToLower(fmt.Sprint(err)), "permissions violation") {
			t.Error(err)
		}
	})
}
