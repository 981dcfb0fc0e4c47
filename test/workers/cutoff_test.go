// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// The Python worker reads the socket itself, so the end of a connection, and what is no JSON or no
// UTF-8, is its own affair. Nothing of that may spoil a job, or end one of its threads.
//
// mutations, all of worker.py: _read without its look at the length fails "body" and "PubAck"; one
// that reads a line without its end, in a _run that knows errors of connections only, "line"; slot
// that knows ConnectionError only fails "nonsense"; parse_headers that is strict, "headers".
func TestThePythonWorkerOutlivesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	value := []byte(`"half and half"`)
	for name, tc := range map[string]struct {
		spoil   func(line []byte) (send []byte, cut bool)
		ackWait time.Duration // so long that no second delivery helps, where none is needed
		note    string        // a header of the job
	}{
		"body":     {cutAfter("half"), childAckWait, ""},
		"PubAck":   {cutAfter(`{"stream":"SYNCOPATE_RESULTS`), time.Hour, ""},
		"line":     {cutAfter("MSG "), childAckWait, ""},
		"nonsense": {garble(`{"type":"io.nats.jetstream.api.v1.consumer_info_response"`, DefaultConcurrency), time.Hour, ""},
		"headers":  {func(line []byte) ([]byte, bool) { return line, false }, time.Hour, "M\xfcller"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t).URL()
			o := operateAt(t, Config{URL: url, AckWait: tc.ackWait})
			id := newJob("cut")
			if _, err := o.forge(t.Context(), id, input{Do: "succeed", Value: value}.bytes(), func(m *nats.Msg) { m.Header.Set("X-Note", tc.note) }); err != nil {
				t.Fatal(err)
			}
			runs(t, filepath.Join(examples, "worker-python"), []string{"NATS_URL=" + spoiled(t, url, tc.spoil)}, "python3", "-B", "worker.py", DefaultTopic)
			var got []protocol.Result
			if err := o.await(t.Context(), "the job is answered and gone", func() (bool, error) {
				var err error
				if got, err = o.stored(t.Context(), id); err != nil || len(got) == 0 {
					return false, err
				}
				info, err := o.info(t.Context())
				return err == nil && info.NumAckPending == 0 && info.NumPending == 0, err
			}); err != nil {
				t.Fatalf("%v; answers: %+v", err, got)
			}
			if diff := cmp.Diff([]protocol.Result{{Status: protocol.StatusSucceeded, Output: value}}, got); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
		})
	}
}

// python runs a program that imports the Python worker.
func python(t *testing.T, url, program string, args ...string) Process {
	t.Helper()
	return runs(t, filepath.Join(examples, "worker-python"), []string{"NATS_URL=" + url}, append([]string{"python3", "-B", "-c", program}, args...)...)
}

// oddHandler works in one slot, and raises what there is.
const oddHandler = `
import os, sys, threading, worker

class Mute(Exception):
    def __str__(self):
        raise ValueError("no text")

def handle(given, stopped, fences, traceparent):
    if given["do"] == "exit":
        sys.exit(2)
    if given["do"] == "mute":
        raise Mute
    if given["do"] == "final":
        raise worker.Failed("Teapot", "no coffee", final=1)
    if given["do"] == "file":
        return {"names": ["M\udcfcller"]}  # as os.listdir has what is not UTF-8
    if given["do"] == "missing":
        raise OSError("no M\udcfcller")
    if given["do"] == "retry":
        raise worker.Retry(float(given["value"]))
    return float(given["value"]) if given["do"] == "number" else {1} if given["do"] == "set" else given["value"]

worker.CONCURRENCY = 1
worker.Worker(worker.NATS(os.environ["NATS_URL"]), "` + DefaultTopic + `", handle).run(threading.Event().wait)
`

