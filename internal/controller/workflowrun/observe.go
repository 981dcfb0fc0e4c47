// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/ahead"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/children"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/holds"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/outputs"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/trials"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/origin"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// pass is one pass over one run: what was observed, and what works on it. Each part does what its
// package says, and knows no other.
type pass struct {
	r      *Reconciler
	key    types.NamespacedName
	run    *v1alpha1.WorkflowRun // as last decided; replaced by each write
	mem    *memory
	spec   v1alpha1.WorkflowRunSpec // of the run as it is stored: run has the steps of its Workflow
	losses uint64                   // how often NATS had lost data when the pass began
	shrunk bool                     // the run is to be written again, in a form that needs less room
	asIs   bool                     // the status was written as it is: see putUnchanged
	while  context.Context          //nolint:containedctx // ends when this process may write the run no more
	later  time.Time                // when another pass is due, as far as this one has found out; zero: none is
	notYet time.Time                // until when a write has to wait that this pass would have made; zero: none has to

	observed
	found

	ahead     *ahead.Session
	batch     *results.Batch
	questions *results.Questions
	lock      *leases.Session
	jobs      *dispatch.Session
	outputs   *outputs.Session
	desk      *shares.Desk
}

// observed is what a pass read beside the run and its results.
type observed struct {
	policy    policy.Effective
	deleted   *slots.Deleted // the policy that governed the class until a moment ago; nil: none
	trial     trials.Part    // the run's part in the rollout of the policy
	tenant    lifecycle.Tenant
	permits   lifecycle.Permits
	template  lifecycle.Template
	unkept    error // why the run cannot have its revision for now; nil: it can
	origin    lifecycle.Origin
	signals   []lifecycle.Signal
	workers   map[string]lifecycle.Workers
	relatives children.Relatives
}

// found is what decisions of a pass have asked for.
type found struct {
	slot      slots.Answer         // what the tenant's quota said
	locks     holds.Asked          // what became of questions for locks across runs
	lockTurns int                  // how often
	claim     lifecycle.Claim      // what was found out about the idempotency key
	evaluated *lifecycle.Evaluated // what expressions gave
	lists     map[string][]any     // those of the last decision

	signalsAsOf time.Time // when what was sent for steps was asked for; zero: it was not
}

// read reads a run from the cache; nil when it does not exist.
func (r *Reconciler) read(ctx context.Context, key types.NamespacedName) (*v1alpha1.WorkflowRun, error) {
	run := &v1alpha1.WorkflowRun{}
	if err := r.Client.Get(ctx, key, run); err != nil {
		if apierrors.IsNotFound(err) {
			r.letGo(ctx, key, "")
			return nil, nil //nolint:nilnil // a run that is gone is no error
		}
		return nil, fmt.Errorf("read run: %w", err)
	}
	return run, nil
}

// observe gathers what a pass over a run needs, which the cache has like this.
func (r *Reconciler) observe(ctx context.Context, cached *v1alpha1.WorkflowRun) (*pass, error) {
	r.Index.See(cached)
	p := r.recall(ctx, cached)
	readAfterWait(ctx, p)
	if err := observeTemplate(ctx, p); err != nil {
		return nil, err
	}
	observeAhead(p)
	observeSpans(p)
	p.mem.resolve(p.run)
	r.Holds.See(&p.mem.holds, p.run)
	seedRoom(p)
	p.batch = r.Batches.Of(p.run, p.mem.atOnce, p.ahead.Lags())
	if p.batch.Empty() {
		p.mem.atOnce, p.mem.suspects = 0, 0 // whatever was refused is gone
		p.mem.outputs = nil                 // only results ask for checks
	}
	if err := p.observeOthers(ctx); err != nil {
		return nil, err
	}
	p.begin()
	return p, nil
}

// recall begins a pass over a run with what this process knows of it.
func (r *Reconciler) recall(ctx context.Context, cached *v1alpha1.WorkflowRun) *pass {
	key := client.ObjectKeyFromObject(cached)
	r.letGo(ctx, key, cached.UID)
	p := &pass{r: r, key: key, mem: r.memories.of(key, cached.UID), losses: r.NATS.Losses(), desk: r.Desks.For(key.Namespace)}
	p.run = p.mem.newest(cached)
	now := r.Clock.Now()
	p.mem.roomAgain(p.run, now)
	p.mem.meet(p.run, r.Driven.Since(p.run.UID), now, r.Rand)
	return p
}

