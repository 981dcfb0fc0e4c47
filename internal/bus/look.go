// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Sight is a stream as Look found it.
type Sight struct {
	Name string
	// Info is nil where there is no such stream, or where Err says why it could not be asked about.
	Info   *jetstream.StreamInfo
	Err    error
	Drifts []Drift
}

// Look asks about the streams that config makes, and changes nothing: for people's tools. A stream
// that is not there is no error. Of config it uses Names, Replicas, MemoryStorage and the limits.
func Look(ctx context.Context, nc *nats.Conn, config Config) ([]Sight, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("JetStream context: %w", err)
	}
	c := &Conn{Names: config.Names, config: config}
	var seen []Sight
	for _, want := range c.streamConfigs() {
		seen = append(seen, see(ctx, js, want.Name, func(got jetstream.StreamConfig) []Drift { return streamDrift(want, got) }))
	}
	payloads := see(ctx, js, c.Names.PayloadsStream(), func(got jetstream.StreamConfig) []Drift { return payloadDrift(c.payloadConfig(), got) })
	return append(seen, payloads), nil
}

func see(ctx context.Context, js jetstream.JetStream, name string, drifts func(jetstream.StreamConfig) []Drift) Sight {
	s := Sight{Name: name}
	stream, err := js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
	case err != nil:
		s.Err = err
	default:
		s.Info = stream.CachedInfo()
		got := s.Info.Config
		got.Subjects = slices.Clone(got.Subjects)
		s.Drifts = drifts(got)
	}
	return s
}
