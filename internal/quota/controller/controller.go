// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// Options are what a Keeper needs.
type Options struct {
	// Gate keeps the slots.
	Gate *store.Store
	// Client reads runs and policies from the cache, and marks runs during a rebuild.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Wake has the controller look at a run soon. It must not block. nil: nobody is woken, as on
	// replicas that only Reserve.
	Wake func(types.NamespacedName)
	// Clock tells the time; the real one if nil.
	Clock clock.Clock
	// NewID makes marks of rebuilds, no two alike, without spaces; random ones if nil.
	NewID func() string
	// Log receives what the resyncs do. The zero value discards it.
	Log logr.Logger
	// Metrics counts rebuilds; unregistered if nil.
	Metrics *Metrics
	// Ballots counts how tenant-minutes fare in rollouts; nil: they have no votes.
	Ballots *ballot.Box
}

func (o Options) withDefaults() Options {
	if o.Wake == nil {
		o.Wake = func(types.NamespacedName) {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.NewID == nil {
		o.NewID = rand.Text
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return o
}

// Controller lets runs in at their tenants' quotas. Safe for concurrent use, also by many
// processes; Start is for one of them, the leader.
type Controller struct {
	quota   counts
	client  client.Client
	live    client.Reader
	marker  resyncs.Marker
	wake    func(types.NamespacedName)
	clock   clock.Clock
	newID   func() string
	log     logr.Logger
	metrics *Metrics
	trials  trials

	kicks resyncs.Kicks

	mu     sync.Mutex
	names  map[types.UID]types.NamespacedName // of runs that this process asked for and that wait
	wished map[types.UID]bool                 // those of them for which the leader was asked to look when a reservation ends

	// Used by resyncs only.
	suspects map[holding]time.Time   // what a live run has where it does not wait, and since when that is known
	idle     map[holding]time.Time   // what a run that waits could be admitted with, and since when that is known
	unused   map[store.Key]time.Time // keys that hold nothing, and since when that is known
	unknown  map[types.UID]time.Time // runs that have something and that the cache does not know, and since when
}

// New makes a Keeper. It asks nobody anything before the first call.
func New(o Options) *Controller {
	o = o.withDefaults()
	return &Controller{
		quota: counts{o.Gate}, client: o.Client, live: o.Live, wake: o.Wake, clock: o.Clock, newID: o.NewID, log: o.Log, metrics: o.Metrics,
		marker: resyncs.Marker{Client: o.Client, Live: o.Live, Doubts: resyncs.NewDoubts(o.Clock), Name: annotationRebuilt, Log: o.Log},
		trials: trials{o.Ballots, o.Clock, o.Gate, o.Log},
		kicks:  resyncs.NewKicks(), names: map[types.UID]types.NamespacedName{}, wished: map[types.UID]bool{}, suspects: map[holding]time.Time{},
	}
}

// Admit asks for a slot for a run that is not admitted. run must have been read before the call,
// and the write that it is admitted must carry its resourceVersion: what a process was granted
// before Redis lost its data is then refused by the API server. A policy without a name, the
// built-in defaults, has no quota: admitted, with Limit policy.NoLimit.
//
// Errors: as store.Store.Admit; each says when to try again (RetryDelay) and the condition's reason
// (Reason). After an error the run must not be treated as admitted.
func (k *Controller) Admit(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective) (store.Answer, error) {
	if p.Name == "" {
		return store.Answer{Admitted: true, Limit: policy.NoLimit}, nil
	}
	k.remember(run) // before the answer, which may get lost
	at := keyOf(p, tenant)
	var a store.Answer
	err := k.trials.ask(ctx, run, at, p, tenant, func(l store.Limits) error {
		return k.opened(ctx, at, func() (err error) {
			a, err = k.quota.Admit(ctx, at, l, tenant, asked(run))
			return err
		})
	})
	if err != nil {
		return store.Answer{}, fmt.Errorf("ask for a slot: %w", err)
	}
	if a.Admitted {
		k.Forget(run.UID)
	} else if a.Used < a.Limit && a.Reserved+a.AllReserved > 0 {
		k.kicks.Kick() // nobody says when a reservation ends without a run; the resync looks when
		wishOnce(ctx, k, run.UID)
	}
	k.wakeGiven(ctx, at, limitsOf(p, tenant), slices.Concat(a.Given, a.Next))
	return a, nil
}

// Reserve keeps a slot for a run that is about to be created, for ttl; Admit of the same UID turns
// it into a slot. run is as in the admission request, with its UID and final name. A ttl of 0 only
// asks. See store.Store.Reserve.
//
// Errors: as Admit.
func (k *Controller) Reserve(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective, ttl time.Duration) (store.Answer, error) {
	if p.Name == "" {
		return store.Answer{Admitted: true, Limit: policy.NoLimit}, nil
	}
	at := keyOf(p, tenant)
	var a store.Answer
	trials := k.trials
	if ttl == 0 { // a dry run: nothing starts, so there is no vote
		trials.ballots = nil
	}
	err := trials.ask(ctx, run, at, p, tenant, func(l store.Limits) error {
		return k.opened(ctx, at, func() (err error) {
			a, err = k.quota.Reserve(ctx, at, l, tenant, asked(run), ttl)
			return err
		})
	})
	if err != nil {
		return store.Answer{}, fmt.Errorf("reserve a slot: %w", err)
	}
	return a, nil
}

// Release takes from a run whatever it has under a policy, and wakes who is next: the run ended, is
// gone, was suspended before it was admitted, or is governed by another policy now. policyName is
// that of status.admission.policy or, if the run is not admitted, the one under which it was asked
// for last; "" is nothing to leave. Idempotent. While the data is being rebuilt there is nothing to
// wait for: the resync after that looks at all runs.
//
// Errors: *store.UnavailableError, and those of reading the cache or a run. The next resync of the
// leader does what was not done; whoever repeats the call has it sooner.
func (k *Controller) Release(ctx context.Context, uid types.UID, tenant, policyName string) error {
	if policyName == "" {
		return nil
	}
	name, waited := k.nameOf(uid)
	at, limits, err := k.limitsNow(ctx, policyName, tenant)
	if err != nil {
		return err
	}
	var next []store.Next
	err = ifUsed(ctx, k, at, func() (err error) {
		next, err = k.quota.Release(ctx, at, limits, string(uid))
		return err
	})
	if isClosed(err) {
		k.Forget(uid) // nothing else would, in a process that has no resyncs
		return nil
	}
	if err == nil && waited {
		k.Forget(uid)
		err = k.putBack(ctx, holding{at, uid}, name)
	}
	if err = errors.Join(err, k.wakeNext(ctx, at, limits, next)); err != nil {
		k.kicks.After(store.Unusable(err))
		return fmt.Errorf("leave the gate: %w", err)
	}
	return nil
}

// GiveUp is Release for a run whose question, an Admit, ended only after its run was released:
// another process may drive the run by now, and have got a slot for it, which is given back to it.
//
// Errors: as Release.
func (k *Controller) GiveUp(ctx context.Context, run *v1alpha1.WorkflowRun, tenant, policyName string) error {
	k.remember(run)
	defer k.Forget(run.UID) // also where it could not be released: nobody repeats this call
	return k.Release(ctx, run.UID, tenant, policyName)
}

// PolicyChanged is called after a policy was made, changed or deleted, when the cache has it: a
// resync wakes whoever can be admitted now, or is governed by another policy. It does not block.
func (k *Controller) PolicyChanged() { k.kicks.Tell() }

// putBack gives the slot back to a run that was taken for one that does not need it, if it turns
// out to be admitted: whoever saw it waiting may have been paused for long since.
func (k *Controller) putBack(ctx context.Context, s holding, name types.NamespacedName) error {
	cached, err := k.cached(ctx, name)
	if err != nil || cached == nil || cached.uid != s.uid || cached.finished {
		return err
	}
	now, err := k.read(ctx, name, s.uid)
	if err != nil || now == nil || now.uid != s.uid || !now.under(s.at) {
		return err
	}
	return k.opened(ctx, s.at, func() error { return k.quota.Restore(ctx, s.at, []store.Member{now.member()}) })
}

func (k *Controller) remember(run *v1alpha1.WorkflowRun) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.names[run.UID] = client.ObjectKeyFromObject(run)
}

// Forget forgets a run that does not wait any more, or that another process drives from now on.
// What it has stays its own.
func (k *Controller) Forget(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget(uid)
}

// forget is Forget. The caller has the mutex.
func (k *Controller) forget(uid types.UID) {
	delete(k.names, uid)
	delete(k.wished, uid)
}

func (k *Controller) nameOf(uid types.UID) (types.NamespacedName, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, ok := k.names[uid]
	return name, ok
}

// limitsNow is what a policy says by the cache, and where it counts the tenant. Of one that is
// deleted nobody is let in, so nobody is woken; a pool that it had is left to the resync.
func (k *Controller) limitsNow(ctx context.Context, name, tenant string) (store.Key, store.Limits, error) {
	p := &v1alpha1.LockPolicy{}
	if err := k.client.Get(ctx, types.NamespacedName{Name: name}, p); err != nil {
		if apierrors.IsNotFound(err) {
			return store.Key{Policy: name, Tenant: tenant}, store.Limits{}, nil
		}
		return store.Key{}, store.Limits{}, fmt.Errorf("read lock policy %s: %w", name, err)
	}
	e := policy.Of(p)
	return keyOf(e, tenant), limitsOf(e, tenant), nil
}

func limitsOf(p policy.Effective, tenant string) store.Limits {
	l := store.Limits{Max: p.Admission.Limit(tenant), Shares: p.Admission.Shares()}
	if s := p.Admission.Lock; s != nil {
		l.Lock = &store.LockSettings{TTL: s.TTL, MaxWait: s.MaxWait, Retry: s.Retry}
	}
	return l
}

// asked is a run as the quota knows it.
func asked(run *v1alpha1.WorkflowRun) store.Run {
	return store.Run{
		UID: string(run.UID), Name: run.Namespace + "/" + run.Name, Priority: run.Spec.Priority, Created: run.CreationTimestamp.Time,
	}
}

// isClosed says whether the quota has no data to decide on.
func isClosed(err error) bool {
	_, ok := errors.AsType[*store.RebuildingError](err)
	return ok
}
