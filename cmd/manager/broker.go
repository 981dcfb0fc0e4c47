// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/resource"
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

type natsOptions struct {
	url              string
	prefix           string
	takeOver         string
	replicas         int
	memory           bool
	storage          byteSize
	resultAckPending int
	maxAckPending    int
	maxTopics        int
	credsFile        string
	authDir          string
	caFile           string
	certFile         string
	keyFile          string
	user             string // NATS_USER
	password         string // NATS_PASSWORD
}

func (n *natsOptions) bind(f *flag.FlagSet) {
	f.StringVar(&n.url, "nats-url", "nats://127.0.0.1:4222", "NATS servers, separated by commas.")
	f.StringVar(&n.prefix, "nats-prefix", protocol.DefaultPrefix, "First token of all subjects; in capitals the first word of the streams' names.")
	f.StringVar(&n.takeOver, "nats-take-over", "", "Installation (the UID of its cluster's namespace kube-system) whose streams, and what it left in Redis, become this cluster's: when this one was made anew in the place of that, which is gone for good. A cluster that was restored from a backup of etcd has the name of before. Or a namespace of this cluster whose operator was stopped for good, where the namespace stays.")
	f.IntVar(&n.replicas, "nats-replicas", 1, "Replicas of each stream: 1, 3 or 5. Streams that exist get more, and never fewer.")
	f.BoolVar(&n.memory, "nats-memory-storage", false, "Keep streams in memory instead of on disk: for tests only.")
	f.Var(&n.storage, "nats-storage", "Bytes that all streams together may take of a NATS server, such as 16Gi: each has its part of them, so that one that is full refuses what comes and the others go on. Less than the server's max_file. 0: no limits.")
	f.IntVar(&n.maxAckPending, "nats-max-ack-pending", 10000, "Jobs of one topic that may be with workers at the same time.")
	f.IntVar(&n.maxTopics, "nats-max-topics", 1000, "Topics with a consumer in NATS. Jobs of one more wait until others were unused for 7 days; see syncopate.dev/allowed-topics.")
	f.IntVar(&n.resultAckPending, "nats-result-ack-pending", 8_000_000, "Results that NATS may keep account of until they are in status, in 64 consumers, each an equal part: also those given back for a while. It bounds NATS' bookkeeping, about 100 bytes each; a small value lets the delayed results of one run hold up those of others.")
	f.StringVar(&n.credsFile, "nats-creds", "", "NATS credentials file. User and password may be given by $NATS_USER and $NATS_PASSWORD instead.")
	f.StringVar(&n.caFile, "nats-ca", "", "CA certificates to verify NATS with.")
	f.StringVar(&n.certFile, "nats-cert", "", "Client certificate for NATS.")
	f.StringVar(&n.keyFile, "nats-key", "", "Key of the client certificate for NATS.")
	f.StringVar(&n.authDir, "nats-auth-dir", "", "Directory of a mounted Secret with the entries user and password, which go before the variables. Read for each connection.")
}

func (n *natsOptions) busConfig(self identity, log logr.Logger, m *bus.Metrics) bus.Config {
	return bus.Config{
		URL: n.url, Names: protocol.Names{Prefix: n.prefix}, Replicas: n.replicas, MemoryStorage: n.memory, MaxBytes: bus.Divide(int64(n.storage)),
		CredentialsFile: n.credsFile, AuthDir: n.authDir, CAFile: n.caFile, CertFile: n.certFile, KeyFile: n.keyFile, User: n.user, Password: n.password,
		Installation: self.installation, Home: self.home, HomeGone: self.homeGone, TakeOver: n.takeOver, Clock: clock.RealClock{}, Log: log, Metrics: m,
	}
}

// leastStorage leaves each stream room for some messages: a part of 64 is 4 MiB.
const leastStorage = 256 << 20

// byteSize is a flag for bytes, as Kubernetes writes quantities.
type byteSize int64

// String writes it without loss.
func (b *byteSize) String() string {
	return resource.NewQuantity(int64(*b), resource.BinarySI).String()
}

// Set reads it.
func (b *byteSize) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("%q is no quantity such as 16Gi: %w", text, err)
	}
	*b = byteSize(q.Value())
	return nil
}

// redactedURL is the servers' addresses for the log.
func (n *natsOptions) redactedURL() string { return bus.WithoutUser(n.url) }
