package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// eventWrites bounds how many events are written at the same time. client-go writes each in a goroutine of its own, so a burst of
// them would keep the API server from status writes, for which workers and tenants wait.
type eventWrites struct {
	next   http.RoundTripper
	places chan struct{}
}

// maxEventWrites is how many events are written at the same time.
const maxEventWrites = 1

func newEventWrites(next http.RoundTripper) http.RoundTripper {
	return &eventWrites{next: next, places: make(chan struct{}, maxEventWrites)}
}

// RoundTrip implements http.RoundTripper.
func (e *eventWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || !strings.HasPrefix(r.URL.Path, "/apis/events.k8s.io/") {
		return e.next.RoundTrip(r)
	}
	select {
	case e.places <- struct{}{}:
		defer func() { <-e.places }()
		return e.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, fmt.Errorf("wait to write an event: %w", context.Cause(r.Context()))
	}
}
