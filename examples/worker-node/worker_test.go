// SPDX-License-Identifier: Apache-2.0

// Package workernode tests the sample worker in Node against a real nats-server.
package workernode

import (
	"bufio"
	"bytes"
	"context"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	topic          = "demo.node"
	installTimeout = 90 * time.Second
	patience       = 20 * time.Second
)

// mutation: worker.mjs without the token, with the Msg-Id of Started for its result, or without its
// ack fails this.
func TestTheNodeWorkerSpeaksTheProtocol(t *testing.T) {
	dir := install(t)
	done := protocol.Result{Status: protocol.StatusSucceeded, Output: []byte(`{"youSaid":{"a":[1,"x"]}}`)}
	for file, want := range map[string]map[string]protocol.Result{
		"worker.mjs": {protocol.StartedMsgID(aJob, "tok"): {Status: protocol.StatusStarted}, protocol.ResultMsgID(aJob, "tok"): done},
		"short.mjs":  {protocol.ResultMsgID(aJob, "tok"): done},
	} {
		t.Run(file, func(t *testing.T) {
			server := natstest.Start(t)
			speaks(t, dir, file, want, streams(t, server.URL()), server.URL())
		})
	}
}

// A server as in examples/production wants a certificate of its clients, and a login, and an
// address names several. The first one here is none.
// mutation: any of the variables that nats.mjs does not read makes this fail; so does an address
// that is not cut at its commas.
func TestTheNodeWorkersReachAServerThatVerifiesItsClients(t *testing.T) {
	dir := install(t)
	files := certs.NewAuthority(t).Issue(time.Hour)
	want := map[string]protocol.Result{protocol.ResultMsgID(aJob, "tok"): {Status: protocol.StatusSucceeded, Output: []byte(`{"youSaid":{"a":[1,"x"]}}`)}}
	whole := maps.Clone(want)
	whole[protocol.StartedMsgID(aJob, "tok")] = protocol.Result{Status: protocol.StatusStarted}
	for file, want := range map[string]map[string]protocol.Result{"worker.mjs": whole, "short.mjs": want} {
		t.Run(file, func(t *testing.T) {
			server := natstest.Start(t, natstest.Verifying(t, files, "worker", "secret"))
			js := streams(t, server.URL(), nats.UserInfo("worker", "secret"), nats.Secure(files.Client(t)))
			speaks(t, dir, file, want, js, "tls://127.0.0.1:1,"+strings.Replace(server.URL(), "nats://", "tls://", 1),
				"NATS_CA="+files.CA, "NATS_CERT="+files.Cert, "NATS_KEY="+files.Key, "NATS_USER=worker", "NATS_PASSWORD=secret")
		})
	}
}

// mutation: a page that says less than is there makes this fail.
func TestTheWorkersAreAsShortAsThePageSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/workers.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"worker-node/worker.mjs", "worker-node/short.mjs", "worker-python/worker.py"} {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		said := regexp.MustCompile(regexp.QuoteMeta(file) + `\) \| under (\d+) \|`).FindSubmatch(page)
		if said == nil {
			t.Errorf("the page does not say how long %s is", file)
			continue
		}
		if bound, err := strconv.Atoi(string(said[1])); err != nil || bytes.Count(text, []byte("\n")) >= bound {
			t.Errorf("%s has %d lines; the page says under %s", file, bytes.Count(text, []byte("\n")), said[1])
		}
	}
}

// The server goes silent without an end of the connection, then refuses the login three times: its
// users are loaded late.
//
// mutations: connect without pingInterval notices the silence after minutes only, and this times
// out; without ignoreAuthErrorAbort it gives up at the second refusal.
func TestTheNodeWorkersOutliveSilenceAndRefusedLogins(t *testing.T) {
	dir := install(t)
	for _, file := range []string{"worker.mjs", "short.mjs"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			server := newMoody(t)
			run(t, dir, file, "nats://u:p@"+server.listener.Addr().String())
			select {
			case <-server.again:
			case <-time.After(ages):
				t.Error("the worker does not come back")
			}
		})
	}
}

