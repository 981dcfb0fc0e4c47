// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	clocktesting "k8s.io/utils/clock/testing"
)

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// mutation: a log line at each probe, or none when the parts that are not ready change, makes this
// fail; so does a body without the cause.
func TestProbesSayWhatIsMissingAndTheLogSaysEachChangeOnce(t *testing.T) {
	addr := freeAddress(t)
	var said []string
	p, err := serveProbes(t.Context(), addr, funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	p.apiServer(errors.New("not reached yet"))
	var redis error
	p.add("redis", func(*http.Request) error { return redis })
	for _, step := range []struct {
		api, redis error
		code       int
		body       string
		lines      int
	}{
		{errDown, nil, http.StatusServiceUnavailable, "[-]apiserver failed: connection refused\n[+]redis ok\n", 1},
		{errors.New("another text"), nil, http.StatusServiceUnavailable, "[-]apiserver failed: another text\n[+]redis ok\n", 1},
		{nil, nil, http.StatusOK, "[+]apiserver ok\n[+]redis ok\n", 2},
		{nil, nil, http.StatusOK, "[+]apiserver ok\n[+]redis ok\n", 2},
		{nil, errDown, http.StatusServiceUnavailable, "[+]apiserver ok\n[-]redis failed: connection refused\n", 3},
	} {
		p.apiServer(step.api)
		redis = step.redis
		code, body := get(t, "http://"+addr+"/readyz?verbose")
		if code != step.code || body != step.body || len(said) != step.lines {
			t.Errorf("%d %q, want %d %q; log: %q", code, body, step.code, step.body, said)
		}
		if code, body := get(t, "http://"+addr+"/livez"); code != http.StatusOK || body != "ok\n" {
			t.Errorf("livez: %d %q", code, body)
		}
	}
	if last := said[len(said)-1]; !strings.Contains(last, "redis: connection refused") {
		t.Errorf("the log does not say why: %s", last)
	}
	p.stop()
	again, err := serveProbes(t.Context(), addr, funcr.New(func(string, string) {}, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	again.stop()
}

func TestProbesCanBeOff(t *testing.T) {
	p, err := serveProbes(t.Context(), "0", funcr.New(func(string, string) {}, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	p.stop()
}

// mutation: logging the URL as given, or url.URL's Redacted of it, makes this fail.
func TestRedactedURLHasNoPasswords(t *testing.T) {
	for given, want := range map[string]string{
		"nats://a:4222":                      "nats://a:4222",
		"nats://u:s3cret@a:4222, nats://b:1": "nats://a:4222,nats://b:1",
		"nats://t0ken@a:4222":                "nats://a:4222",
		"nats://u:s3%cret@a:4222":            "(unreadable)",
	} {
		if got := (&natsOptions{url: given}).redactedURL(); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}

// What the kubelet asks: a replica has callers once it has reached all, and keeps them while a
// dependency is away, as the webhook then has to say so. Nobody has to ask readyz for the log to
// tell.
// mutation: readyz?serving that fails for a dependency that was reached, or not for one that
// was not, or that does not tell the log, makes this fail; so does one that forgives a part
// of this process.
func TestAReplicaServesWhileADependencyIsAwayThatItHasReached(t *testing.T) {
	addr := freeAddress(t)
	said := 0
	p, err := serveProbes(t.Context(), addr, funcr.New(func(string, string) { said++ }, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	var caches, answers error
	p.add("caches", func(*http.Request) error { return caches })
	redis := newProbe(clocktesting.NewFakeClock(time.Time{}), func(context.Context) error { return answers })
	p.put(check{name: "redis", run: redis.ready, reached: redis.reached})
	const ok, away = http.StatusOK, http.StatusServiceUnavailable
	for _, step := range []struct {
		name            string
		caches, redis   error
		looks           int
		serving, readyz int
		lines           int // of the log so far
		body            string
	}{
		{"nothing was reached yet", nil, errDown, 0, away, away, 1, "[+]caches ok\n[-]redis failed: not reached yet\n"},
		{"Redis is away from the start", nil, errDown, 1, away, away, 1, "[+]caches ok\n[-]redis failed: connection refused\n"},
		{"Redis is there, caches are not", errDown, nil, 1, away, away, 2, "[-]caches failed: connection refused\n[+]redis ok\n"},
		{"all is there", nil, nil, 1, ok, ok, 3, "[+]caches ok\n[+]redis ok\n"},
		{"Redis went away", nil, errDown, probeTolerance, ok, away, 4, "[+]caches ok\n[-]redis failed: connection refused\n"},
		{"both are away", errDown, errDown, 1, away, away, 5, "[-]caches failed: connection refused\n[-]redis failed: connection refused\n"},
	} {
		caches, answers = step.caches, step.redis
		for range step.looks {
			redis.look(t.Context())
		}
		code, body := get(t, "http://"+addr+"/readyz?serving")
		if code != step.serving || body != step.body || said != step.lines {
			t.Errorf("%s: serving %d %q, want %d %q; %d lines in the log, want %d", step.name, code, body, step.serving, step.body, said, step.lines)
		}
		if code, body := get(t, "http://"+addr+"/readyz"); code != step.readyz || body != step.body {
			t.Errorf("%s: readyz %d %q, want %d", step.name, code, body, step.readyz)
		}
	}
}
