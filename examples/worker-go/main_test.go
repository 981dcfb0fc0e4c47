// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

func TestTopics(t *testing.T) {
	for name, tc := range map[string]struct {
		handler worker.Handler
		cause   error
		input   string
		attempt int32
		want    any
		fails   bool
	}{
		"flaky fails its first attempt":      {handler: flaky, input: `{}`, attempt: 1, fails: true},
		"flaky does its second":              {handler: flaky, input: `{}`, attempt: 2, want: map[string]any{"attempt": int32(2)}},
		"flaky fails as often as it is told": {handler: flaky, input: `{"failures":2}`, attempt: 2, fails: true},
		"slow sleeps":                        {handler: slow, input: `{"millis":1}`, want: map[string]any{"slept": int64(1)}},
		"slow minds its context":             {handler: slow, cause: worker.ErrCancelled, input: `{"millis":60000}`, fails: true},
		"fail fails":                         {handler: fail, input: `{}`, fails: true},
		"fetch wants a url":                  {handler: fetch, input: `{}`, fails: true},
		"input that is no object is refused": {handler: flaky, input: `[]`, fails: true},
		"conformance sleeps":                 {handler: conformance, input: `{"do":"sleep","millis":1}`},
		"conformance minds its context":      {handler: conformance, cause: worker.ErrCancelled, input: `{"do":"sleep","millis":60000}`, fails: true},
		"conformance does what it is told":   {handler: conformance, input: `{"do":"succeed","value":[1]}`, want: []any{1.0}},
		"conformance says a lot":             {handler: conformance, input: `{"do":"large","bytes":3}`, want: "xxx"},
		"conformance wants to be told":       {handler: conformance, input: `{}`, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			if tc.cause != nil {
				cancel(tc.cause)
			}
			defer cancel(nil)
			got, err := tc.handler(ctx, worker.Job{ID: protocol.JobID{Attempt: tc.attempt}, Input: []byte(tc.input)})
			if (err != nil) != tc.fails {
				t.Errorf("error %v", err)
			}
			if tc.cause != nil && !errors.Is(err, tc.cause) {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A server as in examples/production wants a certificate of its clients, and a login.
// mutation: any of the variables that login does not read makes this fail.
func TestLoginIsWhatAServerThatVerifiesItsClientsTakes(t *testing.T) {
	files := certs.NewAuthority(t).Issue(time.Hour)
	s := natstest.Start(t, natstest.Verifying(t, files, "worker", "secret"))
	env := map[string]string{
		"NATS_CA": files.CA, "NATS_CERT": files.Cert, "NATS_KEY": files.Key, "NATS_USER": "worker", "NATS_PASSWORD": "secret",
	}
	nc, err := nats.Connect(s.URL(), append(login(func(name string) string { return env[name] }), natstest.Patient())...)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if opts := login(func(string) string { return "" }); len(opts) > 0 {
		t.Errorf("%d options where nothing is set", len(opts))
	}
}

// mutations: a GRACE_SECONDS that nobody reads, a 0 that becomes the SDK's default, and a value
// that nobody checks make this fail.
func TestTheGracePeriodIsThatOfTheEnvironment(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 20 * time.Second, "45": 45 * time.Second, "0": -1, "999999": 999_999 * time.Second} {
		if got, err := grace(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"45s", "-1", "+1", "1.5", "1e3", " 45", "1000000", "99999999999999999999"} {
		t.Setenv("GRACE_SECONDS", text)
		if err := run(t.Context()); err == nil || !strings.Contains(err.Error(), "GRACE_SECONDS") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// mutations: a name that nobody looks for, one that is bound twice, and a TOPICS that run does not
// read, make this fail.
func TestTheTopicsAreThoseOfTheEnvironment(t *testing.T) {
	all := []string{"demo.conformance", "demo.echo", "demo.fail", "demo.flaky", "demo.slow", "http.fetch"}
	for text, want := range map[string][]string{
		"": all, "http.fetch": {"http.fetch"}, "http.fetch, demo.echo,http.fetch": {"demo.echo", "http.fetch"},
	} {
		got, err := chosen(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
	for _, text := range []string{"mail.send", "http.fetch,", ",", " ", "http.fetch;demo.echo", "HTTP.fetch"} {
		t.Setenv("TOPICS", text)
		if err := run(t.Context()); err == nil || !strings.Contains(err.Error(), "TOPICS") || !strings.Contains(err.Error(), strings.Join(all, ", ")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
