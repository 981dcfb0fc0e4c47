// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// The server of these tests takes 64 KiB at a time, so that an output of a megabyte is some chunks.
const serverTakes = 64 << 10

// takesMore is for tests in which the library of NATS stores something: its chunks have 128 KiB.
func takesMore(s *server.Options) { s.MaxPayload = 1 << 20 }

func encoded(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// text is JSON of n bytes, of which no two chunks are the same.
func text(n int) json.RawMessage {
	b := make([]byte, 1, n+1024)
	for i := range n/1000 + 1 {
		b = fmt.Appendf(b, "%01000d", i)
	}
	b[0], b[n-1] = '"', '"'
	return b[:n]
}

// resolves wants a result whose reference leads to the output, for the library of NATS.
func (o *operator) resolves(r protocol.Result, id protocol.JobID, output json.RawMessage) {
	o.t.Helper()
	if r.Status != protocol.StatusSucceeded || len(r.Output) > 0 || r.OutputRef == nil {
		o.t.Fatalf("result %.200s", encoded(o.t, r))
	}
	if want := protocol.NewOutputRef(id, output); *r.OutputRef != want {
		o.t.Errorf("reference %+v, want %+v", *r.OutputRef, want)
	}
	if err := r.OutputRef.Check(id); err != nil {
		o.t.Error(err)
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), patience) // it waits for chunks that are missing
	defer cancel()
	got, err := o.store().GetBytes(ctx, r.OutputRef.Name)
	if err != nil || !bytes.Equal(got, output) {
		o.t.Errorf("the object has %d bytes, want %d (%v)", len(got), len(output), err)
	}
}

// wholeObjects wants nothing in the store but n objects, the last of which is that
// of the reference.
func (o *operator) wholeObjects(n uint64, ref protocol.OutputRef) {
	o.t.Helper()
	info, err := o.store().GetInfo(o.t.Context(), ref.Name)
	if err != nil {
		o.t.Fatal(err)
	}
	if got, want := o.inStore(), n*uint64(info.Chunks)+n; got != want || info.Chunks < 2 {
		o.t.Errorf("%d messages in the store, want %d (%d chunks)", got, want, info.Chunks)
	}
}

// mutation: another limit, the digest of other bytes, or chunks out of order make this fail.
func TestAnOutputOver64KiBIsStoredAndReferredTo(t *testing.T) {
	o := newOperator(t, takesMore)
	sizes := map[string]int{"most": protocol.MaxInlineOutputBytes, "more": protocol.MaxInlineOutputBytes + 1, "much": 1 << 20, "all": protocol.MaxPayloadBytes}
	w := o.worker()
	w.Handle("a", func(_ context.Context, j Job) (any, error) { return text(sizes[j.ID.Step]), nil }, Concurrency(4))
	o.topic("a")
	for step := range sizes {
		o.publish("a", job(step), `{}`)
	}
	o.start(w)
	for _, r := range o.results(2 * len(sizes)) {
		id, err := o.names.ParseResult(r.Subject)
		switch {
		case err != nil:
			t.Fatal(err)
		case r.Result.Status == protocol.StatusStarted:
		case id.Step == "most":
			if r.Result.OutputRef != nil || len(r.Result.Output) != sizes["most"] {
				t.Errorf("%d bytes, reference %v", len(r.Result.Output), r.Result.OutputRef)
			}
		default:
			o.resolves(r.Result, id, text(sizes[id.Step]))
		}
	}
	o.eventually("all are acknowledged", func() bool { return o.jobs() == 0 })
}

// mutation: answer that stores whatever the stream of results refuses makes a reference of it.
func TestAWorkerWithoutAnObjectStoreStoresNothing(t *testing.T) {
	o := newOperator(t)
	config := jetstreamResults(o.names)
	config.MaxMsgSize = 4 << 10
	if _, err := o.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	o.topic("a")
	o.publish("a", job("stream"), `{}`)
	w := o.worker(func(x *Options) { x.NoObjectStore = true })
	w.Handle("a", func(context.Context, Job) (any, error) { return text(8 << 10), nil })
	o.start(w)
	got := o.results(2)[1].Result
	if got.Status != protocol.StatusFailed || !got.Final || got.Error == nil || got.Error.Code != CodeTooLarge {
		t.Errorf("got %+v", got)
	}
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
}

