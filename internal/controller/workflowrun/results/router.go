// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/bus"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// inboxFullDelay is the least wait, before jitter, until a result is delivered again that
	// found no room.
	inboxFullDelay = time.Second
	// jitterPercent spreads that wait.
	jitterPercent = 20
)

var errInboxFull = errors.New("too many results wait to be applied")

// Options are what a Router needs.
type Options struct {
	Index    *Index
	Inbox    *Inbox
	Settler  *Settler
	Live     client.Reader // reads from the API server
	Clock    clock.WithTicker
	Spread   func() float64 // uniform in [0,1)
	Refusals prometheus.Counter
	// Wake has a pass made over a run soon; WakeAfter when that time has passed, if none is made
	// before. They do not block.
	Wake      func(types.NamespacedName)
	WakeAfter func(types.NamespacedName, time.Duration)
}

// Router puts results into the inbox of their run and wakes the run, later if a job only started.
type Router struct {
	Options
	orphans *Orphans
	moving  sync.Mutex // held while results go from one inbox to the other: Forget finds each in one of them
}

// NewRouter makes a router. Its orphans are to be started.
func NewRouter(o Options) *Router {
	r := &Router{Options: o}
	r.orphans = newOrphans(r)
	return r
}

// Orphans are the results whose run is not known yet.
func (r *Router) Orphans() *Orphans { return r.orphans }

// Forget takes out all that waits for runs of partitions, which this process drives no more. Their
// results were given back to NATS.
func (r *Router) Forget(partitions map[int]bool) {
	r.moving.Lock()
	defer r.moving.Unlock()
	r.Inbox.Forget(partitions)
	r.orphans.parked.Forget(partitions)
}

// Accept is called by the bus for each authentic result.
func (r *Router) Accept(ctx context.Context, d *busresults.Delivery) {
	r.Route(ctx, NewPending(d, r.Clock.Now()))
}

// Route puts a result where it waits: into the inbox of its run, or among the orphans.
func (r *Router) Route(ctx context.Context, p *Pending) {
	if key, ok := r.Index.Find(types.UID(p.Fact.ID.RunUID)); ok {
		r.deliver(ctx, key, p)
		return
	}
	r.orphans.park(ctx, p)
}

// deliver puts a result into its run's inbox and has the run woken.
func (r *Router) deliver(ctx context.Context, key types.NamespacedName, p *Pending) {
	if !r.Inbox.Put(key.Namespace, types.UID(p.Fact.ID.RunUID), p) {
		r.noRoom(ctx, key, p)
		return
	}
	r.entered(ctx, key, p)
}

// move puts the orphans of a run that is known by now into its inbox; full are those that found no
// room there.
func (r *Router) move(key types.NamespacedName, uid types.UID) (put, full []*Pending) {
	r.moving.Lock()
	defer r.moving.Unlock()
	for _, p := range r.orphans.parked.TakeAll(uid) {
		if r.Inbox.Put(key.Namespace, uid, p) {
			put = append(put, p)
		} else {
			full = append(full, p)
		}
	}
	return put, full
}

// entered has the run woken for a result that is in its inbox.
func (r *Router) entered(ctx context.Context, key types.NamespacedName, p *Pending) {
	uid := types.UID(p.Fact.ID.RunUID)
	if _, ok := r.Index.Find(uid); !ok {
		// The run was deleted meanwhile and its inbox may have been emptied already: no pass would
		// look into it again.
		r.putBack(ctx, uid, p)
		return
	}
	if p.Fact.Result.Status == protocol.StatusStarted {
		// It waits for company anyway: a pass now would be in the way of the answer's.
		r.WakeAfter(key, pacing.NewsPatience(p.Fact.ID.Item != protocol.NoItem))
		return
	}
	r.Wake(key)
}

// putBack puts a result of the inbox among the orphans. One that is not there any more was given
// back to NATS, or settled.
func (r *Router) putBack(ctx context.Context, uid types.UID, p *Pending) {
	r.moving.Lock()
	there := r.Inbox.Remove(uid, []*Pending{p}) > 0
	parked := there && r.orphans.parked.Put("", uid, p)
	r.moving.Unlock()
	if there {
		r.orphans.arrived(ctx, p, parked)
	}
}

// noRoom gives back a result that found no room in its run's inbox.
func (r *Router) noRoom(ctx context.Context, key types.NamespacedName, p *Pending) {
	r.refuse(ctx, p, r.Inbox.ReturnAfter(key.Namespace, p, r.Clock.Now()), errInboxFull)
}

// refuse gives back a result that found no room. Its wait grows with what its tenant has waiting.
func (r *Router) refuse(ctx context.Context, p *Pending, after time.Duration, cause error) {
	r.Refusals.Inc()
	least := policy.BusyRetry{Delay: inboxFullDelay, JitterPercent: jitterPercent}.Wait(r.Spread())
	r.Settler.Settle(ctx, p, &RetryError{After: least + after, Class: bus.ClassInboxFull, Cause: cause}, "")
}
