// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// askLimit bounds each question to NATS: to one that the user may not ask there is no answer.
const askLimit = 1500 * time.Millisecond

// lookNATS asks a server about itself, the streams and the consumers.
func lookNATS(ctx context.Context, o Options, operator check.Operator) check.NATS {
	config := o.NATS
	config.Replicas, config.MemoryStorage = operator.Settings.StreamReplica, operator.Settings.Memory
	config.MaxBytes = bus.Divide(operator.Settings.Storage)
	nc, names, err := bus.Dial(ctx, config)
	if err != nil {
		return check.NATS{Unread: check.Unread{
			Why:  "NATS at " + bus.WithoutUser(o.NATS.URL) + " does not answer: " + strings.Join(strings.Fields(err.Error()), " "),
			Hint: forward(operator.Settings.NATSURL, "nats.nats.svc:4222", "nats-url"),
		}}
	}
	defer nc.Close()
	n := check.NATS{Version: nc.ConnectedServerVersion(), MaxPayload: nc.MaxPayload(), User: user(ctx, nc, names)}
	n.Clock.Unread = check.Unread{Why: "no stream was asked about"}
	if n.NoJetStream = noJetStream(ctx, nc); n.NoJetStream != "" || o.Pre {
		n.Consumers.Unread = check.Unread{Why: "JetStream cannot be used"}
		return n
	}
	sent := o.Clock.Now()
	seen, err := bus.Look(ctx, nc, config)
	if err != nil {
		n.NoJetStream = err.Error()
		return n
	}
	for _, s := range seen {
		n.Streams = append(n.Streams, streamOf(s, operator.SettingsUnknown))
		if home := bus.HomeOf(s.Info); home != "" && !slices.Contains(n.Homes, home) {
			n.Homes = append(n.Homes, home)
		}
		if s.Info != nil && !s.Info.TimeStamp.IsZero() {
			n.Clock = clockOf(s.Info.TimeStamp, 0, sent, o.Clock.Now())
		}
	}
	n.Consumers = consumers(ctx, nc, names)
	return n
}

func noJetStream(ctx context.Context, nc *nats.Conn) string {
	js, err := jetstream.New(nc)
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	_, err = js.AccountInfo(ctx)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		return err.Error()
	}
	return "" // the user may not ask, or the answer is late: the streams say more
}

func streamOf(s bus.Sight, settingsUnknown bool) check.Stream {
	out := check.Stream{Name: s.Name, Leader: true}
	switch {
	case s.Err != nil:
		out.Unread = check.Unread{Why: s.Err.Error(), Hint: "it takes the permission to publish to $JS.API.STREAM.INFO." + s.Name}
		return out
	case s.Info == nil:
		out.Missing = true
		return out
	}
	out.Replicas = s.Info.Config.Replicas
	if c := s.Info.Cluster; c != nil {
		out.Leader, out.Behind = c.Leader != "", behind(c)
	}
	for _, d := range s.Drifts {
		slight := d.Field == bus.FieldSubjectLimit // an older operator does not give it
		if settingsUnknown && (slight || d.Field == "num_replicas" || d.Field == "storage") {
			continue // what the operator was told is not known
		}
		text := fmt.Sprintf("%s is %s, and the operator makes it with %s", d.Field, short(d.Got), short(d.Want))
		if slight {
			out.Slight = append(out.Slight, text)
			continue
		}
		out.Drifts = append(out.Drifts, text)
	}
	return out
}

// behind are the replicas that are away or do not follow.
func behind(c *jetstream.ClusterInfo) []string {
	var names []string
	for _, r := range c.Replicas {
		if r.Offline || !r.Current {
			names = append(names, r.Name)
		}
	}
	return names
}

// short bounds a value in a message: there are 64 subjects.
func short(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}

// consumers looks which of those of results are there.
func consumers(ctx context.Context, nc *nats.Conn, names protocol.Names) check.Consumers {
	c := check.Consumers{Wanted: protocol.Partitions}
	js, err := jetstream.New(nc)
	if err != nil {
		c.Unread = check.Unread{Why: err.Error()}
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	stream, err := js.Stream(ctx, names.ResultsStream())
	if err != nil {
		c.Unread = check.Unread{Why: "ask about stream " + names.ResultsStream() + ": " + err.Error()}
		return c
	}
	there := map[string]bool{}
	list := stream.ConsumerNames(ctx)
	for name := range list.Name() {
		there[name] = true
	}
	if err := list.Err(); err != nil {
		c.Unread = check.Unread{Why: "list consumers: " + err.Error(), Hint: "it takes the permission to publish to $JS.API.CONSUMER.NAMES." + names.ResultsStream()}
		return c
	}
	for p := range protocol.Partitions {
		if name := results.ConsumerName(names, p); !there[name] {
			c.Missing = append(c.Missing, name)
		}
	}
	return c
}

// forward says how to reach a server inside the cluster. addrs are those that the
// operator was told.
func forward(addrs, fallback, flag string) string {
	first, _, _ := strings.Cut(addrs, ",")
	if u, err := url.Parse(first); err == nil && u.Host != "" {
		first = u.Host
	}
	first = first[strings.LastIndex(first, "@")+1:] // one that is not understood may have a token or a password
	host, port, err := net.SplitHostPort(first)
	parts := strings.Split(host, ".")
	if err != nil || len(parts) < 3 || parts[2] != "svc" { // name.namespace.svc
		host, port, _ = net.SplitHostPort(fallback)
		parts = strings.Split(host, ".")
	}
	return fmt.Sprintf("kubectl -n %s port-forward svc/%s %s:%s, or say where it is with --%s", parts[1], parts[0], port, port, flag)
}
