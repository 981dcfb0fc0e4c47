// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// mutation: an answer that is not looked at, or a check without the bound of its caller,
// makes this fail.
func TestReadyzAsksTheAPIServer(t *testing.T) {
	hang := make(chan struct{})
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status == 0 {
			<-hang // as one that is stopped: connections are taken, and nothing answers
			return
		}
		if r.URL.Path != "/livez" {
			t.Errorf("path %s", r.URL.Path)
		}
		w.WriteHeader(status)
	}))
	defer s.Close()
	defer close(hang)
	check, err := apiServerAnswers(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	for want, code := range map[string]int{"": http.StatusOK, " ": http.StatusForbidden, "500": http.StatusInternalServerError} {
		status = code
		err := check(t.Context())
		if ok := strings.TrimSpace(want) == ""; ok != (err == nil) || !ok && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", code, err)
		}
	}
	status = 0
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := check(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that hangs: %v", err)
	}
}
