// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// newerDelay is the least wait, before jitter, until a result comes again whose run needs a newer
// operator. That comes with a roll-out: it is a matter of minutes or hours, and each return costs
// the way from NATS for nothing.
const newerDelay = 30 * time.Second

// newerJitterPercent spreads that wait.
const newerJitterPercent = 20

// newerError says that a run needs an operator of a newer version.
type newerError struct{ version int32 }

func (e *newerError) Error() string {
	return fmt.Sprintf("the run needs an operator that writes version %d of its status; this one writes version %d", e.version, v1alpha1.WriterVersion)
}

// needsNewer says whether the run, or its parent, needs an operator of a newer version; nil:
// it does not.
func (p *pass) needsNewer() *newerError {
	version := p.run.NeedsNewer()
	if p.relatives.Parent != nil {
		version = max(version, p.relatives.Parent.NeedsNewer)
	}
	if version == 0 {
		return nil
	}
	return &newerError{version}
}

// leaveToNewer ends a pass over a run that needs a newer operator: no lock, no write, no job; its
// results go back to NATS, where they count as no failure. People are told once by this process,
// and the metric counts such runs.
func (p *pass) leaveToNewer(ctx context.Context, cause *newerError) reconcile.Result {
	p.r.Leases.Cache.Drop(ctx, p.run.UID)
	p.r.Dispatch.Forget(string(p.run.UID)) // no pass over it here says when its jobs are done
	if p.mem.toldNewer != cause.version {
		p.mem.toldNewer = cause.version
		log.FromContext(ctx).Info("The run is left alone", "cause", cause.Error())
		p.r.Events.Eventf(p.run, nil, corev1.EventTypeWarning, "NeedsNewerOperator", "Advance", "Left alone: %s", cause.Error())
	}
	p.batch.HandBackAll(ctx, p.key.Namespace, bus.ClassNeedsNewer, cause, func() time.Duration {
		return policy.BusyRetry{Delay: newerDelay, JitterPercent: newerJitterPercent}.Wait(p.r.Rand())
	})
	return p.again(p.r.Clock.Now().Add(lookAgain))
}
