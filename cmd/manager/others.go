// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/ownership"
)

// others tells from their Leases whether other replicas live: one that shares the runs renews a
// Lease of its own, the leader that of leader election, which a replica that stands by takes over.
// No clocks are compared: a Lease is that of one that lives until it was seen unchanged for
// patience. It is used by one goroutine.
type others struct {
	patience time.Duration
	clock    clock.PassiveClock
	seen     map[string]sighting // by the name of the Lease
}

// sighting is when a version of a Lease was seen first.
type sighting struct {
	version string
	at      time.Time
}

// newOthers judges Leases of these options. Twice the longest is long enough for whoever takes over
// from a leader that ended.
func newOthers(o options, c clock.PassiveClock) *others {
	return &others{patience: 2 * max(o.lease, o.leaderLease), clock: c, seen: map[string]sighting{}}
}

// living names a Lease of a replica that may live; empty: there is none.
func (s *others) living(ctx context.Context, c client.Reader, namespace string) (lease string, err error) {
	var list coordinationv1.LeaseList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("list the Leases of replicas: %w", err)
	}
	for i := range list.Items {
		l := &list.Items[i]
		if l.Name != leaderElectionID && l.Labels[ownership.LeaseLabel] != ownership.MemberLease {
			continue
		}
		if version := string(l.UID) + "/" + l.ResourceVersion; s.seen[l.Name].version != version {
			s.seen[l.Name] = sighting{version, s.clock.Now()}
		}
		if s.clock.Since(s.seen[l.Name].at) < s.patience {
			lease = l.Name
		}
	}
	return lease, nil
}
