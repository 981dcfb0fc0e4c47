// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// transport answers each request of a client.
type transport func(r *http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answerOf is one with a body, which may end as soon as it is read.
func answerOf(r *http.Request, status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// mutations: Follow without a pause asks a hundred times within a second, one that ends with a
// failure asks once, and one that tells only of events and failures tells of no watch
// that ends well.
func TestARunIsWatchedAgainAtAPace(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]transport{
		"watches that end at once": func(r *http.Request) (*http.Response, error) { return answerOf(r, http.StatusOK, ""), nil },
		"watches that are cut off": func(r *http.Request) (*http.Response, error) { return answerOf(r, http.StatusOK, `{"type":`), nil },
		"no connection":            func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
		"watches that are refused": func(r *http.Request) (*http.Response, error) {
			return answerOf(r, http.StatusServiceUnavailable, "{}"), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				view, err := NewView(&rest.Config{Host: "http://api", QPS: -1}, &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
					if at = append(at, time.Now()); len(at) > 100 {
						<-r.Context().Done()
					}
					return answer(r)
				})}, "")
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				changed := 0
				_ = view.Follow(ctx, clock.RealClock{}, "team", "run", func() { changed++ })
				if changed < len(at) {
					t.Errorf("told %d times in %d watches: a run that was deleted between two is not noticed", changed, len(at))
				}
				if got, want := gaps(at, 0), []float64{1, 2, 4, 8, 16, 30, 30}; !slices.Equal(got, want) {
					t.Errorf("watches are %v s apart, want %v", got, want)
				}
			})
		})
	}
}

// mutations: Follow that takes a refusal for a failure, or that tells of a watch which is refused,
// makes this fail.
func TestWhoMayNotSeeARunFollowsItNoMore(t *testing.T) {
	t.Parallel()
	view, err := NewView(&rest.Config{Host: "http://api", QPS: -1}, &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		return answerOf(r, http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`), nil
	})}, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	changed := 0
	if err := view.Follow(ctx, clock.RealClock{}, "team", "run", func() { changed++ }); !apierrors.IsForbidden(err) || changed > 0 {
		t.Errorf("told %d times, %v", changed, err)
	}
}
