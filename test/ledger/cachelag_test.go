// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/book"
)

// TestAResultOfARunThatTheCacheDoesNotKnowWaitsForTheCache is the way in which a good result meets
// an operator that has never heard of its run: another replica dispatched the job, and died; this
// one's watch of the API server is behind.
//
// mutation: strays.sort that acknowledges what the cache does not know after its patience, without
// a live list, makes this fail.
func TestAResultOfARunThatTheCacheDoesNotKnowWaitsForTheCache(t *testing.T) {
	ctx := t.Context()
	w := newWorld(ctx, t)
	w.policy(ctx, v1alpha1.LockPolicySpec{RunLock: shortLock()})
	d := w.openDesk(ctx, badTopic)
	lag := startLag(t)
	w.startOperator(ctx, "behind", "--kubeconfig", lag.kubeconfig)
	lag.begin()
	ahead := w.startOperator(ctx, "ahead")
	const runs = 20
	w.create(ctx, numbered("late", runs, parallelSteps(badTopic, 1)))
	jobs := d.take(ctx, t, patience, runs)
	ahead.kill()
	lists := lag.lists.Load()
	for _, j := range jobs {
		w.publish(ctx, j.message(book.Success()))
	}
	await(ctx, t, patience, "the operator asks the API server twice whether the runs exist", func() string {
		if n := lag.lists.Load() - lists; n < 2 {
			return fmt.Sprintf("%d live lists", n)
		}
		return ""
	})
	if state, err := w.stream(ctx, w.names.ResultsStream()); err != nil || state.Msgs != runs {
		t.Errorf("%d results are left, want %d, %v: a result of an unknown run was settled", state.Msgs, runs, err)
	}
	lag.end()
	w.awaitSteps(ctx, book.StepName(0), runs)
	w.expectSettled(ctx, patience)
	w.expectDeadLetters(ctx, 0)
}

// lag stands between an operator and the API server, and holds back what watches of runs
// have to say.
type lag struct {
	kubeconfig string
	lists      atomic.Int32 // live lists of runs so far

	mu   sync.Mutex
	open chan struct{} // closed while nothing is held back
}

func startLag(tb testing.TB) *lag {
	tb.Helper()
	l := &lag{open: make(chan struct{})}
	l.end()
	transport, err := rest.TransportFor(site.env.Config)
	if err != nil {
		tb.Fatal(err)
	}
	target, err := url.Parse(site.env.Config.Host)
	if err != nil {
		tb.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ModifyResponse: l.hold,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(proxy)
	tb.Cleanup(func() {
		l.end()
		server.CloseClientConnections() // watches never end by themselves
		server.Close()
	})
	l.kubeconfig = filepath.Join(tb.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\n"+
		"users: [{name: u}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", server.URL)
	if err := os.WriteFile(l.kubeconfig, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return l
}

// begin holds watches back from now on.
func (l *lag) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

func (l *lag) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
	default:
		close(l.open)
	}
}

func (l *lag) gate() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

func (l *lag) hold(r *http.Response) error {
	q := r.Request.URL.Query()
	switch {
	case !strings.HasSuffix(r.Request.URL.Path, "/workflowruns"):
	case q.Has("watch"):
		r.Body = &heldBody{ReadCloser: r.Body, lag: l, ctx: r.Request.Context()}
	case r.Request.Method == http.MethodGet:
		l.lists.Add(1)
	}
	return nil
}

// heldBody passes on nothing while the lag lasts.
type heldBody struct {
	io.ReadCloser
	lag *lag
	ctx context.Context //nolint:containedctx // of the request: http has no other way to say that it ended
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	select {
	case <-b.lag.gate():
		return n, err
	case <-b.ctx.Done():
		return 0, context.Cause(b.ctx)
	}
}