// A page of HTML is as large as it is.
//
// mutation: succeeded, or message, that escapes makes six bytes of each of these.
func TestHTMLIsNoLargerThanItIs(t *testing.T) {
	o := newOperator(t, takesMore)
	pages := map[string]string{"page": strings.Repeat("<", 60<<10), "book": strings.Repeat("<", 2<<20)}
	w := o.worker()
	w.Handle("a", func(_ context.Context, j Job) (any, error) { return pages[j.ID.Step], nil })
	o.topic("a")
	o.publish("a", job("page"), `{}`)
	o.start(w)
	if got := o.results(2)[1].Result; string(got.Output) != `"`+pages["page"]+`"` {
		t.Errorf("%d bytes, reference %v", len(got.Output), got.OutputRef)
	}
	o.publish("a", job("book"), `{}`)
	o.resolves(o.results(4)[3].Result, job("book"), []byte(`"`+pages["book"]+`"`))
}

// mutation: answer that fails at once when the stream of results refuses the size fails this.
func TestAnOutputThatTheServerDoesNotTakeInAResultIsStored(t *testing.T) {
	o := newOperator(t)
	config := jetstreamResults(o.names)
	config.MaxMsgSize = 4 << 10
	if _, err := o.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	o.topic("a")
	o.publish("a", job("stream"), `{}`)
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { return text(8 << 10), nil })
	o.start(w)
	o.resolves(o.results(2)[1].Result, job("stream"), text(8<<10))
	// mutation: tooLarge without the stream's refusal tries the same again until the deadline, and
	// this times out.
	o.limitStore(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100 })
	o.publish("a", job("both"), `{}`)
	got := o.results(4)[3].Result
	if got.Status != protocol.StatusFailed || !got.Final || got.Error == nil || got.Error.Code != CodeTooLarge || got.OutputRef != nil {
		t.Errorf("got %+v", got)
	}
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
}

// mutation: deliver that publishes first, or store that begins anew after an error, fails this.
func TestAStoreWithoutRoomIsTriedAgainAndTheResultWaits(t *testing.T) {
	o := newOperator(t)
	o.limitStore(func(c *jetstream.StreamConfig) { c.MaxBytes = 3 * serverTakes })
	o.topic("a")
	o.publish("a", job("a"), `{}`)
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { return text(1 << 20), nil })
	o.start(w)
	o.eventually("the store refuses it three times", func() bool {
		return strings.Count(strings.Join(o.logs.all(), "\n"), "maximum bytes exceeded") >= 3
	})
	if got := o.results(1); got[0].Result.Status != protocol.StatusStarted || o.jobs() != 1 || o.inResults() != 1 {
		t.Errorf("%+v is the first of %d results, %d jobs", got[0].Result, o.inResults(), o.jobs())
	}
	o.limitStore(func(c *jetstream.StreamConfig) { c.MaxBytes = -1 })
	r := o.results(2)[1].Result
	o.resolves(r, job("a"), text(1<<20))
	o.wholeObjects(1, *r.OutputRef)
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
}

