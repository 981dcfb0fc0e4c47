// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// broker is the connection to NATS, and what uses it.
type broker struct {
	conn          *bus.Conn
	keys          *keys.Live
	jobs          *jobs.Queue
	reader        *results.Reader
	results       *results.Consumer
	resultMetrics *results.Metrics
	payloads      *payloads.Store
}

// newBroker wires what uses NATS. It needs no NATS to be there.
func newBroker(ctx context.Context, o options, self identity, load func(context.Context) (keys.Keyring, error), log logr.Logger) (*broker, error) {
	signing, err := keys.New(self.keys, load, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	config := o.nats.busConfig(self, log, bus.NewMetrics(metrics.Registry))
	config.Rand = o.spread()
	conn, err := bus.Connect(ctx, config)
	if err != nil {
		return nil, err
	}
	b := &broker{
		conn: conn, keys: signing, payloads: payloads.New(conn),
		reader: results.NewReader(conn, signing), resultMetrics: results.NewMetrics(metrics.Registry),
	}
	b.results = results.NewConsumer(conn, signing, deadletters.NewWriter(conn), results.Options{
		AckPending: o.nats.resultAckPending, Metrics: b.resultMetrics,
	})
	b.jobs = jobs.New(conn, signing, b.reader, jobs.Options{
		MaxAckPending: o.nats.maxAckPending, MaxTopics: o.nats.maxTopics, Metrics: jobs.NewMetrics(metrics.Registry),
	})
	return b, nil
}

func (n natsOptions) busConfig(self identity, log logr.Logger, m *bus.Metrics) bus.Config {
	return bus.Config{
		URL: n.url, Names: protocol.Names{Prefix: n.prefix}, Replicas: n.replicas, MemoryStorage: n.memory,
		CredentialsFile: n.credsFile, CAFile: n.caFile, CertFile: n.certFile, KeyFile: n.keyFile, User: n.user, Password: n.password,
		Installation: self.installation, TakeOver: n.takeOver, Clock: clock.RealClock{}, Log: log, Metrics: m,
	}
}