// oddHandler is not async, and throws what there is.
const oddHandler = `({ way }) => {
  const odd = { error: new Error("no"), text: "no", nothing: undefined, mute: Object.create(null), final: { code: 7, message: "no", final: 1n },
    fraction: { retryAfterMillis: 1499.2 }, negative: { retryAfterMillis: -5 }, nan: { retryAfterMillis: NaN }, ever: { retryAfterMillis: Infinity },
    none: { retryAfterMillis: null, code: "X", message: "no", final: true }, date: { retryAfterMillis: "Wed, 21 Oct", message: "no" } };
  if (way in odd) throw odd[way];
  return { number: 1n, infinite: [1 / 0], code: () => 1, symbol: [Symbol("a")], map: new Map([[1, 2]]), set: { a: new Set([1]) }, never: { a: new Date(NaN) }, hole: [1, undefined],
    method: { a() {} }, promise: { a: Promise.resolve(1) }, half: ["a\ud800"], key: { "\udc00a": 1 }, absent: { a: undefined }, when: new Date(0), whole: "\ud83d\ude00",
    page: { page: new Response("a") }, headers: new Headers({ a: "b" }), form: new FormData(), blob: new Blob(["a"]), query: new URLSearchParams("a=b"), view: new DataView(new ArrayBuffer(1)),
    shared: new SharedArrayBuffer(1), weak: new WeakRef({}), made: (function* () { yield 1; })(), items: [1].values(), bytes: new Uint8Array([1]), broken: new DOMException("a"),
    boxed: [new Number(NaN)], letters: new String("a\ud800"), big: Object(1n), number1: new Number(1), text1: new String("a"), yes: Object(true), url: new URL("http://a.example/"),
    mine: new (class Mine { a = 1; })(), bare: Object.assign(Object.create(null), { a: 1 }), buffer: Buffer.from("a") }[way] ?? way; // most of which JSON does not have
}`

