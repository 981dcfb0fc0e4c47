// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

type config = bus.Config

// newStore makes a store on a connection of its own, which is closed when the test ends.
func newStore(t testing.TB, s *natstest.Server, adjust ...func(*config)) *Store {
	t.Helper()
	c := config{URL: s.URL()}
	for _, f := range adjust {
		f(&c)
	}
	return New(bustest.Connect(t, c))
}