// observeSpans has spans sent that a write ended of which this process knows only now: one of
// another process, or one whose answer was lost.
func observeSpans(p *pass) {
	switch {
	case p.mem.doubt != nil && p.mem.doubt.on != p.run.ResourceVersion:
		p.r.Spans.Again(p.ahead.Stored)
	case !p.mem.traced:
		p.r.Spans.Found(p.ahead.Stored)
	}
	p.mem.traced = true
}

// begin has each part begin its work on the run.
func (p *pass) begin() {
	p.evaluated = knownValid(p)
	p.batch.Under(p.policy)
	p.lock = p.r.Leases.Session(&p.mem.lock, p.key, p.run.UID, p.policy)
	beginAhead(p, p.tenantName())
	p.jobs = p.r.Dispatch.Session(&p.mem.jobs, p.losses)
	if m := p.mem; m.outputsLosses != p.losses {
		m.outputs, m.outputsLosses = nil, p.losses
	}
	p.outputs = outputs.New(p.r.Outputs, p.desk, p.mem.outputs)
	p.questions = p.r.Stream.Questions(&p.mem.asking, p.losses)
}

// letGo gives back the lease of the run that is remembered by a name if it is not the one with
// the given UID.
func (r *Reconciler) letGo(ctx context.Context, key types.NamespacedName, uid types.UID) {
	if m := r.memories.peek(key); m != nil && m.uid != uid {
		r.Leases.Cache.Drop(ctx, m.uid)
		r.Dispatch.Forget(string(m.uid))
		m.children.LeaveLine()
	}
}

// observeOthers reads the other objects that matter to a run that has not ended.
func (p *pass) observeOthers(ctx context.Context) error {
	if lifecycle.Finished(p.run) {
		return nil
	}
	if err := p.observePolicy(ctx); err != nil {
		return err
	}
	p.workers = p.observeWorkers()
	signals, err := p.r.Signals.observe(ctx, p.run)
	if err != nil {
		return err
	}
	p.signals = signals
	relatives, err := p.r.Children.Observe(ctx, &p.mem.children, p.run)
	if err != nil {
		return err
	}
	p.relatives, p.later = relatives, pacing.Earliest(p.later, relatives.RetryAt)
	if err := p.observeTenant(ctx); err != nil {
		return err
	}
	return observeOrigin(ctx, p)
}

func (p *pass) observePolicy(ctx context.Context) error {
	var list v1alpha1.LockPolicyList
	if err := p.r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // they are only read, in each pass
		return fmt.Errorf("list lock policies: %w", err)
	}
	p.deleted = p.r.policies.See(p.run.Spec.WorkloadClass, list.Items, p.r.Clock.Now())
	effective, trial := policy.Governs(p.run, list.Items)
	if begun := p.ahead.Trial; begun.Candidate != "" && p.run.Status.Policy.Name == effective.Name {
		trial = begun // what is kept of a run in neither arm looks as if it began before the candidate
	}
	p.policy, p.trial = effective, trials.Part{Policy: effective.Name, Trial: trial, Ballots: p.r.Ballots, Log: log.FromContext(ctx)}
	return nil
}

// observeTenant reads the namespace until the tenant is pinned in status, and for a run that
// follows a Workflow until that is pinned, too: what it may do is asked when its steps are known.
func (p *pass) observeTenant(ctx context.Context) error {
	if st := p.run.Status; st != nil && st.Tenant != "" && (p.spec.WorkflowRef == nil || st.Workflow != nil) {
		return nil
	}
	ns := &corev1.Namespace{}
	if err := p.r.Client.Get(ctx, types.NamespacedName{Name: p.key.Namespace}, ns); err != nil {
		return fmt.Errorf("read namespace: %w", err)
	}
	p.tenant = facts.ResolveTenant(p.run.Spec.Tenant, ns.Name, ns.Labels, ns.Annotations)
	p.permits = facts.ResolvePermits(ns.Annotations, p.r.RequireLists)
	return nil
}

