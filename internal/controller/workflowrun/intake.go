package workflowrun

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// inboxFullDelay is the least wait, before jitter, until a result comes again that found no room.
const inboxFullDelay = time.Second

var errInboxFull = errors.New("too many results wait to be applied")

// intake takes results from the bus, puts them into the inbox of their run and wakes the run.
type intake struct {
	*Reconciler
	strays *strays
}

// accept is called by the bus for each authentic result.
func (in *intake) accept(ctx context.Context, d *bus.Delivery) {
	fact := lifecycle.Result{ID: d.ID, Result: d.Result, PublishedAt: d.PublishedAt}
	if d.Rejected != nil {
		fact.Rejected = d.Rejected.Error()
	}
	l := &letter{fact: fact, since: in.clock.Now(), delivery: d, failures: d.Failures, size: d.Size}
	if key, ok := in.directory.find(types.UID(d.ID.RunUID)); ok {
		in.deliver(ctx, key, l)
		return
	}
	in.strays.park(ctx, l)
}

// deliver puts a result into its run's inbox and wakes the run.
func (in *intake) deliver(ctx context.Context, key types.NamespacedName, l *letter) {
	if !in.inbox.put(key.Namespace, types.UID(l.fact.ID.RunUID), l) {
		in.refuse(ctx, l, in.inbox.comeBack(key.Namespace, l, in.clock.Now()), errInboxFull)
		return
	}
	if _, ok := in.directory.find(types.UID(l.fact.ID.RunUID)); !ok {
		// The run was deleted meanwhile and its inbox may have been emptied already: nobody would look into it again.
		in.inbox.remove(types.UID(l.fact.ID.RunUID), []*letter{l})
		in.strays.park(ctx, l)
		return
	}
	in.wake(key)
}

// refuse gives back a result that found no room. Its wait grows with what its tenant has waiting.
func (in *intake) refuse(ctx context.Context, l *letter, comeBack time.Duration, cause error) {
	in.metrics.refusals.Inc()
	least := policy.BusyRetry{Delay: inboxFullDelay, JitterPercent: storeJitterPercent}.Wait(in.spread())
	in.settle(ctx, l, &again{after: least + comeBack, class: bus.ClassInboxFull, cause: cause}, "")
}
