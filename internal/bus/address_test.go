// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// mutation: url.URL's Redacted for the user, url.Parse of an address without nats://, or an address
// that is shown although it has an @ behind its host, makes this fail.
func TestWithoutUser(t *testing.T) {
	for given, want := range map[string]string{
		"a:4222":                            "nats://a:4222",
		"nats://a:4222":                     "nats://a:4222",
		"nats://TOKEN@a:4222":               "nats://a:4222",
		"TOKEN@a:4222":                      "nats://a:4222",
		"u:TOKEN@a:4222":                    "nats://a:4222",
		"nats://u:TOKEN@a:1, tls://b:2":     "nats://a:1,tls://b:2",
		"wss://u:TOKEN@a:4222/path":         "wss://a:4222/path",
		"nats://u:TO%KEN@a:4222,nats://b:1": "(unreadable),nats://b:1",
		"nats://u:TO/KEN@a:4222":            "(unreadable)",
		"nats://u:12/TOKEN@a:4222":          "(unreadable)",
		"nats://TOKEN#KEN@a:4222":           "(unreadable)",
		"u:TOKEN://x@a:4222":                "(unreadable)",
	} {
		if got := bus.WithoutUser(given); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}

// An address that cannot be read is an error that does not quote it.
//
// mutation: withDefaults that leaves such an address to the library, which quotes it,
// makes this fail.
func TestAnAddressThatCannotBeReadIsNotQuoted(t *testing.T) {
	for _, address := range []string{"nats://u:PLANTED%zz@127.0.0.1:1", "nats://u:PLANTED/zz@127.0.0.1:1", "nats://PLANTED/zz@127.0.0.1:1"} {
		_, _, dialled := bus.Dial(t.Context(), bus.Config{URL: address})
		_, connected := bus.Connect(t.Context(), bus.Config{URL: address})
		for _, err := range []error{dialled, connected} {
			if !errors.Is(err, bus.ErrConfig) || strings.Contains(err.Error(), "PLANTED") || !strings.Contains(err.Error(), "%XX") {
				t.Errorf("%s: %v", address, err)
			}
		}
	}
}
