// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/server"
)

// rolledAPI is an API server that is restarted: it cuts off the first watch, refuses the next ones,
// and then is as before, or refuses the user.
type rolledAPI struct {
	busyAPI
	watches atomic.Int64
	taken   atomic.Bool // the right to watch
}

func (a *rolledAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		a.busyAPI.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch n := a.watches.Add(1); {
	case n == 1:
		_, _ = io.WriteString(w, `{"type":"MODIFIED","object":`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case n < 4:
		http.Error(w, "not now", http.StatusServiceUnavailable)
	case a.taken.Load():
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	default:
		a.busyAPI.ServeHTTP(w, r)
	}
}

// followed is the page of a run that follows an API server, with the lines of its stream. The clock
// goes on until the test ends.
func followed(t *testing.T, api http.Handler) (lines <-chan string) {
	t.Helper()
	h := httptest.NewServer(api)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	view, err := cluster.NewView(&rest.Config{Host: h.URL, QPS: -1}, nil, "")
	must(t, err)
	who := access.NewLocal(view)
	at := clocktesting.NewFakeClock(time.Now().Add(time.Hour)) // no deadline of a write comes
	c := serve(t, who, server.Options{Base: who.Base(), Clock: at})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+"/live/runs/team/run-0", nil)
	must(t, err)
	stream, err := c.client.Do(r)
	must(t, err)
	t.Cleanup(func() { _ = stream.Body.Close() })
	told, over := make(chan string), make(chan struct{})
	body := stream.Body
	go func() {
		defer close(told)
		for l := bufio.NewScanner(body); l.Scan(); {
			select {
			case told <- l.Text():
			case <-over:
				return
			}
		}
	}()
	ticker := time.NewTicker(5 * time.Millisecond)
	go func() {
		for {
			select {
			case <-ticker.C:
				at.Step(time.Second)
			case <-over:
				return
			}
		}
	}()
	t.Cleanup(func() { ticker.Stop(); close(over) })
	return told
}

// A page of a run goes on when the API server does.
//
// mutation: followRun that ends with the first watch that fails makes this fail.
func TestAPageOutlivesARestartOfTheAPIServer(t *testing.T) {
	t.Parallel()
	api := &rolledAPI{busyAPI: busyAPI{watchers: map[chan int]bool{}}}
	told := followed(t, api)
	gone := make(chan bool, 1)
	changed := make(chan struct{}, 1)
	go func() {
		defer close(gone)
		for line := range told {
			switch line {
			case "event: gone":
				gone <- true
				return
			case "event: changed":
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		}
	}()
	eventually(t, "it watches again", func() bool {
		select {
		case <-gone:
			t.Fatal("the page is told that there is nothing more to follow")
		default:
		}
		api.mu.Lock()
		defer api.mu.Unlock()
		return len(api.watchers) == 1
	})
	for range 2 { // one may be of the failures
		for range 50 { // then the API server sends them on
			api.change()
		}
		select {
		case <-changed:
		case <-time.After(patience):
			t.Fatal("it is told of no change")
		}
	}
}

// mutation: Follow that goes on without a right makes this fail.
func TestAPageIsToldThatThereIsNothingMoreToFollow(t *testing.T) {
	t.Parallel()
	api := &rolledAPI{busyAPI: busyAPI{watchers: map[chan int]bool{}}}
	api.taken.Store(true)
	told, over := followed(t, api), time.After(patience)
	for {
		select {
		case line, more := <-told:
			if line == "event: gone" {
				return
			}
			if !more {
				t.Fatal("the stream has ended without a word")
			}
		case <-over:
			t.Fatal("it is told of nothing")
		}
	}
}