// No job is delivered twice.
//
// mutations: a handler that is called outside of the promise leaves all jobs of worker.mjs without
// an answer; failed without its try "mute", and short.mjs without its second catch; a wait without
// Math.ceil, Math.max, "|| 0" or Math.min makes no result, or another one, of "fraction",
// "negative", "nan" or "ever"; failed that takes more than a number for a wait has it for
// "none" and "date"; final without Boolean leaves "final" without an answer. Without text of
// json.mjs both have another output, or none, for those of noForm.
func TestTheNodeWorkersAnswerWhateverAHandlerThrows(t *testing.T) {
	dir := install(t)
	failed := func(code, message string, final bool) protocol.Result {
		return protocol.Result{Status: protocol.StatusFailed, Error: &protocol.ResultError{Code: code, Message: message}, Final: final}
	}
	retry := func(millis int64) protocol.Result {
		return protocol.Result{Status: protocol.StatusRetry, RetryAfterMillis: millis}
	}
	both := map[string]protocol.Result{
		"fine":    {Status: protocol.StatusSucceeded, Output: []byte(`"fine"`)},
		"error":   failed("Error", "no", false),
		"text":    failed("Error", "no", false),
		"nothing": failed("Error", "undefined", false),
		"mute":    failed("Error", "what the handler threw cannot be read", false),
	}
	whole := map[string]protocol.Result{
		"none": failed("X", "no", true), "date": failed("Error", "no", false),
		"final": failed("7", "no", true), "fraction": retry(1500), "negative": retry(0), "nan": retry(0), "ever": retry(1<<53 - 1),
	}
	noForm := map[string]string{
		"code": "a function", "symbol": "a symbol", "map": "what is of the type Map", "set": "what is of the type Set", "never": "a Date that is none", "hole": "undefined in a list",
		"method": "a function", "promise": "what is of the type Promise", "half": "half of a surrogate pair", "key": "half of a surrogate pair",
		"boxed": "NaN", "letters": "half of a surrogate pair",
	}
	for way, kind := range map[string]string{
		"page": "Response", "headers": "Headers", "form": "FormData", "blob": "Blob", "query": "URLSearchParams", "view": "DataView", "shared": "SharedArrayBuffer",
		"weak": "WeakRef", "made": "Generator", "items": "Array Iterator", "bytes": "Uint8Array", "broken": "DOMException", "big": "BigInt",
	} {
		noForm[way] = "what is of the type " + kind
	}
	for way, output := range map[string]string{
		"absent": `{}`, "when": `"1970-01-01T00:00:00.000Z"`, "whole": "\"\U0001F600\"", "number1": `1`, "text1": `"a"`, "yes": `true`, "url": `"http://a.example/"`,
		"mine": `{"a":1}`, "bare": `{"a":1}`, "buffer": `{"type":"Buffer","data":[97]}`,
	} {
		both[way] = protocol.Result{Status: protocol.StatusSucceeded, Output: []byte(output)}
	}
	for way, what := range noForm {
		both[way] = failed("InvalidOutput", what+" has no JSON form", true)
	}
	both["number"] = failed("InvalidOutput", "Do not know how to serialize a BigInt", true)
	both["infinite"] = failed("InvalidOutput", "Infinity has no JSON form", true)
	maps.Copy(whole, both)
	for file, want := range map[string]map[string]protocol.Result{"worker.mjs": whole, "short.mjs": both} {
		t.Run(file, func(t *testing.T) {
			server := natstest.Start(t)
			js := streams(t, server.URL())
			for way := range want {
				dispatch(t, js, odd(way), `{"way":"`+way+`"}`)
			}
			run(t, dir, withHandler(t, dir, file, oddHandler), server.URL())
			got := map[string]protocol.Result{}
			for way := range want {
				got[way] = answer(t, js, odd(way))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
		})
	}
}

// stray is a handler that awaits not all of its promises. Its output is what the worker logs
// meanwhile.
const stray = `(() => {
  const said = [];
  console.error = (text) => said.push(text);
  return async () => {
    Promise.reject(new Error("a stray one"));
    Promise.reject(Object.create(null));
    Promise.reject(Object.defineProperty(new Error(), "stack", { get() { throw new Error("no"); } }));
    await new Promise((done) => setTimeout(done, 10));
    return said;
  };
})()`

// Node ends a process in which a promise fails that nobody awaits, and so the jobs of others in it.
//
// mutations of nats.mjs: no handler of such promises leaves the job without an answer; so does one
// whose own look at the reason throws.
func TestTheNodeWorkersOutliveAPromiseThatNobodyAwaits(t *testing.T) {
	dir := install(t)
	for _, file := range []string{"worker.mjs", "short.mjs"} {
		t.Run(file, func(t *testing.T) {
			server := natstest.Start(t)
			js := streams(t, server.URL())
			dispatch(t, js, odd("stray"), `{}`)
			run(t, dir, withHandler(t, dir, file, stray), server.URL())
			got := answer(t, js, odd("stray"))
			for _, want := range []string{"a stray one", "is no Error", "cannot be read"} {
				if !strings.Contains(string(got.Output), want) {
					t.Errorf("nothing is said of %s: %+v, %s", want, got, got.Output)
				}
			}
		})
	}
}

// What cannot be read is no job: Go and Python say so, too.
//
// mutations: read without its look at the deadline acknowledges the first after a moment; without
// that at the fences it answers the second.
func TestTheNodeWorkerTerminatesWhatItCannotRead(t *testing.T) {
	dir := install(t)
	server := natstest.Start(t)
	js := streams(t, server.URL())
	dispatch(t, js, odd("when"), `{}`, protocol.HeaderDeadline, "tomorrow")
	dispatch(t, js, odd("many"), `{}`, protocol.HeaderLockFence, "gpu/eu=many")
	dispatch(t, js, odd("good"), `{}`)
	words := overhear(t, server.URL(), "$JS.ACK.>")
	run(t, dir, "worker.mjs", server.URL())
	answer(t, js, odd("good"))
	for terms := 0; terms < 2; {
		if strings.HasPrefix(next(t, words), "+TERM") {
			terms++
		}
	}
	for _, way := range []string{"when", "many"} {
		s, err := js.Stream(t.Context(), names().ResultsStream())
		if err != nil {
			t.Fatal(err)
		}
		if m, err := s.GetLastMsgForSubject(t.Context(), names().Result(odd(way))); err == nil {
			t.Errorf("%s was answered: %s", way, m.Data)
		}
	}
}

// A whole number beyond 2^53 is no number of JavaScript, unless it happens to be one. A Node of
// before 21 keeps what it was written as behind a flag only, and one without the flag cannot tell.
//
// mutations: call that reads the input by m.json() gives another number back; whole without its
// throw likewise, where Node cannot keep it; whole without its pattern gives back what Node has for
// a number with an exponent, too; whole that looks at no source fails the sum, and without its
// bound the exponent is refused.
func TestTheNodeWorkerChangesNoWholeNumber(t *testing.T) {
	dir := install(t)
	const input, exponent = `{"a":[9007199254740993,-9223372036854775808,18446744073709551615,7,0.5]}`, `{"a":1e300}`
	const largest = `{"a":18446744073709551615}`
	var keeps []string
	if has, err := exec.CommandContext(t.Context(), "node", "-p", "typeof JSON.rawJSON").Output(); err != nil || strings.HasPrefix(string(has), "undefined") {
		keeps = []string{"--harmony-json-parse-with-source"}
	}
	for name, start := range map[string]func(t *testing.T, url string){
		"kept": func(t *testing.T, url string) { runBy(t, dir, keeps, "worker.mjs", url) },
		"refused": func(t *testing.T, url string) {
			run(t, dir, replaced(t, dir, "worker.mjs", "function whole(_, n, context) {", "function whole(_, n) {\n  const context = undefined;"), url)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := natstest.Start(t)
			js := streams(t, server.URL())
			dispatch(t, js, odd("whole"), input)
			dispatch(t, js, odd("largest"), largest)
			dispatch(t, js, odd("exponent"), exponent)
			start(t, server.URL())
			for job, input := range map[string]string{"whole": input, "largest": largest} {
				switch got := answer(t, js, odd(job)); {
				case name == "kept" && string(got.Output) != `{"youSaid":`+input+`}`:
					t.Errorf("%s: got %+v, %s", job, got, got.Output)
				case name == "refused" && (got.Error == nil || got.Error.Code != "InvalidInput" || !got.Final):
					t.Errorf("%s: got %+v, %s", job, got, got.Output)
				}
			}
			if got := answer(t, js, odd("exponent")); string(got.Output) != `{"youSaid":{"a":1e+300}}` {
				t.Errorf("got %+v, %s", got, got.Output)
			}
		})
	}
	t.Run("added to", func(t *testing.T) {
		server := natstest.Start(t)
		js := streams(t, server.URL())
		dispatch(t, js, odd("sum"), `{"a":18014398509481984}`) // 2^54, as encoding/json writes a float64
		runBy(t, dir, keeps, withHandler(t, dir, "worker.mjs", "({ a }) => a + 0"), server.URL())
		if got := answer(t, js, odd("sum")); string(got.Output) != "18014398509481984" {
			t.Errorf("got %+v, %v", got, got.Error)
		}
	})
}

