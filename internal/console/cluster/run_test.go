// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

// queuedAPI is an API server with one run, which waits in a queue.
func queuedAPI(runsUnderWay transport) transport {
	return func(r *http.Request) (*http.Response, error) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/workflowruns/one"):
			return answerOf(r, http.StatusOK, `{"kind":"WorkflowRun","apiVersion":"syncopate.dev/v1alpha1","metadata":{"namespace":"team","name":"one"},"spec":{"steps":[]},"status":{"phase":"Queued"}}`), nil
		case strings.HasSuffix(path, "/workflowruns"):
			return runsUnderWay(r)
		case strings.HasSuffix(path, "/lockpolicies"), strings.HasSuffix(path, "/semaphores"), strings.HasSuffix(path, "/events"):
			return answerOf(r, http.StatusOK, `{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`), nil
		default:
			return answerOf(r, http.StatusForbidden, forbidden), nil
		}
	}
}

const forbidden = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`

// mutations: Run that waits for a turn, or for the runs under way, until its time is up makes this
// fail, and so does one that is refused with them.
func TestAWaitingRunIsShownWhereOthersCannotBeRead(t *testing.T) {
	t.Parallel()
	stalls := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	for name, c := range map[string]struct {
		others transport
		taken  bool // the turn
		why    func(error) bool
	}{
		"they stall":        {others: stalls, why: late},
		"the turn is taken": {others: stalls, taken: true, why: late},
		"they are forbidden": {others: func(r *http.Request) (*http.Response, error) {
			return answerOf(r, http.StatusForbidden, forbidden), nil
		}, why: apierrors.IsForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				view, err := NewView(&rest.Config{Host: "http://api", QPS: -1}, &http.Client{Transport: queuedAPI(c.others)}, "jane")
				if err != nil {
					t.Fatal(err)
				}
				if c.taken {
					leave, err := view.shared.turns.enter(t.Context(), "jane")
					if err != nil {
						t.Fatal(err)
					}
					defer leave()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 21*time.Second)
				defer cancel()
				began, shown := time.Now(), false
				err = view.Run(ctx, "team", "one", "syncopate-system", func(r *facts.Run) {
					shown = true
					if r.Run.Name != "one" || r.Others != nil || !c.why(r.Unread) {
						t.Errorf("%s, others %v: %v", r.Run.Name, r.Others, r.Unread)
					}
				})
				if took := time.Since(began); err != nil || !shown || took > 7*time.Second {
					t.Errorf("shown %t after %s: %v", shown, took, err)
				}
			})
		})
	}
}

func late(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// mutation: a request that has ended, taken for one whose others stall, makes this fail.
func TestAPageThatIsOverIsNotShown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	view, err := NewView(&rest.Config{Host: "http://api", QPS: -1}, &http.Client{Transport: queuedAPI(func(r *http.Request) (*http.Response, error) {
		cancel()
		return nil, r.Context().Err()
	})}, "jane")
	if err != nil {
		t.Fatal(err)
	}
	err = view.Run(ctx, "team", "one", "syncopate-system", func(*facts.Run) { t.Error("it is shown") })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// mutations: fill that ends with the first question that has no answer makes this fail, and so does
// one that gives a question all of the page's time, or keeps its error to itself.
func TestARunIsShownWithoutWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	waits := queuedAPI(func(r *http.Request) (*http.Response, error) {
		return answerOf(r, http.StatusOK, `{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`), nil
	})
	answers := map[string]transport{
		"stalls": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"fails": func(r *http.Request) (*http.Response, error) {
			return answerOf(r, http.StatusInternalServerError, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","code":500}`), nil
		},
	}
	for how, answer := range answers {
		for _, what := range []string{"/lockpolicies", "/semaphores", "/events"} {
			t.Run(what+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					view, err := NewView(&rest.Config{Host: "http://api", QPS: -1}, &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
						if strings.HasSuffix(r.URL.Path, what) {
							return answer(r)
						}
						return waits(r)
					})}, "jane")
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 21*time.Second)
					defer cancel()
					began, shown := time.Now(), false
					err = view.Run(ctx, "team", "one", "syncopate-system", func(r *facts.Run) {
						shown = true
						if r.Run.Name != "one" || len(r.Missing) != 1 || (r.NoEvents != nil) != (what == "/events") {
							t.Errorf("%s: missing %v, events %v", r.Run.Name, r.Missing, r.NoEvents)
						}
					})
					if took := time.Since(began); err != nil || !shown || took > 8*time.Second {
						t.Errorf("shown %t after %s: %v", shown, took, err)
					}
				})
			})
		}
	}
}

// mutation: see without Tops makes this fail.
func TestTheRunAtTheTopIsReadAfterItsEndForWhereItsChildWaits(t *testing.T) {
	t.Parallel()
	const child = `{"kind":"WorkflowRun","apiVersion":"syncopate.dev/v1alpha1","metadata":{"namespace":"team","name":"one","uid":"u-1"},"spec":{"steps":[]},` +
		`"status":{"phase":"Queued","parent":{"name":"top","root":"top"},"admission":{"lockWait":{"lock":"mutex:team/x","startedAt":"2026-11-20T10:00:00Z"}}}}`
	others := queuedAPI(func(r *http.Request) (*http.Response, error) {
		return answerOf(r, http.StatusOK, `{"kind":"List","apiVersion":"v1","metadata":{},"items":[`+child+`]}`), nil
	})
	view, err := NewView(&rest.Config{Host: "http://api", QPS: -1}, &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/workflowruns/one"):
			return answerOf(r, http.StatusOK, child), nil
		case strings.HasSuffix(r.URL.Path, "/workflowruns/top"):
			return answerOf(r, http.StatusOK, `{"kind":"WorkflowRun","apiVersion":"syncopate.dev/v1alpha1","metadata":{"namespace":"team","name":"top"},"spec":{"priority":7,"steps":[]}}`), nil
		}
		return others(r)
	})}, "jane")
	if err != nil {
		t.Fatal(err)
	}
	err = view.Run(t.Context(), "team", "one", "syncopate-system", func(r *facts.Run) {
		if tops := r.Tops.Ended; len(tops) != 1 || tops[0].Name != "top" || tops[0].Spec.Priority != 7 {
			t.Errorf("read at the top: %+v, not read: %v", tops, r.Tops.Unread)
		}
	})
	if err != nil {
		t.Error(err)
	}
}
