// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// owner says what this replica owns, and has the work begin and end as that changes.
type owner interface {
	manager.Runnable
	Owns(partition int) bool
	While(ctx context.Context, partition int) (context.Context, context.CancelFunc)
	ProcessGone(process string) bool
}

// newOwner makes the owner that --ownership asks for.
func newOwner(mgr manager.Manager, o options, a adapters, h ownership.Handler) (owner, error) {
	figures := ownership.NewMetrics(metrics.Registry)
	if !o.shards() {
		alone := ownership.NewAlone(h, stopTimeout/2)
		a.agreed.lead.owner.Store(alone)
		return alone, nil
	}
	// What the cache says may be old: who owns what is read live.
	live, err := client.NewWithWatch(a.config, client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("reach the API server for ownership: %w", err)
	}
	return ownership.New(ownership.Options{
		Client: live, Namespace: o.namespace, Installation: a.installation, Prefix: o.nats.prefix,
		Member: memberName(o.holder, a.process), LeaderLease: leaderElectionID, Handler: h, Fit: a.fit, Redis: a.agreed.all,
		Clock: clock.RealClock{}, Spread: o.spread(), Log: mgr.GetLogger().WithName("ownership"), Metrics: figures,
		Timing:          ownership.Timing{Lease: o.lease},
		InstallationNow: func(ctx context.Context) (string, error) { return installationOf(ctx, live) },
	}), nil
}

// joined is ready once this replica can be given partitions. One that a rollout stops before that
// would have nobody to hand its own to. With one leader there is no need: whoever leads drives all.
func joined(o owner) func(*http.Request) error {
	member, shares := o.(interface{ Joined() bool })
	return func(*http.Request) error {
		if shares && !member.Joined() {
			return errors.New("has not joined the other replicas yet; if that lasts: may the operator write Leases, and read and write ConfigMaps, in its namespace? Did a newer version write the ConfigMap " + ownership.ObjectName + "? Its log says")
		}
		return nil
	}
}

// longestPod is how much of a pod's name is part of a member's: Leases have names of 253.
const longestPod = 180

// memberName names this process among all that are or were: a pod has several in its life.
func memberName(holder, process string) string {
	pod := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(holder))
	return strings.Trim(pod[:min(len(pod), longestPod)], "-") + "." + process
}

// fit says whether this replica could work on runs: it reaches what that takes.
func (a adapters) fit(ctx context.Context) error {
	if err := a.locks.Ping(ctx); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	_ = store.Own(ctx, a.quota) // tells a.agreed which Redis it is; readyz says what is wrong
	if err := a.conn.Ready(ctx); err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	return nil
}
