package main

import (
	"context"
	"errors"
	"net/http"
	"testing"
)

// roundTripper is a function as http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// mutation: a RoundTrip that does not look at the path, or does not wait, or keeps its place,
// makes this fail.
func TestEventsAreWrittenOneAtATime(t *testing.T) {
	errWritten, errGone := errors.New("written"), errors.New("gone")
	hold, written := make(chan struct{}), make(chan struct{})
	queue := newEventQueue()
	tripper := queue.wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Hold") != "" {
			close(written)
			<-hold
		}
		return nil, errWritten
	}))
	do := func(ctx context.Context, method, path, wait string) error {
		r, err := http.NewRequestWithContext(ctx, method, "https://api"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Hold", wait)
		_, err = tripper.RoundTrip(r) //nolint:bodyclose // there is no response
		return err
	}
	const events = "/apis/events.k8s.io/v1/namespaces/x/events"
	first := make(chan error)
	go func() { first <- do(t.Context(), http.MethodPost, events, "yes") }()
	<-written
	if n := queue.Waiting(); n != 1 {
		t.Errorf("%d events are being written or wait", n)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	if err := do(gone, http.MethodPost, events, ""); !errors.Is(err, errGone) {
		t.Errorf("a second event: %v", err)
	}
	for _, other := range []string{"/apis/syncopate.dev/v1alpha1/namespaces/x/workflowruns/y/status", "/apis/events.k8s.io.example/v1/x"} {
		if err := do(t.Context(), http.MethodPut, other, ""); !errors.Is(err, errWritten) {
			t.Errorf("%s: %v", other, err)
		}
	}
	if err := do(gone, http.MethodGet, events, ""); !errors.Is(err, errWritten) {
		t.Errorf("reading events: %v", err)
	}
	close(hold)
	if err := <-first; !errors.Is(err, errWritten) {
		t.Errorf("the first event: %v", err)
	}
	if err := do(t.Context(), http.MethodPost, events, ""); !errors.Is(err, errWritten) {
		t.Errorf("the next event: %v", err)
	}
	if n := queue.Waiting(); n != 0 {
		t.Errorf("%d events are being written or wait, though all were", n)
	}
}
