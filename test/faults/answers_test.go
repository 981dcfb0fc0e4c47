// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
)

// lie is an answer that the API server did not give.
type lie struct {
	says   *apierrors.StatusError
	writes bool // only of writes that replace something; false: of everything, also of watches
	after  bool // the API server has done what it was asked for; false: it never heard of it
}

var (
	conflict = lie{writes: true, says: apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a-thing", errors.New("somebody else was faster"))}
	tooMany  = lie{says: apierrors.NewTooManyRequests("the server is overloaded", 1)}
	internal = lie{says: apierrors.NewInternalError(errors.New("the server is ill"))}
	tookIt   = lie{writes: true, after: true, says: apierrors.NewInternalError(errors.New("the server is ill, but has stored it"))}
)

// Refusals of status writes of runs, as answers have them. They are counters of operators as well.
const (
	byVersion = "write refused by version"
	byFence   = "write refused by fence"
)

// answers stands between the operators and the API server: it may lie to every second request, and
// counts what status writes of runs were told, for I6.
type answers struct {
	tb    testing.TB
	addr  string
	ca    string
	proxy *httputil.ReverseProxy

	mu   sync.Mutex
	lie  *lie
	rand *rand.Rand
	told int            // lies
	seen map[string]int // refusals of status writes
}

func startAnswers(tb testing.TB, files *certs.Files) *answers {
	tb.Helper()
	transport, err := rest.TransportFor(site.api.Config)
	if err != nil {
		tb.Fatal(err)
	}
	target := &url.URL{Scheme: "https", Host: site.api.Config.Host}
	quiet := log.New(io.Discard, "", 0) // connections that a fault cut are no news
	a := &answers{tb: tb, ca: files.CA, rand: rand.New(rand.NewPCG(1, 1)), seen: map[string]int{}}
	a.proxy = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: quiet,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		// Who asks a server that is not there gets no answer, not one of ours.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewUnstartedServer(a)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	server.EnableHTTP2, server.Config.ErrorLog = true, quiet
	server.StartTLS()
	tb.Cleanup(func() {
		server.CloseClientConnections() // watches never end by themselves
		server.Close()
	})
	a.addr = server.Listener.Addr().String()
	return a
}

// begin has every second request that a lie is for be told it.
func (a *answers) begin(l lie, r *rand.Rand) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lie, a.rand = &l, rand.New(rand.NewPCG(r.Uint64(), 3))
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lie = nil
	}
}

// draw is the lie for a request, if it is told one.
func (a *answers) draw(r *http.Request) *lie {
	a.mu.Lock()
	defer a.mu.Unlock()
	replaces := r.Method == http.MethodPut || r.Method == http.MethodPatch
	if a.lie == nil || (a.lie.writes && !replaces) || a.rand.IntN(2) == 0 {
		return nil
	}
	a.told++
	return a.lie
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := a.draw(r)
	if l == nil && !writesStatus(r) {
		a.proxy.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	if l == nil || l.after {
		a.proxy.ServeHTTP(answer, r)
	}
	if l != nil {
		answer = l.answer()
	}
	a.note(r, answer)
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func (l *lie) answer() *httptest.ResponseRecorder {
	status := l.says.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(d.RetryAfterSeconds))
	}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
	return w
}

func writesStatus(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/workflowruns/") && strings.HasSuffix(r.URL.Path, "/status")
}

// note counts what a status write is told, unless nobody listens any more.
func (a *answers) note(r *http.Request, answer *httptest.ResponseRecorder) {
	if !writesStatus(r) || r.Context().Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case answer.Code == http.StatusConflict:
		a.seen[byVersion]++
	case answer.Code == http.StatusUnprocessableEntity && strings.Contains(answer.Body.String(), "stale writer"):
		a.seen[byFence]++
	}
}

// figures are how many lies were told, and the refusals so far.
func (a *answers) figures() (told int, seen map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told, maps.Clone(a.seen)
}

// kubeconfig is one by way of a door to it. It needs no credentials: the answers have them.
func (a *answers) kubeconfig(door string) string {
	a.tb.Helper()
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]\n"+
		"users: [{name: u}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", "https://"+door, a.ca)
	path := filepath.Join(a.tb.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		a.tb.Fatal(err)
	}
	return path
}

// fillEtcd raises the alarm that etcd raises itself when it has no space left: reads and deletions
// go on, every other write is refused.
func fillEtcd(tb testing.TB) (empty func()) {
	tb.Helper()
	var members struct {
		Members []struct{ ID string }
	}
	askEtcd(tb, "/v3/cluster/member/list", struct{}{}, &members)
	if len(members.Members) != 1 {
		tb.Fatalf("etcd has %d members", len(members.Members))
	}
	alarm := func(action string) {
		askEtcd(tb, "/v3/maintenance/alarm", map[string]string{"action": action, "memberID": members.Members[0].ID, "alarm": "NOSPACE"}, &struct{}{})
	}
	alarm("ACTIVATE")
	return func() { alarm("DEACTIVATE") }
}

func askEtcd(tb testing.TB, path string, question, answer any) {
	tb.Helper()
	body, err := json.Marshal(question)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, site.env.EtcdURL()+path, bytes.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		tb.Fatalf("etcd says %s to %s", resp.Status, path)
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		tb.Fatal(err)
	}
}