// A timer of Node has an end, after 24.8 days. It is made anew each minute, which is a moment here.
//
// mutation: take that stops the job at the end of its first timer leaves it without an answer.
func TestTheNodeWorkerKeepsAJobForLongerThanATimerCanBe(t *testing.T) {
	dir := install(t)
	server := natstest.Start(t)
	js := streams(t, server.URL())
	dispatch(t, js, odd("long"), `{}`, protocol.HeaderDeadline, time.Now().Add(time.Hour).Format(time.RFC3339))
	file := withHandler(t, dir, "worker.mjs", `async () => { await sleep(200); return "done"; }`)
	file = replaced(t, dir, file, "refresh = 60_000", "refresh = 10")
	run(t, dir, file, server.URL())
	if got := answer(t, js, odd("long")); string(got.Output) != `"done"` {
		t.Errorf("got %+v", got)
	}
}

// The clock is set forward while a handler is at work, or the machine slept: a timer that was made
// before does not fire for an hour. The minute after which it is looked again is a moment here.
//
// mutation: watch with one timer for all that is left makes this time out.
func TestTheNodeWorkerEndsAJobWhenTheClockIsSetBeyondItsDeadline(t *testing.T) {
	dir := install(t)
	server := natstest.Start(t)
	js := streams(t, server.URL())
	dispatch(t, js, odd("long"), `{}`, protocol.HeaderDeadline, time.Now().Add(time.Hour).Format(time.RFC3339))
	const handler = `(input, signal) => { const was = Date.now; Date.now = () => was() + 7_200_000; return new Promise((done) => signal.addEventListener("abort", () => done("late"))); }`
	file := withHandler(t, dir, "worker.mjs", handler)
	run(t, dir, replaced(t, dir, file, "refresh = 60_000", "refresh = 50"), server.URL())
	eventually(t, "the job is acknowledged", func() bool {
		s, err := js.Stream(t.Context(), names().JobsStream())
		return err == nil && s.CachedInfo().State.Msgs == 0
	})
	s, err := js.Stream(t.Context(), names().ResultsStream())
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d results, want Started", n)
	}
}