// One slot does all of these jobs, one after the other, and no job is delivered twice.
//
// mutations, all of worker.py: call that catches Exception leaves "exit" without an answer, and all
// jobs after it; str in the place of text_of "mute"; a Retry without max, ceil or min makes no
// result, or another one, of "negative" and "NaN", of "fraction", or of "for ever"; Failed without
// bool makes none of "final"; call that takes what encoded raises for the handler's, another one of
// "not a number" and "no form"; one that encodes outputs as it does messages has another output for
// "not UTF-8", and the other way round "a message that is not UTF-8" has no answer.
func TestThePythonWorkerAnswersWhateverAHandlerRaises(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	retry := func(millis int64) protocol.Result {
		return protocol.Result{Status: protocol.StatusRetry, RetryAfterMillis: millis}
	}
	o := operateAt(t, Config{URL: start(t).URL(), AckWait: time.Hour})
	jobs := []struct {
		name, input string
		want        protocol.Result
		id          protocol.JobID
	}{
		{name: "exit", input: `{"do":"exit"}`, want: failed("Error", "SystemExit(2)", false)},
		{name: "mute", input: `{"do":"mute"}`, want: failed("Error", "Mute, which does not say more", false)},
		{name: "final", input: `{"do":"final"}`, want: failed("Teapot", "no coffee", true)},
		{name: "fraction", input: `{"do":"retry","value":"1499.2"}`, want: retry(1500)},
		{name: "negative", input: `{"do":"retry","value":"-5"}`, want: retry(0)},
		{name: "NaN", input: `{"do":"retry","value":"nan"}`, want: retry(0)},
		{name: "for ever", input: `{"do":"retry","value":"inf"}`, want: retry(1<<53 - 1)},
		{name: "not a number", input: `{"do":"number","value":"nan"}`, want: failed("InvalidOutput", "Out of range float values are not JSON compliant", true)},
		{name: "no form", input: `{"do":"set"}`, want: failed("InvalidOutput", "Object of type set is not JSON serializable", true)},
		{name: "not UTF-8", input: `{"do":"file"}`, want: failed("InvalidOutput", `'utf-8' codec can't encode character '\udcfc' in position 13: surrogates not allowed`, true)},
		{name: "a message that is not UTF-8", input: `{"do":"missing"}`, want: failed("Error", "no M?ller", false)},
		{name: "good", input: `{"do":"succeed","value":1}`, want: protocol.Result{Status: protocol.StatusSucceeded, Output: []byte("1")}},
	}
	for i := range jobs {
		jobs[i].id = newJob("odd")
		if _, err := o.forge(t.Context(), jobs[i].id, []byte(jobs[i].input), unchanged); err != nil {
			t.Fatal(err)
		}
	}
	python(t, o.config.URL, oddHandler)
	for _, j := range jobs {
		var got []protocol.Result
		if err := o.await(t.Context(), j.name+" is answered", func() (done bool, err error) {
			got, err = o.stored(t.Context(), j.id)
			return len(got) > 0, err
		}); err != nil {
			t.Fatal(err)
		}
		if e := got[0].Error; e != nil {
			e.Message = strings.TrimSuffix(e.Message, ": nan") // which newer versions of Python add
		}
		if diff := cmp.Diff([]protocol.Result{j.want}, got); diff != "" {
			t.Errorf("answers of %s (-want +got):\n%s", j.name, diff)
		}
	}
}

// ages is what three pings of 5 s and a new connection take, many times.
const ages = 110 * time.Second

// busyHandler has a slot work until nobody wants its result, and says so.
const busyHandler = `
import os, threading, worker

def handle(given, stopped, fences, traceparent):
    print("at work", flush=True)
    stopped.wait()

worker.Worker(worker.NATS(os.environ["NATS_URL"]), "` + DefaultTopic + `", handle).run(threading.Event().wait)
`

// The connection goes silent, without an end, while all slots are at work: none of them asks the
// server for an answer.
//
// mutation: a NATS without the thread of _ping makes this time out.
func TestThePythonWorkerNoticesSilenceWhileItIsBusy(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	url := start(t).URL()
	o := operateAt(t, Config{URL: url, AckWait: time.Hour})
	for range DefaultConcurrency {
		if _, err := o.forge(t.Context(), newJob("busy"), input{Do: "sleep"}.bytes(), unchanged); err != nil {
			t.Fatal(err)
		}
	}
	busy, again := make(chan struct{}), make(chan struct{})
	p := python(t, spoiled(t, url, hush(busy, again)), busyHandler)
	if err := o.await(t.Context(), "all slots are at work", func() (bool, error) {
		return strings.Count(p.Output(), "at work") == DefaultConcurrency, nil
	}); err != nil {
		t.Fatal(err)
	}
	close(busy)
	select {
	case <-again:
	case <-time.After(ages):
		t.Error("the worker does not connect again")
	}
}

