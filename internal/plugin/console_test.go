// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// The address is printed, it answers, and the command ends with its context.
//
// mutation: an address without the token makes this fail.
func TestConsolePrintsAnAddressThatAnswers(t *testing.T) {
	empty := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("watch") { // nothing changes, until the command ends
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"columnDefinitions":[],"rows":[]}`)
	})
	cluster := httptest.NewServer(empty)
	defer cluster.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	cmd := NewCommand(Env{
		Out: w, Err: io.Discard, Clock: clock.RealClock{}, Getenv: os.Getenv,
		Config: func() (*rest.Config, string, error) {
			return &rest.Config{Host: cluster.URL, Transport: transport}, "team-a", nil
		},
	})
	cmd.SetArgs([]string{"console", "--no-browser"})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	address, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c := http.Client{Transport: transport}
	answer, err := c.Do(request(t, strings.TrimSpace(address)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(text), "There are no runs yet") {
		t.Errorf("%s: %d, %v\n%s", address, answer.StatusCode, err, text)
	}
	transport.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func request(t *testing.T, address string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mutation: 0o644 for the file makes this fail.
func TestTheAddressOfTheConsoleIsForItsUserOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "console.html")
	if err := writeRedirect(path, "http://127.0.0.1:1/TOKEN/runs"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 || !strings.Contains(string(text), "url=http://127.0.0.1:1/TOKEN/runs") {
		t.Errorf("%s: %s", info.Mode(), text)
	}
}
