// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

// mutations: sawJobs without the limit, without what is held, for another stream, or that is not
// called when streams are ensured, or when they are looked at.
func TestTheBytesOfJobsAreThoseLastSeen(t *testing.T) {
	t.Parallel()
	b := newBroker(t, natstest.Start(t), func(c *bus.Config) { c.MaxBytes.Jobs, c.MaxBytes.Results = 4<<20, 8<<20 })
	if got := bus.JobsBytes(b.Conn); got != (bus.StreamBytes{Limit: 4 << 20}) {
		t.Errorf("once ensured: %+v", got)
	}
	if err := b.jobs.Publish(t.Context(), largeJob(1)); err != nil {
		t.Fatal(err)
	}
	if err := b.CheckStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := bus.JobsBytes(b.Conn); got.Holds < 200<<10 || got.Holds > 202<<10 {
		t.Errorf("after a look: %+v", got)
	}
	s, err := b.JetStream.Stream(t.Context(), b.Names.JobsStream())
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	config.MaxBytes = -1
	if _, err := b.JetStream.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if err := b.CheckStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := bus.JobsBytes(b.Conn); got.Limit != 0 {
		t.Errorf("without a limit: %+v", got)
	}
}
