// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/server"
)

const (
	heavyRuns  = 25
	heavyUsers = 8
	heavyHeap  = 48 * mib // a read of them as a whole, once, is more
)

// heavyAPI is an API server whose runs under way have a MiB each.
type heavyAPI struct {
	busyAPI
	output string
	user   string // whose each token is; "": of the user of that name

	reviews atomic.Int64

	mu      sync.Mutex
	lists   int // that are being read
	most    int
	heap    uint64 // the most, in bytes
	samples []metrics.Sample
}

func (a *heavyAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case a.user != "" && strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		_, _ = fmt.Fprintf(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,
			"user":{"username":%q,"extra":{"authentication.kubernetes.io/credential-id":["%d"]}}}}`, a.user, a.reviews.Add(1))
	case strings.HasSuffix(r.URL.Path, "/lockpolicies"):
		_, _ = io.WriteString(w, `{"kind":"LockPolicyList","apiVersion":"syncopate.dev/v1alpha1","metadata":{},"items":[]}`)
	case strings.HasSuffix(r.URL.Path, "/semaphores"):
		_, _ = io.WriteString(w, `{"kind":"SemaphoreList","apiVersion":"syncopate.dev/v1alpha1","metadata":{},"items":[]}`)
	case r.URL.Query().Get("fieldSelector") != "":
		a.list(w)
	default:
		a.busyAPI.ServeHTTP(w, r)
	}
}

func (a *heavyAPI) list(w io.Writer) {
	a.look(1)
	_, _ = io.WriteString(w, `{"kind":"WorkflowRunList","apiVersion":"syncopate.dev/v1alpha1","metadata":{"resourceVersion":"1"},"items":[`)
	for i := range heavyRuns {
		if i > 0 {
			_, _ = io.WriteString(w, ",")
		}
		_, _ = fmt.Fprintf(w, `{"metadata":{"namespace":"team","name":"run-%d","uid":"uid-%d"},"spec":{"steps":[]},"status":{"phase":"Queued","tenant":"acme","outputs":`, i, i)
		_, _ = io.WriteString(w, a.output)
		_, _ = io.WriteString(w, `}}`)
		a.look(0)
	}
	a.look(-1) // its reader has not read the end yet
	_, _ = io.WriteString(w, "]}")
}

// look notes how many lists are being read, and how much memory the console takes with
// this API server.
func (a *heavyAPI) look(more int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists += more
	a.most = max(a.most, a.lists)
	metrics.Read(a.samples)
	a.heap = max(a.heap, a.samples[0].Value.Uint64())
}

// tenants has so many tokens ask for the tenants at the same time.
func (a *heavyAPI) tenants(t *testing.T, tokens int) {
	t.Helper()
	a.watchers, a.output = map[chan int]bool{}, `{"text":"`+strings.Repeat("x", mib)+`"}`
	a.samples = []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	h := httptest.NewServer(a)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	who, err := access.NewInCluster(&rest.Config{Host: h.URL, QPS: -1}, access.Options{Clock: clock.RealClock{}})
	must(t, err)
	c := serve(t, who, server.Options{PageTime: 10 * time.Minute})
	var all sync.WaitGroup
	for i := range tokens {
		all.Go(func() {
			status, text, _ := c.as(fmt.Sprintf("user-%d", i)).do(http.MethodGet, "/tenants", "")
			if status != http.StatusOK || !strings.Contains(text, "Queue of acme") || !strings.Contains(text, fmt.Sprintf("%d more", heavyRuns-10)) {
				t.Errorf("%d\n%s", status, text)
			}
		})
	}
	all.Wait()
	t.Logf("%d MiB of heap at the most, %d lists at a time", a.heap/mib, a.most)
}

// mutations: a list that is read as a whole before its outlines are made takes twice as much and
// more, and UnderWay without a turn has eight lists at a time.
func TestRunsUnderWayAreNeverThereAsAWhole(t *testing.T) {
	api := &heavyAPI{}
	if api.tenants(t, heavyUsers); api.heap > heavyHeap || api.most > 2 {
		t.Errorf("%d MiB of heap, %d lists at a time", api.heap/mib, api.most)
	}
}

// mutation: turns by identity, which differs with each token of an account, make this fail: one
// user has them all.
func TestAUserHasOneTurnWhateverTheToken(t *testing.T) {
	api := &heavyAPI{user: "system:serviceaccount:team:robot"}
	if api.tenants(t, 3); api.most != 1 {
		t.Errorf("%d lists at a time", api.most)
	}
}

// largeAPI is an API server with one run, whose inputs are large.
type largeAPI struct{ inputs string }

func (a *largeAPI) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"kind":"WorkflowRun","apiVersion":"syncopate.dev/v1alpha1","metadata":{"namespace":"team","name":"large"},"spec":{"steps":[],"inputs":%s}}`, a.inputs)
}

// mutations: a page that is made as YAML before it is cut makes this fail, and so does one that is
// made as YAML because its JSON is small: it is nested deep.
func TestTheYAMLOfALargeRunIsNotMade(t *testing.T) {
	for name, inputs := range map[string]string{
		"wide":  "[" + strings.Repeat("0,", 700_000) + "0]",
		"deep":  strings.Repeat(`{"a":`, 9900) + "0" + strings.Repeat("}", 9900),
		"small": `{"text":"hello"}`,
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(&largeAPI{inputs})
			t.Cleanup(h.Close)
			c := local(t, &rest.Config{Host: h.URL}, "team")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			text := c.get("/runs/team/large/yaml")
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > heavyHeap {
				t.Errorf("%d MiB", took/mib)
			}
			if name == "small" {
				wants(t, text, "kind: WorkflowRun", "text: hello")
				return
			}
			wants(t, text[:min(len(text), 32<<10)], "kubectl get workflowrun large -n team -o yaml", "&#34;kind&#34;: &#34;WorkflowRun&#34;")
		})
	}
}
