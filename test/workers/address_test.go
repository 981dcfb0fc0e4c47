// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// program is a sample worker that is no Go.
type program struct {
	dir  string
	args []string
}

// programs are the sample workers that are no Go, by their files.
func programs(t *testing.T) map[string]program {
	t.Helper()
	needs(t, "python3")
	node := installNode(t)
	return map[string]program{
		"worker.py":  {filepath.Join(examples, "worker-python"), []string{"python3", "-B", "worker.py", DefaultTopic}},
		"worker.mjs": {node, []string{"node", "worker.mjs", DefaultTopic}},
		"short.mjs":  {node, []string{"node", "short.mjs", DefaultTopic}},
	}
}

// childOf is the program that a process is.
func childOf(t *testing.T, p Process) *child {
	t.Helper()
	one, ok := p.(*child)
	if !ok {
		t.Fatalf("%T is no program", p)
	}
	return one
}

// exitCode waits until a program has ended, and gives its exit code.
func exitCode(t *testing.T, p Process) int {
	t.Helper()
	one := childOf(t, p)
	select {
	case <-one.done:
	case <-time.After(ages):
		t.Fatal("it does not end")
	}
	if err := (*exec.ExitError)(nil); errors.As(one.err, &err) {
		return err.ExitCode()
	}
	return 0
}

// An address that cannot be read is the fault of who wrote it: to try again helps nobody.
//
// mutations: an error of the parser that is logged, or that nobody catches, quotes the password; a
// path, a scheme, an empty host, a second host or a second login that nobody looks at lets the
// worker try for ever.
func TestTheSampleWorkersQuoteNoAddressThatTheyCannotUse(t *testing.T) {
	t.Parallel()
	for name, p := range programs(t) {
		urls := []string{
			"nats://worker:s3cr/et@127.0.0.1:1", "nats://worker:s3cr?et@127.0.0.1:1", "nats://worker:s3cr#et@127.0.0.1:1",
			"nats://worker:12/s3cr@127.0.0.1:1", "nats://worker:s3cr@127.0.0.1:x", "nats://worker:s3cr@", "ws://worker:s3cr@127.0.0.1:1",
			"nats://worker:s3cr@127.0.0.1:1,nats://other:s3cr@127.0.0.1:2", ",",
		}
		if name == "worker.py" {
			urls = append(urls, "tls://worker:s3cr@127.0.0.1:1", "nats://worker:s3cr@127.0.0.1:1,nats://127.0.0.1:2",
				"nats://a,b", "nats://worker:s3cr@a,b:4222", "a, b", "nats://worker:s3cr@a:4222,worker:s3cr@b:4222")
		}
		for _, url := range urls {
			t.Run(name+" "+url, func(t *testing.T) {
				t.Parallel()
				p := runs(t, p.dir, []string{"NATS_URL=" + url}, p.args...)
				if code := exitCode(t, p); code != 2 {
					t.Errorf("exit code %d, want 2", code)
				}
				if out := p.Output(); strings.Contains(out, "s3cr") || !strings.Contains(out, "%XX") {
					t.Errorf("it says %s", out)
				}
			})
		}
	}
}

// greeting is a server that says its INFO, and ends each connection after one line. lines are
// those; an empty one is a connection that the client ended.
func greeting(t *testing.T, info string) (address string, lines <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	var all sync.WaitGroup
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
			_, _ = client.Write([]byte("INFO " + info + "\r\n")) // who is gone hears nothing
			line, _ := bufio.NewReader(client).ReadString('\n')
			_ = client.Close()
			select {
			case said <- line:
			default: // nobody asks for a second one
			}
		}
	})
	return listener.Addr().String(), said
}

func said(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(ages):
		t.Fatal("the worker does not connect")
		return ""
	}
}

// The Python worker has no TLS, so it leaves a server that wants it; the others leave one that does
// not offer it to a client that is told to use it.
//
// mutations: _connect without its look at tls_required says CONNECT with the login; so does
// nats.mjs that takes TLS from its files only.
func TestTheSampleWorkersSendNoLoginInTheClear(t *testing.T) {
	t.Parallel()
	for name, p := range programs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme, info := "tls", `{"version":"2.12.0","max_payload":1048576,"headers":true}`
			if name == "worker.py" {
				scheme, info = "nats", `{"tls_required":true,"max_payload":1048576}`
			}
			address, lines := greeting(t, info)
			runs(t, p.dir, []string{"NATS_URL=" + scheme + "://u:s3cr@" + address}, p.args...)
			if line := said(t, lines); line != "" {
				t.Errorf("it says %s", line)
			}
		})
	}
}

// What the clients of NATS take for an address is one.
//
// mutations: a list that is not trimmed, or whose empty entries count, and a scheme that is not
// known, end the worker.
func TestTheSampleWorkersTakeAddressesAsTheClientsDo(t *testing.T) {
	t.Parallel()
	for name, p := range programs(t) {
		forms := map[string]string{"tcp": " tcp://%s\n", "list": " 127.0.0.1:1, %s,"}
		if name == "worker.py" {
			delete(forms, "list")
		}
		for form, text := range forms {
			t.Run(name+" "+form, func(t *testing.T) {
				t.Parallel()
				address, lines := greeting(t, `{"version":"2.12.0","max_payload":1048576,"headers":true}`)
				runs(t, p.dir, []string{"NATS_URL=" + fmt.Sprintf(text, address)}, p.args...)
				if line := said(t, lines); !strings.HasPrefix(line, "CONNECT ") {
					t.Errorf("it says %q", line)
				}
			})
		}
	}
}

// A user without a colon is a token, and one with an empty password is none.
//
// mutations: an address without a scheme that is not completed, a login of the environment or of
// the address that is not read, or that is not decoded, and a token that is a user, make this fail.
func TestTheSampleWorkersLogInAsTheyAreTold(t *testing.T) {
	t.Parallel()
	for name, p := range programs(t) {
		type login struct {
			User, Pass string
			Token      string `json:"auth_token"`
		}
		for place, c := range map[string]struct {
			env  []string
			want login
		}{
			"address":     {[]string{"NATS_URL=nats://u:p%2Fw@", "NATS_USER=other", "NATS_PASSWORD=other"}, login{"u", "p/w", ""}},
			"token":       {[]string{"NATS_URL=nats://t%2Fk@", "NATS_USER=other", "NATS_PASSWORD=other"}, login{"", "", "t/k"}},
			"no password": {[]string{"NATS_URL=nats://u:@"}, login{"u", "", ""}},
			"environment": {[]string{"NATS_URL=", "NATS_USER=u", "NATS_PASSWORD=p/w"}, login{"u", "p/w", ""}},
		} {
			t.Run(name+" "+place, func(t *testing.T) {
				t.Parallel()
				address, lines := greeting(t, `{"version":"2.12.0","max_payload":1048576,"headers":true,"auth_required":true}`)
				runs(t, p.dir, append([]string{c.env[0] + address}, c.env[1:]...), p.args...)
				var got login
				if err := json.Unmarshal([]byte(strings.TrimPrefix(said(t, lines), "CONNECT ")), &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}
