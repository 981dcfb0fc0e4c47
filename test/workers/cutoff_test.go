// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"path/filepath"
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
