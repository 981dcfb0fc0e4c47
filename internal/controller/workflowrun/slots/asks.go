// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	run     *v1alpha1.WorkflowRun // in outline
	at      Holding
	policy  policy.Effective   // what it is asked by, once it has its place
	ticket  *shares.Ticket     // its place, or that in the line for one
	put     bool               // to the quota: it has its place
	version string             // resourceVersion of the run for which the answer is good
	since   time.Time          // when it was asked
	cancel  context.CancelFunc // once it is put
	given   bool               // up: nobody takes the answer
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

// begin begins a question, and says when. Needs mu. While it waits for its place it is a ticket in
// a line, and no goroutine: those of a tenant whose lock is busy may be thousands.
func (g *Asks) begin(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective) (since time.Time) {
	ctx = context.WithoutCancel(ctx) // it outlives the pass
	a := &ask{run: outline(run), at: Holding{tenant, p.Name}, version: run.ResourceVersion, since: g.clock.Now(), policy: p}
	g.byRun[run.UID] = a
	a.ticket = g.shares.Take(a.at.Policy+"/"+a.at.Tenant, func() { // one share for each lock
		g.mu.Lock()
		defer g.mu.Unlock()
		g.put(ctx, a)
	})
	if g.shares.Has(a.ticket) {
		g.put(ctx, a)
	}
	return a.since
}

// outline is a run with no more than a quota asks for: the whole of it may be large.
func outline(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{
			Name: run.Name, Namespace: run.Namespace, UID: run.UID, ResourceVersion: run.ResourceVersion, CreationTimestamp: run.CreationTimestamp,
		},
		Spec: v1alpha1.WorkflowRunSpec{Priority: run.Spec.Priority},
	}
}

// put puts a question that has its place to the quota. Needs mu. Whoever took it out of the line
// gives its place back.
func (g *Asks) put(ctx context.Context, a *ask) {
	if a.put || g.byRun[a.run.UID] != a {
		return
	}
	a.put = true
	ctx, a.cancel = context.WithCancel(ctx)
	p := a.policy
	g.running.Go(func() {
		answer, err := g.quota.Admit(ctx, a.run, a.at.Tenant, p)
		g.shares.Give(a.ticket)
		g.answered(context.WithoutCancel(ctx), a, answer, err)
	})
}

// answered notes an answer and wakes its run. Of a question that was given up, what it may have got
// is left: the call may have taken effect after its run left.
func (g *Asks) answered(ctx context.Context, a *ask, answer store.Answer, err error) {
	a.cancel()
	run := a.run
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
	g.wake(client.ObjectKeyFromObject(run), err == nil && answer.Admitted && !given)
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
	case !a.put:
		g.leaveLine(a)
	default:
		a.given = true
		a.cancel()
	}
}

// leaveLine takes a question out of the line that was not put to the quota. Needs mu. It may have
// got its place at this moment: who is next by that is told without mu.
func (g *Asks) leaveLine(a *ask) {
	delete(g.byRun, a.run.UID)
	g.running.Go(func() { g.shares.Give(a.ticket) })
}

// Forget ends the question of a run that another process drives from now on, and forgets the
// answer. Whatever it got is left to the run: the other process asks for the same.
func (g *Asks) Forget(uid types.UID) {
	g.quota.Forget(uid)
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.byRun[uid]
	switch {
	case a == nil || a.given: // one that was given up is forgotten once all is left
	case !a.put:
		g.leaveLine(a)
	default:
		a.cancel()
		delete(g.byRun, uid)
	}
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
		if a.put {
			a.cancel()
			continue
		}
		g.leaveLine(a)
	}
	g.mu.Unlock()
	g.running.Wait()
	return nil
}
