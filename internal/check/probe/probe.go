// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

const (
	// firstLimit is for the Deployment, which says where the rest is; categoryLimit for each
	// category after that. Both together are less than 10 s.
	firstLimit    = 2 * time.Second
	categoryLimit = 6 * time.Second
)

// Options say where to look.
type Options struct {
	Config    *rest.Config
	Namespace string // for dry runs of runs
	Operator  string // the namespace of the operator
	Pre       bool
	NATS      bus.Config
	Redis     lockmgr.ClientConfig
	Manifests []client.Object
	Clock     clock.PassiveClock
}

// Gather collects the facts. What cannot be had is in them, with why.
func Gather(ctx context.Context, o Options) (check.Facts, error) {
	k, err := newKube(o.Config)
	if err != nil {
		return check.Facts{}, err
	}
	f := check.Facts{Now: o.Clock.Now(), Pre: o.Pre}
	if !o.Pre {
		within(ctx, firstLimit, func(ctx context.Context) { f.Operator = k.operator(ctx, o.Operator) })
	}
	var all sync.WaitGroup
	look := func(category func(context.Context)) { all.Go(func() { within(ctx, categoryLimit, category) }) }
	look(func(ctx context.Context) { f.Server = k.server(ctx, o.Clock) })
	look(func(ctx context.Context) { f.NATS = lookNATS(ctx, o, f.Operator) })
	look(func(ctx context.Context) { f.Redis = lookRedis(ctx, o, f.Operator) })
	if o.Pre {
		look(func(ctx context.Context) { f.Install = k.install(ctx, o.Operator) })
	} else {
		k.installed(look, &f, o)
	}
	all.Wait()
	return f, nil
}

// installed looks at what is there only after installing. Each look writes a field of its own.
func (k *kube) installed(look func(func(context.Context)), f *check.Facts, o Options) {
	leader := f.Operator.Settings.Leader
	look(func(ctx context.Context) { f.CRDs = k.crds(ctx) })
	look(func(ctx context.Context) { f.Admission = k.admission(ctx, o.Operator, f.Operator) })
	look(func(ctx context.Context) { f.Fence = k.fence(ctx) })
	look(func(ctx context.Context) { f.Rights = k.rights(ctx, o.Operator, f.Operator) })
	look(func(ctx context.Context) { f.Webhook = k.webhook(ctx, o.Namespace) })
	look(func(ctx context.Context) { f.Partitions = k.partitions(ctx, o.Operator, leader) })
	look(func(ctx context.Context) { f.Elsewhere = k.elsewhere(ctx, o.Operator, f.Operator) })
	look(func(ctx context.Context) { f.Policies = k.policies(ctx) })
	look(func(ctx context.Context) { f.Manifests = k.manifests(ctx, o) })
}

func within(ctx context.Context, limit time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	do(ctx)
}
