package workflowrun

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
	// gatePlaces is how many questions to gates of strategy Lock are under way in a process. Each polls Redis while its lock is busy. One
	// lock, of a tenant under a policy, gets half of them at most, so one that the dead hold leaves the rest to others.
	gatePlaces = 32
	// gatePatience is how long a run waits for the answer of its gate before its status says so: as a rule the answer is there sooner, and
	// the write that lets the run in is its first.
	gatePatience = time.Second
)

// askedError is the error of an Admit whose answer is not there yet: the run is woken when it is.
type askedError struct{ since time.Time }

func (*askedError) Error() string { return "the gate was asked; its answer is not there yet" }

// gateAsks asks gates of strategy Lock, which make their callers wait for the lock of the tenant, off the workers: a pass never waits. Each
// lock has a share of the places; who finds none waits in a line, and not on a worker either.
//
// An answer is for the run as it was read when its gate was asked. A write of this process carries that on; any other ends it, and the
// gate is asked again: see store.Gate.Admit, and what a rebuild relies on.
//
//	Admit: no answer yet    --> asked --> answered --> wake; the next Admit takes the answer
//	Leave: given up         --> its end is waited for, and what it may have got is left
type gateAsks struct {
	gates
	shares *shares.Shares
	clock  clock.PassiveClock
	wake   func(key types.NamespacedName, admitted bool)

	mu      sync.Mutex
	byRun   map[types.UID]*gateAsk
	stopped bool
	running sync.WaitGroup
}

// gateAsk is one question; at most one per run.
type gateAsk struct {
	key     types.NamespacedName
	at      stay
	version string    // resourceVersion of the run for which the answer is good
	since   time.Time // when it was asked
	cancel  context.CancelFunc
	given   bool // up: nobody takes the answer
	done    bool
	answer  store.Answer
	err     error
}

func newGateAsks(g gates, c clock.PassiveClock, m shares.KindMetrics, wake func(key types.NamespacedName, admitted bool)) *gateAsks {
	return &gateAsks{gates: g, shares: shares.New(gatePlaces, true, m), clock: c, wake: wake, byRun: map[types.UID]*gateAsk{}}
}

// Admit implements gates. With strategy Lock it does not wait: its error is an *askedError until the answer is there.
func (g *gateAsks) Admit(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective) (store.Answer, error) {
	if p.Admission.Lock == nil {
		return g.gates.Admit(ctx, run, tenant, p)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.byRun[run.UID]
	switch {
	case a != nil && !a.done:
		return store.Answer{}, &askedError{a.since}
	case a != nil && !a.given && a.version == run.ResourceVersion && a.at == stay{tenant, p.Name}:
		delete(g.byRun, run.UID)
		return a.answer, a.err
	case g.stopped:
		return store.Answer{}, &askedError{g.clock.Now()} // a successor will ask
	}
	return store.Answer{}, &askedError{g.ask(ctx, run, tenant, p)}
}

// ask begins a question, and says when. Needs mu.
func (g *gateAsks) ask(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective) (since time.Time) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the pass
	a := &gateAsk{
		key: client.ObjectKeyFromObject(run), at: stay{tenant, p.Name}, version: run.ResourceVersion, since: g.clock.Now(), cancel: cancel,
	}
	g.byRun[run.UID] = a
	g.running.Go(func() {
		answer, err := g.answer(ctx, run, a.at, p)
		g.answered(context.WithoutCancel(ctx), run.UID, a, answer, err)
	})
	return a.since
}

func (g *gateAsks) answer(ctx context.Context, run *v1alpha1.WorkflowRun, at stay, p policy.Effective) (store.Answer, error) {
	done, err := g.shares.Wait(ctx, at.policy+"/"+at.tenant) // one share for each lock
	if err != nil {
		return store.Answer{}, err
	}
	defer done()
	return g.gates.Admit(ctx, run, at.tenant, p)
}

// answered notes an answer and wakes its run. Of a question that was given up, what it may have got is left: the call may have taken
// effect after its run left.
func (g *gateAsks) answered(ctx context.Context, uid types.UID, a *gateAsk, answer store.Answer, err error) {
	a.cancel()
	g.mu.Lock()
	given := a.given
	a.done, a.answer, a.err = !given, answer, err
	g.mu.Unlock()
	if given {
		_ = g.gates.Leave(ctx, uid, a.at.tenant, a.at.policy) // if it fails, the round of the leader finds what is left
		g.mu.Lock()
		delete(g.byRun, uid)
		g.mu.Unlock()
	}
	g.wake(a.key, err == nil && answer.Admitted && !given)
}

// Leave implements gates. A question of the run is given up.
func (g *gateAsks) Leave(ctx context.Context, uid types.UID, tenant, policyName string) error {
	g.mu.Lock()
	switch a := g.byRun[uid]; {
	case a == nil:
	case a.done:
		delete(g.byRun, uid)
	default:
		a.given = true
		a.cancel()
	}
	g.mu.Unlock()
	return g.gates.Leave(ctx, uid, tenant, policyName)
}

// Wrote implements gates. The write was accepted, so nobody else wrote since the gate was asked.
func (g *gateAsks) Wrote(uid types.UID, from, to string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.byRun[uid]; a != nil && a.version == from {
		a.version = to
	}
}

// Start gives up all questions when ctx ends, and waits for their ends.
func (g *gateAsks) Start(ctx context.Context) error {
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
