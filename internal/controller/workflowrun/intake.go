package workflowrun

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// inboxFullDelay is the wait before a result that found the inbox full comes again.
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
	l := &letter{fact: fact, since: in.clock.Now(), delivery: d, failures: d.Failures}
	if key, ok := in.directory.find(types.UID(d.ID.RunUID)); ok {
		in.deliver(ctx, key, l)
		return
	}
	in.strays.park(ctx, l)
}

// deliver puts a result into its run's inbox and wakes the run.
func (in *intake) deliver(ctx context.Context, key types.NamespacedName, l *letter) {
	if !in.inbox.put(types.UID(l.fact.ID.RunUID), l) {
		in.settle(ctx, l, &again{after: inboxFullDelay, class: bus.ClassInboxFull, cause: errInboxFull}, "")
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
