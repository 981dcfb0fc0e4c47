// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// What the tests of package bus_test need of the insides.
const (
	InstallationKey = installationKey
	HomeKey         = homeKey
	RelookDelay     = relookDelay
	StreamCheck     = streamCheck
	Removal         = removal
	ClaimAfter      = claimAfter
)

// ConnectWith is Connect with options of a test.
func ConnectWith(config Config, tests ...nats.Option) (*Conn, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return connect(newConn(config), tests...)
}

// Watched are the streams whose loss of data is noticed.
func (c *Conn) Watched() []string { return c.watched() }

// Look asks for a look at the streams soon.
func (c *Conn) Look() { c.look() }

// Recheck has a value while a look is asked for.
func (c *Conn) Recheck() <-chan struct{} { return c.recheck }

// CheckStreams looks at the streams.
func (c *Conn) CheckStreams(ctx context.Context) error { return c.checkStreams(ctx) }

// RaiseAgain is after how long replicas that were refused are asked for again.
const RaiseAgain = raiseAgain

// Bound gives a stream that was read some time ago a limit.
func (c *Conn) Bound(ctx context.Context, s jetstream.Stream, limit int64) {
	bound(ctx, c, s, s.CachedInfo().Config, limit)
}

// Measure notes what a stream holds.
func (c *Conn) Measure(info *jetstream.StreamInfo) { measure(c, info) }

// AwaitsRemoval says whether a stream that is not there is made anew only after a while.
func (c *Conn) AwaitsRemoval(stream string) bool {
	return c.removals.isThere(stream)
}

// LossesOf are the losses of a stream that the metric has, by its label.
func (c *Conn) LossesOf(label string) float64 {
	return testutil.ToFloat64(c.config.Metrics.dataLosses.WithLabelValues(label))
}

// Counted are the losses of jobs and results that the metric has.
func (c *Conn) Counted() map[string]float64 {
	return map[string]float64{
		"jobs":    testutil.ToFloat64(c.config.Metrics.dataLosses.WithLabelValues(labelJobs)),
		"results": testutil.ToFloat64(c.config.Metrics.dataLosses.WithLabelValues(labelResults)),
	}
}

// NoteOpen does what a handler does first, when there is a connection.
func (c *Conn) NoteOpen() { c.open.Store(true) }

// NoteOutage does what Watch does when NATS does not answer.
func (c *Conn) NoteOutage() {
	for range pulseMisses {
		c.heard(false)
	}
}
