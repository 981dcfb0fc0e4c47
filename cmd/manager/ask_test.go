// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// mutation: ask gives up at the first error.
func TestAskWaitsUntilThePageIsThere(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	if err := ask(t.Context(), s.URL); err != nil || asked.Load() != 2 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
}

// mutation: a page that is not found passes.
func TestAskSaysWhyThePageIsNotThere(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	if err := askOnce(t.Context(), s.URL); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("error is %v; want one with the status", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(ctx, s.URL); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v; want that it was cancelled", err)
	}
}
