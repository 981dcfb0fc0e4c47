// SPDX-License-Identifier: Apache-2.0

package check

import "fmt"

const (
	// minPayload takes every message of the operator; usualPayload is NATS' default.
	minPayload   = 256 << 10
	usualPayload = 1 << 20
)

// judgeNATSServer says what holds before there are streams, too.
func judgeNATSServer(f Facts) []Finding {
	n := f.NATS
	if n.Why != "" {
		return unreadAll(n.Unread, NATSVersion, NATSMaxPayload)
	}
	found := NATSVersion.version("NATS", n.Version, minNATS)
	if n.NoJetStream != "" && f.Pre {
		found = append(found, n.noJetStream())
	}
	switch {
	case n.MaxPayload < minPayload:
		found = append(found, NATSMaxPayload.find(Failed, "raise max_payload to 1MB", "max_payload is %d bytes: jobs and results may be up to %d", n.MaxPayload, minPayload))
	case n.MaxPayload < usualPayload:
		found = append(found, NATSMaxPayload.find(Warning, "raise max_payload to 1MB", "max_payload is %d bytes, below NATS' default of %d", n.MaxPayload, usualPayload))
	default:
		found = append(found, NATSMaxPayload.ok("max_payload is %d bytes", n.MaxPayload)...)
	}
	return found
}

func (n NATS) noJetStream() Finding {
	return NATSStreams.find(Failed, "enable JetStream, for the operator's account too", "JetStream cannot be used: %s", n.NoJetStream)
}

func judgeStreams(f Facts) []Finding {
	n := f.NATS
	switch {
	case n.Why != "":
		return unreadAll(n.Unread, NATSStreams, NATSDrift, NATSReplicas)
	case n.NoJetStream != "":
		return append([]Finding{n.noJetStream()}, unreadAll(Unread{Why: "JetStream cannot be used"}, NATSDrift, NATSReplicas)...)
	}
	var there, drift, replicas []Finding
	for _, s := range n.Streams {
		there = append(there, s.there()...)
		drift = append(drift, s.drift()...)
		if len(s.Behind) > 0 {
			replicas = append(replicas, NATSReplicas.find(Warning, "look at the NATS servers: nats server report jetstream", "%s: replicas are away or behind: %s", s.Name, some(s.Behind)))
		}
	}
	if one := n.single(); len(replicas) == 0 && one != "" {
		replicas = append(replicas, NATSReplicas.find(Warning, "three NATS servers, --nats-replicas=3, and sync_interval: always (docs/install.md, How NATS keeps data)", "%s", one))
	}
	found := NATSStreams.orOK(there, "%d streams are there", len(n.Streams))
	found = append(found, NATSDrift.orOK(drift, "the streams are as the operator makes them")...)
	return append(found, NATSReplicas.orOK(replicas, "the streams have replicas, and all follow")...)
}

func (s Stream) there() []Finding {
	switch {
	case s.Missing:
		return []Finding{NATSStreams.find(Failed, "a running operator makes it: look at its log; is --nats-prefix that of the operator?", "stream %s is not there", s.Name)}
	case s.Why != "":
		return []Finding{NATSStreams.find(Unknown, s.Hint, "stream %s: cannot tell: %s", s.Name, s.Why)}
	case !s.Leader:
		return []Finding{NATSStreams.find(Failed, "look at the NATS servers: most of them must be up", "stream %s has no leader: it takes nothing", s.Name)}
	}
	return nil
}

// drift says what is not as the operator makes it.
func (s Stream) drift() (found []Finding) {
	if len(s.Drifts) > 0 {
		found = append(found, NATSDrift.find(Failed, "nats stream edit, or the operator's flags: of a stream that exists the operator only raises its limits", "%s: %s", s.Name, some(s.Drifts)))
	}
	if len(s.Slight) > 0 {
		found = append(found, NATSDrift.find(Warning, "nats stream edit, or wait: an older operator does not give it, nor where letters of a run that may be redriven would be lost", "%s: %s", s.Name, some(s.Slight)))
	}
	return found
}

// single says that a stream is kept by one server.
func (n NATS) single() string {
	for _, s := range n.Streams {
		if !s.Missing && s.Why == "" && s.Replicas < 2 {
			return fmt.Sprintf("%s is kept by one server: when that is lost, so are jobs and results", s.Name)
		}
	}
	return ""
}

func judgeConsumers(f Facts) []Finding {
	c := f.NATS.Consumers
	switch {
	case f.NATS.Why != "":
		return NATSConsumers.unread(f.NATS.Unread)
	case c.Why != "":
		return NATSConsumers.unread(c.Unread)
	case len(c.Missing) > 0:
		return []Finding{NATSConsumers.find(Failed, "the owner of a partition makes its consumer: look at the operator's log",
			"%d of %d consumers of results are missing: %s", len(c.Missing), c.Wanted, some(c.Missing))}
	}
	return NATSConsumers.ok("%d consumers of results are there", c.Wanted)
}

func judgeUser(f Facts) []Finding {
	u := f.NATS.User
	switch {
	case f.NATS.Why != "":
		return NATSRights.unread(f.NATS.Unread)
	case u.Why != "":
		return NATSRights.unread(u.Unread)
	case len(u.Missing) > 0:
		return []Finding{NATSRights.find(Warning, "if these are the operator's credentials, give it the permissions of docs/protocol.md",
			"%s, as whom this check connected, may not publish all that the operator publishes: %s", u.Name, some(u.Missing))}
	}
	return NATSRights.ok("%s may publish what the operator publishes", u.Name)
}
