package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestEarlyProbesSayWhatIsMissing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	e, err := serveEarlyProbes(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	e.failed(errors.New("connection refused"))
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/livez":  {http.StatusOK, "ok"},
		"/readyz": {http.StatusInternalServerError, "[-]apiserver failed: connection refused"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want.code || !strings.Contains(string(body), want.text) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	e.stop()
	again, err := serveEarlyProbes(t.Context(), addr) // the manager gets the address
	if err != nil {
		t.Fatal(err)
	}
	again.stop()
}

func TestEarlyProbesCanBeOff(t *testing.T) {
	e, err := serveEarlyProbes(t.Context(), "0")
	if err != nil {
		t.Fatal(err)
	}
	e.stop()
}

// mutation: logging the URL as given makes this fail.
func TestRedactedURLHasNoPasswords(t *testing.T) {
	for given, want := range map[string]string{
		"nats://a:4222":                      "nats://a:4222",
		"nats://u:s3cret@a:4222, nats://b:1": "nats://u:xxxxx@a:4222,nats://b:1",
		"nats://u:s3%cret@a:4222":            "(unreadable)",
	} {
		if got := (natsOptions{url: given}).redactedURL(); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}