func (o *operator) inResults() uint64 {
	o.t.Helper()
	s, err := o.js.Stream(o.t.Context(), o.names.ResultsStream())
	if err != nil {
		o.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// mutation: payloads that gives up when there is no store fails this.
func TestAStoreThatComesLateIsWaitedFor(t *testing.T) {
	o := newOperator(t)
	if err := o.js.DeleteObjectStore(t.Context(), o.names.PayloadsBucket()); err != nil {
		t.Fatal(err)
	}
	o.topic("a")
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { return text(100 << 10), nil }, Concurrency(2))
	o.start(w)
	o.publish("a", job("waits"), `{}`)
	o.publish("a", protocol.JobID{RunUID: "ffff", Step: "gone", Item: protocol.NoItem, Attempt: 1}, `{}`)
	const says = `"error"="the operator has not made the object store of large outputs: syncopate-payloads`
	o.eventually("both say what they wait for", func() bool {
		all := strings.Join(o.logs.all(), "\n")
		return strings.Contains(all, says) && strings.Contains(all, `"job"="8b0e/waits/-/1"`) && strings.Contains(all, `"job"="ffff/gone/-/1"`)
	})
	o.cancel("ffff", protocol.Control{Action: protocol.ActionCancel})
	o.eventually("the cancelled job is acknowledged without a result", func() bool { return o.jobs() == 1 })
	o.makeStore()
	o.resolves(o.results(3)[2].Result, job("waits"), text(100<<10))
	o.eventually("the other is, too", func() bool { return o.jobs() == 0 })
}

// mutation: store that goes by its context alone stores it.
func TestALargeValueThatIsCancelledAfterTheGracePeriodIsNotStored(t *testing.T) {
	o := newOperator(t)
	u := o.worker().upload(&atWork{id: job("a")}, text(1<<20))
	u.job.cancelled.Store(true)
	ctx, stop := context.WithCancelCause(t.Context())
	stop(ErrStopping)
	if err := u.store(ctx); !errors.Is(err, ErrCancelled) || o.inStore() != 0 {
		t.Errorf("%d messages, %v", o.inStore(), err)
	}
}

// mutation: store that stops at every end of its context fails this.
func TestALargeValueThatComesAfterTheGracePeriodIsStored(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	began := make(chan struct{})
	w := o.worker(func(x *Options) { x.GracePeriod = -1 })
	w.Handle("a", func(ctx context.Context, _ Job) (any, error) { close(began); <-ctx.Done(); return text(200 << 10), nil })
	stop := o.start(w)
	o.publish("a", job("a"), `{}`)
	<-began
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	o.resolves(o.results(2)[1].Result, job("a"), text(200<<10))
	if n := o.jobs(); n != 0 {
		t.Errorf("%d jobs left", n)
	}
}

// mutation: chunks that do not name the one before them, or an upload that is not tried again, fail
// this in most of its runs; the tests below show it in each.
func TestARestartInTheMiddleOfAnUploadLosesNothing(t *testing.T) {
	const size = 4 << 20
	o := newOperator(t)
	o.topic("a")
	chunks := make(chan *nats.Msg, 1024)
	if _, err := o.nc.ChanSubscribe(o.names.PayloadChunks(">"), chunks); err != nil {
		t.Fatal(err)
	}
	w := o.worker()
	w.Handle("a", func(context.Context, Job) (any, error) { return text(size), nil })
	o.start(w)
	o.publish("a", job("a"), `{}`)
	<-chunks
	o.restart()
	r := o.results(2)[1].Result
	o.resolves(r, job("a"), text(size))
	o.wholeObjects(1, *r.OutputRef)
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
}

// uploading gives a worker, and the first try to store an output, which found room for
// some chunks only.
func uploading(t *testing.T, output json.RawMessage) (*operator, *upload) {
	t.Helper()
	o := newOperator(t)
	o.limitStore(func(c *jetstream.StreamConfig) { c.MaxBytes = 4 * serverTakes })
	u := o.worker().upload(&atWork{id: job("a")}, output)
	if err := u.store(t.Context()); err == nil || u.chunks < 2 {
		t.Fatalf("%d chunks, %v", u.chunks, err)
	}
	o.limitStore(func(c *jetstream.StreamConfig) { c.MaxBytes = -1 })
	return o, u
}

func (o *operator) put(u *upload) {
	o.t.Helper()
	o.eventually("it is stored", func() bool { return u.store(o.t.Context()) == nil })
	o.resolves(protocol.Result{Status: protocol.StatusSucceeded, OutputRef: &u.ref}, u.job.id, u.body)
}

// mutation: without the sequence of the chunk before it, or without a look at what is there, the
// object has a chunk twice or it is never stored.
func TestAChunkWhoseConfirmationIsLostIsStoredOnce(t *testing.T) {
	o, u := uploading(t, text(1<<20))
	o.write(o.names.PayloadChunks(u.nuid), u.body[u.sent:u.sent+serverTakes-envelope])
	o.put(u)
	o.wholeObjects(1, u.ref)
}

// mutation: an upload that does not begin anew is never done.
func TestAnUploadOutlivesAStoreThatIsEmptied(t *testing.T) {
	o, u := uploading(t, text(1<<20))
	s, err := o.js.Stream(t.Context(), o.names.PayloadsStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.put(u)
	o.wholeObjects(1, u.ref)
}

// mutation: an entry that does not ask for its last chunk stands for nothing.
func TestAnEntryIsNotStoredWithoutItsChunks(t *testing.T) {
	o, u := uploading(t, text(1<<20))
	for u.sent < len(u.body) {
		s, err := u.payloads(t.Context())
		if err == nil {
			err = u.chunk(t.Context(), s)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := o.js.Stream(t.Context(), o.names.PayloadsStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := u.enter(t.Context()); err == nil || o.inStore() != 0 {
		t.Errorf("%d messages, %v", o.inStore(), err)
	}
	o.put(u)
	o.wholeObjects(1, u.ref)
}

// mutation: an upload that does not look at what is there stores "the same" twice; one that looks
// at less of it takes one of the others for the output.
func TestWhatIsInTheStoreUnderTheNameIsTakenOnlyIfItIsTheOutput(t *testing.T) {
	output := text(300 << 10)
	ref := protocol.NewOutputRef(job("a"), output)
	for name, tc := range map[string]struct {
		before func(*operator)
		again  bool // it is stored again
	}{
		"the same": {func(o *operator) { o.put(o.worker().upload(&atWork{id: job("a")}, output)) }, false},
		"the same, by the library of NATS": {func(o *operator) {
			if _, err := o.store().PutBytes(o.t.Context(), ref.Name, output); err != nil {
				o.t.Fatal(err)
			}
		}, false},
		"other bytes": {func(o *operator) {
			if _, err := o.store().PutBytes(o.t.Context(), ref.Name, text(299<<10)); err != nil {
				o.t.Fatal(err)
			}
		}, true},
		"a deleted object": {func(o *operator) {
			o.put(o.worker().upload(&atWork{id: job("a")}, output))
			if err := o.store().Delete(o.t.Context(), ref.Name); err != nil {
				o.t.Fatal(err)
			}
		}, true},
		"an entry without all of its chunks": {func(o *operator) {
			u := o.worker().upload(&atWork{id: job("a")}, output)
			o.put(u)
			s, err := o.js.Stream(o.t.Context(), o.names.PayloadsStream())
			if err == nil {
				err = s.Purge(o.t.Context(), jetstream.WithPurgeSubject(o.names.PayloadChunks(u.nuid)), jetstream.WithPurgeKeep(1))
			}
			if err != nil {
				o.t.Fatal(err)
			}
		}, true},
		"nonsense": {func(o *operator) {
			o.write(o.names.PayloadEntry(ref.Name), []byte(`nonsense`))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOperator(t, takesMore)
			tc.before(o)
			before := o.last()
			o.put(o.worker().upload(&atWork{id: job("a")}, output))
			if again := o.last() != before; again != tc.again {
				t.Errorf("stored again: %t", again)
			}
		})
	}
}

// last is the sequence of the last message of the object store.
func (o *operator) last() uint64 {
	o.t.Helper()
	s, err := o.js.Stream(o.t.Context(), o.names.PayloadsStream())
	if err != nil {
		o.t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}

// mutation: fetch without the look at the digest, or payload that tries what is wrong
// again, fails this.
func TestAHandlerReadsWhatItsInputRefersTo(t *testing.T) {
	o := newOperator(t, takesMore)
	output := text(300 << 10)
	good := protocol.NewOutputRef(job("first"), output)
	o.put(o.worker().upload(&atWork{id: job("first")}, output))
	put := func(step string, stored json.RawMessage) protocol.OutputRef {
		ref := protocol.NewOutputRef(job(step), output)
		if _, err := o.store().PutBytes(t.Context(), ref.Name, stored); err != nil {
			t.Fatal(err)
		}
		return ref
	}
	deleted := put("deleted", output)
	if err := o.store().Delete(t.Context(), deleted.Name); err != nil {
		t.Fatal(err)
	}
	lie := func(step string) protocol.OutputRef {
		ref, other := protocol.NewOutputRef(job(step), output), bytes.Replace(output, []byte("1"), []byte("2"), 1)
		o.write(o.names.PayloadChunks("8b0e.lie"), other)
		o.write(o.names.PayloadEntry(ref.Name), []byte(encoded(t, o.names.NewPayloadEntry(ref, "8b0e.lie", 1))))
		return ref
	}
	edited := func(edit func(*protocol.OutputRef)) protocol.OutputRef { r := good; edit(&r); return r }
	w := o.worker()
	w.pullWait = time.Millisecond
	for name, tc := range map[string]struct {
		ref   protocol.OutputRef
		code  string
		final bool
	}{
		"what the SDK stored":                {good, "", false},
		"what the library of NATS stored":    {put("library", output), "", false},
		"other bytes of that size":           {put("other", bytes.ToUpper(bytes.Replace(output, []byte("1"), []byte("2"), 1))), CodeInvalidPayload, true},
		"fewer bytes":                        {put("fewer", text(200<<10)), CodeInvalidPayload, true},
		"bytes of which their entry lies":    {lie("lie"), CodeInvalidPayload, true},
		"a digest that is none":              {edited(func(r *protocol.OutputRef) { r.Digest = "sha256:x" }), CodeInvalidPayload, true},
		"a name that is none":                {edited(func(r *protocol.OutputRef) { r.Name = "x" }), CodeInvalidPayload, true},
		"a size above the limit":             {edited(func(r *protocol.OutputRef) { r.Size = protocol.MaxPayloadBytes + 1 }), CodeInvalidPayload, true},
		"another size":                       {edited(func(r *protocol.OutputRef) { r.Size++ }), CodeInvalidPayload, true},
		"nothing: it was never there":        {protocol.NewOutputRef(job("never"), output), CodePayloadNotFound, false},
		"nothing: it was there, and deleted": {deleted, CodePayloadNotFound, false},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := w.payload(t.Context(), tc.ref)
			if tc.code == "" {
				if err != nil || !bytes.Equal(data, output) {
					t.Errorf("%d bytes, %v", len(data), err)
				}
				return
			}
			if r := resultOf(data, err); r.Error == nil || r.Error.Code != tc.code || r.Final != tc.final {
				t.Errorf("got %+v, %v", r.Error, err)
			}
		})
	}
}

// write publishes a message of the object store.
func (o *operator) write(subject string, body []byte) {
	o.t.Helper()
	if _, err := o.js.Publish(o.t.Context(), subject, body); err != nil {
		o.t.Fatal(err)
	}
}

// mutation: stored without a limit of its own fails this. A request that a restart swallowed would
// not end before the job does.
func TestARequestEndsLongBeforeTheJobMay(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, err := stored(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > requestTimeout {
			t.Errorf("ends at %v", end)
		}
		return nil, jetstream.ErrMsgNotFound
	})
	if !errors.Is(err, errNoPayload) {
		t.Errorf("got %v", err)
	}
}

// mutation: payload that gives up at the first error, or one that waits for its first answer as
// long as the job may, fails this.
func TestReadingOutlivesTheServerAndEndsWithTheJob(t *testing.T) {
	o := newOperator(t)
	output := text(300 << 10)
	w := o.worker()
	u := w.upload(&atWork{id: job("first")}, output)
	o.put(u)
	o.topic("a")
	began, down := make(chan struct{}), make(chan struct{})
	w.Handle("a", func(ctx context.Context, j Job) (any, error) {
		close(began)
		<-down
		data, err := j.Payload(ctx, u.ref)
		return len(data), err
	})
	o.start(w)
	o.publish("a", job("a"), `{}`, func(h nats.Header) { h.Set(protocol.HeaderDeadline, time.Now().Add(time.Hour).Format(time.RFC3339)) })
	within(t, "the handler is called", began)
	address := o.down()
	close(down)
	o.eventually("the handler sees that the server is away", func() bool {
		return strings.Contains(strings.Join(o.logs.all(), "\n"), "Output not read")
	})
	o.up(address)
	if got := string(o.results(2)[1].Result.Output); got != fmt.Sprint(len(output)) {
		t.Errorf("got %s", got)
	}
	o.down()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrCancelled)
	if _, err := w.payload(ctx, u.ref); !errors.Is(err, ErrCancelled) {
		t.Errorf("got %v", err)
	}
	o.up(address)
}