// tenantName is whom the run is accounted to: pinned in status, or what the namespace says.
func (p *pass) tenantName() string {
	if p.run.Status != nil && p.run.Status.Tenant != "" {
		return p.run.Status.Tenant
	}
	return p.tenant.Name
}

// refresh reads the run live, so that the next pass does not decide on the same stale copy again.
func (p *pass) refresh(ctx context.Context) (reconcile.Result, error) {
	live := &v1alpha1.WorkflowRun{}
	switch err := p.r.Live.Get(ctx, p.key, live); {
	case apierrors.IsNotFound(err):
		return missing(ctx, p, err), nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read run live: %w", err)
	}
	p.mem.missing = pause{}
	if live.UID != p.run.UID { // deleted, and made anew: the watch tells of that one, and wakes the name
		p.lock.Drop(ctx)
		return reconcile.Result{}, nil
	}
	live.ManagedFields = nil // as in the cache
	p.mem.last = live
	return reconcile.Result{RequeueAfter: refreshDelay}, nil
}

// readAfterWait reads the run live, once after each wait for conflicts with others. The cache is
// behind by what the watch takes: a run that is edited that often would hardly ever be written by
// what the cache has. Where it cannot be read the pass goes on with what there is: its write says
// what is the matter.
func readAfterWait(ctx context.Context, p *pass) {
	c := &p.mem.conflicts
	if c.until.IsZero() || c.until.After(p.r.Clock.Now()) {
		return
	}
	c.until = time.Time{}
	live := &v1alpha1.WorkflowRun{}
	if err := p.r.Live.Get(ctx, p.key, live); err != nil || live.UID != p.run.UID {
		log.FromContext(ctx).V(1).Info("A run that others edit is not read live before it is written", "cause", fmt.Sprint(err))
		return
	}
	live.ManagedFields = nil // as in the cache
	p.mem.last, p.run = live, live
}

// observeOrigin reads the run that spec.startFrom names, until status has what is taken over from
// it. It is read live: the cache may have it without its end.
func observeOrigin(ctx context.Context, p *pass) error {
	if p.spec.StartFrom == nil || (!p.run.Unwritten() && len(p.run.Status.Steps) > 0) || p.template.Missing != "" {
		return nil
	}
	was, err := readOrigin(ctx, p)
	if err != nil {
		return fmt.Errorf("read run %s: %w", p.spec.StartFrom.Run, err)
	}
	plan := dag.Of(p.run)
	p.origin = origin.Of(was, asStored(p, p.run), &plan, p.template.Revision, p.tenantName())
	if p.origin.Problem != "" {
		return nil
	}
	busy, err := p.r.Children.AnyUnderWay(ctx, was)
	if err != nil {
		return fmt.Errorf("look below run %s: %w", p.spec.StartFrom.Run, err)
	}
	if busy { // what cleans up there would do so beside what is done again
		p.origin = origin.CleansUp(was)
	}
	return nil
}

// readOrigin reads the run that spec.startFrom names; nil: it does not exist. To ask for a name
// that no object can have is an error, each time.
func readOrigin(ctx context.Context, p *pass) (*v1alpha1.WorkflowRun, error) {
	if len(validation.NameIsDNSSubdomain(p.spec.StartFrom.Run, false)) > 0 {
		return nil, nil //nolint:nilnil // none has such a name
	}
	was := &v1alpha1.WorkflowRun{}
	err := p.r.Live.Get(ctx, client.ObjectKey{Namespace: p.key.Namespace, Name: p.spec.StartFrom.Run}, was)
	if apierrors.IsNotFound(err) {
		return nil, confirmGone(ctx, p, err)
	}
	return was, err
}

// confirmGone has the pass made again where the cache knows the run to start from, of which the API
// server says that it is not there: see missing. A run would have failed for good by that.
func confirmGone(ctx context.Context, p *pass, gone error) error {
	seen := &v1alpha1.WorkflowRun{}
	err := p.r.Client.Get(ctx, client.ObjectKey{Namespace: p.key.Namespace, Name: p.spec.StartFrom.Run}, seen)
	if err == nil && string(seen.UID) == p.spec.StartFrom.UID {
		return gone
	}
	return client.IgnoreNotFound(err)
}
