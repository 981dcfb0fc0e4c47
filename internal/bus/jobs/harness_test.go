// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"encoding/json"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
)

// config is that of a queue and of its connection.
type config struct {
	bus.Config
	Options
}

// newQueue makes a queue on a connection of its own, which is closed when the test ends.
func newQueue(t testing.TB, s *natstest.Server, adjust ...func(*config)) *Queue {
	t.Helper()
	c := config{Config: bus.Config{URL: s.URL()}}
	for _, f := range adjust {
		f(&c)
	}
	return queueOn(t, bustest.Connect(t, c.Config), c.Options)
}

func queueOn(t testing.TB, conn *bus.Conn, o Options) *Queue {
	t.Helper()
	keys := bustest.Keys(t)
	return New(conn, keys, results.NewReader(conn, keys), o)
}

func testJob(n int) Job {
	return Job{ID: bustest.JobID(n), Topic: "web.fetch", Input: json.RawMessage(`{"n":1}`), Fence: 7, Source: "/runs/test"}
}
