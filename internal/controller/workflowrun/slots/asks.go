// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

const (
	// places is how many questions to gates of strategy Lock are under way in a process. Each polls
	// Redis while its lock is busy. One lock, of a tenant under a policy, gets half of them at
	// most, so one that the dead hold leaves the rest to others.
	places = 32
	// patience is how long a run waits for the answer before its status says so: as a rule the
	// answer is there sooner, and the write that lets the run in is its first.
	patience = time.Second
)

// AskedError is the error of an Admit whose answer is not there yet: the run is woken when it is.
type AskedError struct{ Since time.Time }

func (*AskedError) Error() string { return "the gate was asked; its answer is not there yet" }

// Asks asks quotas of strategy Lock, which make their callers wait for the lock of the tenant, off
// the workers: a pass never waits. Each lock has a share of the places; who finds none waits in a
// line, and not on a worker either.
//
// An answer is for the run as it was read when its quota was asked. A write of this process carries
// that on; any other ends it, and the quota is asked again: see store.Store.Admit, and what a
// rebuild relies on.
type Asks struct {
	quota  Quota
	shares *shares.Shares
	clock  clock.PassiveClock
	wake   func(key types.NamespacedName, admitted bool)

	mu      sync.Mutex
	byRun   map[types.UID]*ask
	stopped bool
	running sync.WaitGroup
}

// ask is one question; at most one per run.
type ask struct {
	key     types.NamespacedName
	at      Holding
	policy  policy.Effective // what it is asked by, once it has its place
	version string           // resourceVersion of the run for which the answer is good
	since   time.Time        // when it was asked
	cancel  context.CancelFunc
	given   bool // up: nobody takes the answer
	done    bool
	answer  store.Answer
	err     error
}

// NewAsks asks a quota; wake is called with each answer.
func NewAsks(q Quota, c clock.PassiveClock, m shares.KindMetrics, wake func(key types.NamespacedName, admitted bool)) *Asks {
	return &Asks{quota: q, shares: shares.New(places, true, m), clock: c, wake: wake, byRun: map[types.UID]*ask{}}
}

// Admit implements Quota. With strategy Lock it does not wait: its error is an *AskedError until
// the answer is there.
func (g *Asks) Admit(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective) (store.Answer, error) {
	g.renew(run.UID, Holding{tenant, p.Name}, p)
	if !p.Admission.Waits() {
		return g.quota.Admit(ctx, run, tenant, p)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.byRun[run.UID]
	switch {
	case a != nil && !a.done:
		return store.Answer{}, &AskedError{a.since}
	case a != nil && !a.given && a.version == run.ResourceVersion && a.at == Holding{tenant, p.Name}:
		delete(g.byRun, run.UID)
		return a.answer, a.err
	case g.stopped:
		return store.Answer{}, &AskedError{g.clock.Now()} // a successor will ask
	}
	return store.Answer{}, &AskedError{g.begin(ctx, run, tenant, p)}
}

// renew has a question that waits for its place be asked by the policy of now: its limit may be a
// lower one.
func (g *Asks) renew(uid types.UID, at Holding, p policy.Effective) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.byRun[uid]; a != nil && a.at == at {
		a.policy = p
	}
}

// begin begins a question, and says when. Needs mu.
func (g *Asks) begin(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective) (since time.Time) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the pass
	a := &ask{
		key: client.ObjectKeyFromObject(run), at: Holding{tenant, p.Name}, version: run.ResourceVersion, since: g.clock.Now(), cancel: cancel,
		policy: p,
	}
	g.byRun[run.UID] = a
	g.running.Go(func() {
		answer, err := g.answer(ctx, run, a)
		g.answered(context.WithoutCancel(ctx), run, a, answer, err)
	})
	return a.since
}

func (g *Asks) answer(ctx context.Context, run *v1alpha1.WorkflowRun, a *ask) (store.Answer, error) {
	done, err := g.shares.Wait(ctx, a.at.Policy+"/"+a.at.Tenant) // one share for each lock
	if err != nil {
		return store.Answer{}, err
	}
	defer done()
	g.mu.Lock()
	p := a.policy
	g.mu.Unlock()
	return g.quota.Admit(ctx, run, a.at.Tenant, p)
}

// answered notes an answer and wakes its run. Of a question that was given up, what it may have got
// is left: the call may have taken effect after its run left.
func (g *Asks) answered(ctx context.Context, run *v1alpha1.WorkflowRun, a *ask, answer store.Answer, err error) {
	a.cancel()
	g.mu.Lock()
	given, forgotten := a.given, g.byRun[run.UID] == nil
	a.done, a.answer, a.err = !given, answer, err
	g.mu.Unlock()
	if forgotten {
		g.quota.Forget(run.UID) // the quota may have been asked just after
	}
	if given {
		_ = g.quota.GiveUp(ctx, run, a.at.Tenant, a.at.Policy) // if it fails, the resync of the leader finds what is left
		g.mu.Lock()
		delete(g.byRun, run.UID)
		g.mu.Unlock()
	}
	g.wake(a.key, err == nil && answer.Admitted && !given)
}

// Release implements Quota. A question of the run is given up.
func (g *Asks) Release(ctx context.Context, uid types.UID, tenant, policyName string) error {
	g.drop(uid)
	return g.quota.Release(ctx, uid, tenant, policyName)
}

// GiveUp implements Quota. A question of the run is given up.
func (g *Asks) GiveUp(ctx context.Context, run *v1alpha1.WorkflowRun, tenant, policyName string) error {
	g.drop(run.UID)
	return g.quota.GiveUp(ctx, run, tenant, policyName)
}

// drop gives up the question of a run, or its answer.
func (g *Asks) drop(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch a := g.byRun[uid]; {
	case a == nil:
	case a.done:
		delete(g.byRun, uid)
	default:
		a.given = true
		a.cancel()
	}
}

// Forget ends the question of a run that another process drives from now on, and forgets the
// answer. Whatever it got is left to the run: the other process asks for the same.
func (g *Asks) Forget(uid types.UID) {
	g.quota.Forget(uid)
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.byRun[uid]
	if a == nil || a.given { // one that was given up is forgotten once all is left
		return
	}
	a.cancel()
	delete(g.byRun, uid)
}

// Wrote says that this process wrote a run, from one resourceVersion to another. The write was
// accepted, so nobody else wrote since the gate was asked.
func (g *Asks) Wrote(uid types.UID, from, to string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.byRun[uid]; a != nil && a.version == from {
		a.version = to
	}
}

// Start gives up all questions when ctx ends, and waits for their ends.
func (g *Asks) Start(ctx context.Context) error {
	<-ctx.Done()
	g.mu.Lock()
	g.stopped = true
	for _, a := range g.byRun {
		a.cancel()
	}
	g.mu.Unlock()
	g.running.Wait()
	return nil
}
