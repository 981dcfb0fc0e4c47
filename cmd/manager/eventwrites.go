package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
)

// eventQueue bounds how many events are written at the same time. client-go writes each in a
// goroutine of its own, so a burst of them would keep the API server from status writes, for which
// workers and tenants wait. Who makes events asks how many wait.
type eventQueue struct {
	places  chan struct{}
	waiting atomic.Int64
}

// maxEventWrites is how many events are written at the same time.
const maxEventWrites = 1

func newEventQueue() *eventQueue { return &eventQueue{places: make(chan struct{}, maxEventWrites)} }

// Waiting is how many events are being written or wait for that.
func (q *eventQueue) Waiting() int { return int(q.waiting.Load()) }

// wrap makes events that are written over a transport wait in the queue.
func (q *eventQueue) wrap(next http.RoundTripper) http.RoundTripper { return &eventWrites{next, q} }

type eventWrites struct {
	next  http.RoundTripper
	queue *eventQueue
}

// RoundTrip implements http.RoundTripper.
func (e *eventWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || !strings.HasPrefix(r.URL.Path, "/apis/events.k8s.io/") {
		return e.next.RoundTrip(r)
	}
	e.queue.waiting.Add(1)
	defer e.queue.waiting.Add(-1)
	select {
	case e.queue.places <- struct{}{}:
		defer func() { <-e.queue.places }()
		return e.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, fmt.Errorf("wait to write an event: %w", context.Cause(r.Context()))
	}
}