// An AckWait that is lowered counts at the server before a worker has read it. The minute after
// which a job is pinged at the latest is a moment here.
//
// mutation of both: a third of AckWait alone makes this fail.
func TestTheNodeWorkersPingHoweverLongAckWaitIs(t *testing.T) {
	dir := install(t)
	for file, minute := range map[string]string{"worker.mjs": "refresh = 60_000", "short.mjs": "ackWait / 3, 60_000"} {
		t.Run(file, func(t *testing.T) {
			server := natstest.Start(t)
			js := streams(t, server.URL())
			c, err := js.Consumer(t.Context(), names().JobsStream(), protocol.Durable(topic))
			if err != nil {
				t.Fatal(err)
			}
			config := c.CachedInfo().Config
			config.AckWait = time.Hour
			if _, err := js.UpdateConsumer(t.Context(), names().JobsStream(), config); err != nil {
				t.Fatal(err)
			}
			said := overhear(t, server.URL(), "$JS.ACK.>")
			dispatch(t, js, odd("long"), `{}`)
			file := withHandler(t, dir, file, `() => new Promise((done) => setTimeout(done, 1_000, "done"))`)
			run(t, dir, replaced(t, dir, file, minute, strings.Replace(minute, "60_000", "50", 1)), server.URL())
			if word := next(t, said); word != "+WPI" {
				t.Errorf("the worker said %s before it pinged", word)
			}
		})
	}
}

// mutation: work without its last try gives the job back, and this times out.
func TestAValueThatTheNodeWorkerHasAfterItsGraceIsPublished(t *testing.T) {
	dir := install(t)
	server := natstest.Start(t)
	js := streams(t, server.URL())
	dispatch(t, js, odd("late"), `{}`)
	const handler = `(input, signal) => new Promise((done) => signal.aborted ? done("saved") : signal.addEventListener("abort", () => done("saved")))`
	file := withHandler(t, dir, "worker.mjs", handler)
	stop := run(t, dir, replaced(t, dir, file, "grace = 1_000 * Number(seconds)", "grace = 1"), server.URL())
	result(t, js, 1) // it began
	stop()
	if got := answer(t, js, odd("late")); string(got.Output) != `"saved"` {
		t.Errorf("got %+v", got)
	}
}

// overhear gives what is said on a subject.
func overhear(t *testing.T, url, subject string) <-chan *nats.Msg {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	all := make(chan *nats.Msg, 1000)
	if _, err := nc.ChanSubscribe(subject, all); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return all
}

func next(t *testing.T, all <-chan *nats.Msg) string {
	t.Helper()
	select {
	case m := <-all:
		return string(m.Data)
	case <-time.After(patience):
		t.Fatal("nothing is said")
		return ""
	}
}

// The stream refuses a large result for good: a job that were done again would be
// until its time-out.
// mutation: a look at the size that is not there, or counts characters, makes this fail.
func TestTheShortWorkerAnswersWhatIsTooLarge(t *testing.T) {
	dir := install(t)
	server := natstest.Start(t)
	js := streams(t, server.URL())
	for _, way := range []string{"fits", "large", "umlauts"} {
		dispatch(t, js, odd(way), `{"way":"`+way+`"}`)
	}
	const handler = `({ way }) => ({ fits: "x".repeat(65534), large: "x".repeat(65535), umlauts: "\u00e4".repeat(40000) })[way]`
	run(t, dir, withHandler(t, dir, "short.mjs", handler), server.URL())
	if got := answer(t, js, odd("fits")); got.Status != protocol.StatusSucceeded {
		t.Errorf("64 KiB: %+v", got)
	}
	for _, way := range []string{"large", "umlauts"} {
		if got := answer(t, js, odd(way)); got.Status != protocol.StatusFailed || !got.Final || got.Error == nil || got.Error.Code != "TooLarge" {
			t.Errorf("%s: %+v", way, got)
		}
	}
}

