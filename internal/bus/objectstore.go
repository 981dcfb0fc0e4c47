// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// payloadConfig is the object store of large outputs. Nothing in it expires: an output lives as
// long as its run.
func (c *Conn) payloadConfig() jetstream.ObjectStoreConfig {
	store := jetstream.ObjectStoreConfig{
		Bucket: c.Names.PayloadsBucket(), Description: "Outputs of Syncopate runs that are too large for their status",
		MaxBytes: limit(c.config.MaxBytes.Payloads), Storage: jetstream.FileStorage, Replicas: c.config.Replicas, Metadata: c.metadata(),
	}
	if c.config.MemoryStorage {
		store.Storage = jetstream.MemoryStorage
	}
	return store
}

// ensurePayloads creates the object store if it is absent.
func (c *Conn) ensurePayloads(ctx context.Context) ([]Drift, error) {
	if err := awaitRemoval(ctx, c, c.Names.PayloadsStream()); err != nil {
		return nil, err
	}
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	want := c.payloadConfig()
	s, err := askFor(ctx, c, c.Names.PayloadsStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = c.JetStream.CreateObjectStore(ctx, want)
		err = unbounded(want.MaxBytes, err, func() error {
			without := want
			without.MaxBytes = limit(0)
			_, err := c.JetStream.CreateObjectStore(ctx, without)
			return err
		})
		if err == nil || errors.Is(err, jetstream.ErrBucketExists) { // another replica was faster
			s, err = c.JetStream.Stream(ctx, c.Names.PayloadsStream())
		}
	}
	if err != nil {
		return nil, err
	}
	c.removals.sawThere(c.Names.PayloadsStream())
	got, err := own(ctx, c, s)
	if err != nil {
		return nil, err
	}
	got = enlarge(ctx, c, s, got, jetstream.StreamConfig{MaxBytes: want.MaxBytes, Replicas: want.Replicas})
	return payloadDrift(want, got), nil
}

func payloadDrift(want jetstream.ObjectStoreConfig, got jetstream.StreamConfig) []Drift {
	return append(drift(got.Name, []setting{
		{"storage", want.Storage, got.Storage},
		{"num_replicas", want.Replicas, got.Replicas},
		{"max_age", want.TTL, got.MaxAge},
	}), limitDrift(got.Name, "max_bytes", want.MaxBytes, got.MaxBytes)...)
}