// hush swallows all lines from busy on, until the server greets a second connection, and closes
// again then.
func hush(busy <-chan struct{}, again chan<- struct{}) func(line []byte) (send []byte, cut bool) {
	heard := false
	return func(line []byte) ([]byte, bool) {
		select {
		case <-busy:
		default:
			return line, false
		}
		if !heard && bytes.HasPrefix(line, []byte("INFO ")) {
			heard = true
			close(again)
		}
		if heard {
			return line, false
		}
		return nil, false
	}
}

// sender publishes for ever.
const sender = `
import os, sys, threading, worker

worker.PING_EVERY, worker.SEND_TIMEOUT = int(sys.argv[1]), int(sys.argv[2])
nats = worker.NATS(os.environ["NATS_URL"])
while True:
    try:
        nats.publish("x", bytes(1 << 20))
    except ConnectionError:
        threading.Event().wait(0.02)  # until it is connected
`

// A server takes nothing in, so that a send of the worker blocks.
//
// mutations, all of worker.py: without SO_SNDTIMEO "by the time-out" times out; a _ping that waits
// for the lock however long makes "by the pings" do so.
func TestThePythonWorkerLeavesAServerThatTakesNothing(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	const never = "3600"
	for name, seconds := range map[string][]string{
		"by the time-out": {never, "1"},
		"by the pings":    {"1", never},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, again := deaf(t)
			python(t, url, sender, seconds...)
			select {
			case <-again:
			case <-time.After(ages):
				t.Error("the worker does not connect again")
			}
		})
	}
}

// deaf is the address of a server that greets and reads nothing; again is closed at the second
// connection.
func deaf(t *testing.T) (url string, again <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan struct{})
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	all.Go(func() {
		var clients []net.Conn // open until the end
		for {
			client, err := listener.Accept()
			if err != nil {
				break
			}
			_, _ = client.Write([]byte("INFO {\"max_payload\":1048576}\r\n")) // who is gone hears nothing
			if clients = append(clients, client); len(clients) == 2 {
				close(second)
			}
		}
		for _, client := range clients {
			_ = client.Close()
		}
	})
	return "nats://" + listener.Addr().String(), second
}

// cutAfter ends the connection behind these words, the first time that they come.
func cutAfter(words string) func(line []byte) (send []byte, cut bool) {
	done := false
	return func(line []byte) ([]byte, bool) {
		at := bytes.Index(line, []byte(words))
		if done || at < 0 {
			return line, false
		}
		done = true
		return line[:at+len(words)], true
	}
}

// garble makes no JSON of the first n lines that begin so.
func garble(begin string, n int) func(line []byte) (send []byte, cut bool) {
	return func(line []byte) ([]byte, bool) {
		if n > 0 && bytes.HasPrefix(line, []byte(begin)) {
			n--
			line[0] = 'x'
		}
		return line, false
	}
}

// spoiled is the address of a proxy to a NATS server that spoils the lines that the server says; a
// body of JSON is one. Each connection has its own goroutines, which end with it.
func spoiled(t *testing.T, url string, spoil func(line []byte) (send []byte, cut bool)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var one sync.Mutex // of spoil
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", url[len("nats://"):])
			if err != nil {
				_ = client.Close()
				continue
			}
			all.Go(func() {
				defer func() { _ = server.Close() }()
				_, _ = io.Copy(server, client)
			})
			all.Go(func() {
				defer func() { _ = client.Close() }()
				for r := bufio.NewReader(server); ; {
					line, err := r.ReadBytes('\n')
					one.Lock()
					line, cut := spoil(line)
					one.Unlock()
					if _, failed := client.Write(line); err != nil || failed != nil || cut {
						return
					}
				}
			})
		}
	})
	return "nats://" + listener.Addr().String()
}

// runs starts a worker until the test ends.
func runs(t *testing.T, dir string, env []string, args ...string) Process {
	t.Helper()
	p, err := Command{Dir: dir, Args: args, Env: env}.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill() // it is gone, if all went well
		if t.Failed() {
			t.Logf("output of the worker:\n%s", p.Output())
		}
	})
	return p
}