func odd(way string) protocol.JobID {
	return protocol.JobID{RunUID: "8b0e", Step: way, Item: protocol.NoItem, Attempt: 1}
}

// withHandler writes a worker with another handler than the echo, and gives its file.
func withHandler(t *testing.T, dir, file, handler string) string {
	t.Helper()
	return replaced(t, dir, file, "async (input) => ({ youSaid: input })", handler)
}

// replaced writes a worker in which something else is in the place of old, and gives its file.
func replaced(t *testing.T, dir, file, old, other string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil || bytes.Count(b, []byte(old)) != 1 {
		t.Fatalf("%s has no %s, or several: %v", file, old, err)
	}
	name := "odd-" + file
	if err := os.WriteFile(filepath.Join(dir, name), bytes.Replace(b, []byte(old), []byte(other), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// answer waits for the result of a job that is not Started.
func answer(t *testing.T, js jetstream.JetStream, id protocol.JobID) (r protocol.Result) {
	t.Helper()
	eventually(t, "the job "+id.String()+" is answered", func() bool {
		s, err := js.Stream(t.Context(), names().ResultsStream())
		if err != nil {
			return false
		}
		m, err := s.GetLastMsgForSubject(t.Context(), names().Result(id))
		if err != nil {
			return false
		}
		// The operator takes null for a member that is absent; the schema does not.
		if r, err = protocol.DecodeResult(m.Data); err != nil || bytes.Contains(m.Data, []byte("null")) {
			t.Fatalf("%s: %v: %s", id, err, m.Data)
		}
		return r.Status != protocol.StatusStarted
	})
	return r
}

// ages is what three pings of 5 s and four tries to connect take, many times, but less than pings
// of two minutes.
const ages = 150 * time.Second

// moody is a server that takes the first login and the fifth; again is closed at the latter.
type moody struct {
	listener net.Listener
	logins   atomic.Int32
	again    chan struct{}
	all      sync.WaitGroup
}

func newMoody(t *testing.T) *moody {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &moody{listener: listener, again: make(chan struct{})}
	t.Cleanup(func() {
		_ = listener.Close()
		s.all.Wait()
	})
	s.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.all.Go(func() { s.serve(conn) })
		}
	})
	return s
}

// serve speaks to one client until that ends the connection, or is refused.
func (s *moody) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	login, pings := s.logins.Add(1), 0
	say := func(line string) { _, _ = conn.Write([]byte(line + "\r\n")) } // who is gone hears nothing
	say(`INFO {"server_id":"a","version":"2.12.0","proto":1,"max_payload":1048576,"headers":true,"jetstream":true,"auth_required":true}`)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		verb, _, _ := strings.Cut(lines.Text(), " ")
		switch {
		case verb == "CONNECT" && 1 < login && login < 5:
			say("-ERR 'Authorization Violation'")
			return
		case verb == "CONNECT" && login == 5:
			close(s.again)
		case verb == "PING":
			if pings++; pings == 1 || login != 1 { // the first one is a part of the login
				say("PONG")
			}
		}
	}
}

var aJob = protocol.JobID{RunUID: "8b0e", Step: "fetch", Item: protocol.NoItem, Attempt: 1}

// speaks gives one job to a worker, which is to publish these results and to acknowledge the job.
func speaks(t *testing.T, dir, file string, want map[string]protocol.Result, js jetstream.JetStream, url string, env ...string) {
	t.Helper()
	dispatch(t, js, aJob, `{"a":[1,"x"]}`)
	run(t, dir, file, url, env...)

	got := map[string]protocol.Result{}
	for i := range want {
		m := result(t, js, uint64(len(got)+1))
		r, err := protocol.DecodeResult(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		got[m.Header.Get(protocol.HeaderMsgID)] = r
		if m.Header.Get(protocol.HeaderToken) != "tok" {
			t.Errorf("headers of %s: %v", i, m.Header)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	eventually(t, "the job is acknowledged", func() bool {
		s, err := js.Stream(t.Context(), names().JobsStream())
		return err == nil && s.CachedInfo().State.Msgs == 0
	})
}

func names() protocol.Names { return protocol.Names{Prefix: protocol.DefaultPrefix} }

// installed is the directory that install made; npm takes seconds, so all tests have the same.
var installed string

func TestMain(m *testing.M) {
	code := m.Run()
	if installed != "" {
		_ = os.RemoveAll(installed)
	}
	os.Exit(code)
}

// install copies the worker to a directory and installs what it needs there, once, or skips
// the test.
func install(t *testing.T) string {
	t.Helper()
	if installed != "" {
		return installed
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			skip(t, "%s is not installed", program)
		}
	}
	dir, err := os.MkdirTemp("", "worker-node")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"worker.mjs", "short.mjs", "json.mjs", "nats.mjs", "package.json", "package-lock.json", ".npmrc"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--prefer-offline", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		skip(t, "npm ci does not work here (%v), no network? %s", err, out)
	}
	installed = dir
	return dir
}

// run starts the worker and ends it with the test, or when stop is called.
func run(t *testing.T, dir, file, url string, env ...string) (stop func()) {
	t.Helper()
	return runBy(t, dir, nil, file, url, env...)
}

// runBy is run with arguments for Node itself.
func runBy(t *testing.T, dir string, args []string, file, url string, env ...string) (stop func()) {
	t.Helper()
	var out bytes.Buffer
	node := exec.Command("node", append(slices.Clone(args), file, topic)...)
	node.Dir, node.Env = dir, append(append(os.Environ(), "NATS_URL="+url), env...)
	node.Stdout, node.Stderr = &out, &out
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		kill := time.AfterFunc(patience, func() { _ = node.Process.Kill() })
		defer kill.Stop()
		if err := node.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := node.Wait(); err != nil { // a worker that stops by itself ends with 0
			t.Errorf("node: %v", err)
		}
		if t.Failed() {
			t.Logf("output of node: %s", out.String())
		}
	})
	t.Cleanup(stop)
	return stop
}

// streams makes streams and consumer as the protocol's page says.
func streams(t *testing.T, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []jetstream.StreamConfig{
		{Name: names().JobsStream(), Subjects: []string{"syncopate.jobs.>"}, Retention: jetstream.WorkQueuePolicy},
		{Name: names().ResultsStream(), Subjects: []string{"syncopate.results.>"}},
	} {
		if _, err := js.CreateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	_, err = js.CreateConsumer(t.Context(), names().JobsStream(), jetstream.ConsumerConfig{
		Durable: protocol.Durable(topic), FilterSubject: names().TopicJobs(topic), AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// dispatch publishes a job; headers are names and values.
func dispatch(t *testing.T, js jetstream.JetStream, id protocol.JobID, input string, headers ...string) {
	t.Helper()
	m := nats.NewMsg(names().Job(topic, id))
	m.Data = []byte(input)
	m.Header.Set(protocol.HeaderMsgID, id.String())
	m.Header.Set(protocol.HeaderReply, names().Result(id))
	m.Header.Set(protocol.HeaderToken, "tok")
	for pair := range slices.Chunk(headers, 2) {
		m.Header.Set(pair[0], pair[1])
	}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func result(t *testing.T, js jetstream.JetStream, seq uint64) (m *jetstream.RawStreamMsg) {
	t.Helper()
	eventually(t, "a result comes", func() bool {
		s, err := js.Stream(t.Context(), names().ResultsStream())
		if err != nil {
			return false
		}
		m, err = s.GetMsg(t.Context(), seq)
		return err == nil
	})
	return m
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// skip leaves the test out, unless workers are required.
func skip(t *testing.T, why string, values ...any) {
	t.Helper()
	if os.Getenv("REQUIRE_WORKERS") == "1" {
		t.Fatalf(why, values...)
	}
	t.Skipf(why, values...)
}
