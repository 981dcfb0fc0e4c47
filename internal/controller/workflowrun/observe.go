package workflowrun

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/children"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// pass is one pass over one run: what was observed, and what is done about it.
type pass struct {
	*Reconciler
	key     types.NamespacedName
	run     *v1alpha1.WorkflowRun // as last persisted; replaced by each write
	mem     *memory
	letters []*results.Pending        // results to apply in this pass
	unripe  []*results.Pending        // results left for a later pass, unless the run changes in this one
	doomed  []*results.Pending        // results to put aside once status says so
	ending  bool                      // the last write that was tried ends the run
	carried []*results.Pending        // those of them that are in the write under the lease
	later   time.Time                 // when results left for a later pass are ripe; zero: none
	kept    *lockmgr.Lease            // kept by the run, and not worked under yet; nil: none
	lease   *lockmgr.Lease            // worked under; nil: without the lock
	epochs  map[protocol.JobID]uint64 // of attempts, as far as they were begun in this pass
	found   *found                    // in the object store
	unused  []string                  // names of outputs to which the last write does not refer any more
	losses  uint64                    // how often NATS had lost data when the pass began: what it publishes is known to be there until the next loss
	desk    *shares.Desk
	// evaluated is what expressions gave in the decisions of this pass so far.
	evaluated *lifecycle.Evaluated
	lacking   error // why outputs in the object store that are needed could not be stored or read; nil: they could
	policy    policy.Effective
	tenant    lifecycle.Tenant
	permits   lifecycle.Permits
	decided   []lifecycle.Approval // decisions about approval steps
	workers   map[string]lifecycle.Workers
	from      uint64          // from where on RESULTS is asked next; 0: it was not asked in this pass
	more      bool            // there was more than is read at a time
	slot      slots.Answer    // what the tenant's quota said in this pass
	claim     lifecycle.Claim // what was found out about the idempotency key in this pass

	told          []lifecycle.Event // of jobs that NATS took in this pass
	answeredUntil time.Time         // what was stored until then was found in this pass, or had come; zero: that is not known

	relatives children.Relatives
}

// observe gathers what a pass needs; nil when the run does not exist.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*pass, error) {
	cached := &v1alpha1.WorkflowRun{}
	if err := r.client.Get(ctx, key, cached); err != nil {
		if apierrors.IsNotFound(err) {
			r.letGo(ctx, r.memories.peek(key), "")
			return nil, nil //nolint:nilnil // a run that is gone is neither a pass nor an error
		}
		return nil, fmt.Errorf("read run: %w", err)
	}
	r.index.See(cached)
	r.letGo(ctx, r.memories.peek(key), cached.UID)
	p := &pass{Reconciler: r, key: key, mem: r.memories.of(key, cached.UID), losses: r.nats.Losses(), desk: r.desks.For(key.Namespace)}
	p.run = p.mem.newest(cached)
	p.mem.resolve(p.run)
	p.mem.roomAgain(p.run)
	var waiting []*results.Pending
	waiting, p.doomed = apart(r.inbox.Waiting(cached.UID))
	p.letters, p.unripe, p.later = ripe(waiting, r.clock.Now(), p.run)
	switch n := p.mem.atOnce; {
	case len(p.letters) == 0:
		p.mem.atOnce = 0 // whatever was refused is gone
	case n > 0 && n < len(p.letters):
		p.letters, p.later = p.letters[:n], r.clock.Now()
	}
	if len(p.letters) == 0 {
		p.mem.outputs = nil // only results ask for checks
	}
	p.found = newFound(p.mem.outputs)
	if lifecycle.Finished(p.run) {
		return p, nil
	}
	if err := p.observePolicy(ctx); err != nil {
		return nil, err
	}
	p.observeWorkers()
	return p, p.observeOthers(ctx)
}

// observeOthers reads the other objects that matter to the run.
func (p *pass) observeOthers(ctx context.Context) error {
	if err := p.observeApprovals(ctx); err != nil {
		return err
	}
	relatives, err := p.children.Observe(ctx, &p.mem.children, p.run)
	if err != nil {
		return err //nolint:wrapcheck // it says what it is about
	}
	p.relatives, p.later = relatives, pacing.Earliest(p.later, relatives.RetryAt)
	return p.observeTenant(ctx)
}

// observeApprovals reads the decisions about the run. One that the cache does not know yet wakes the run when it comes.
func (p *pass) observeApprovals(ctx context.Context) error {
	if !facts.AsksForApproval(p.run) {
		return nil
	}
	var list v1alpha1.StepApprovalList
	if err := p.client.List(ctx, &list, client.InNamespace(p.key.Namespace), client.MatchingFields{approvalRun: p.key.Name}); err != nil {
		return fmt.Errorf("list step approvals: %w", err)
	}
	p.decided = facts.Approvals(p.run, list.Items)
	return nil
}

// newest picks the cache's copy or this process's own, and drops the own one when the cache has caught up.
func (m *memory) newest(cached *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	if m.last == nil {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, m.last.ResourceVersion)
	if err == nil && order < 0 {
		return m.last
	}
	m.last = nil
	return cached
}

func (p *pass) observePolicy(ctx context.Context) error {
	var list v1alpha1.LockPolicyList
	if err := p.client.List(ctx, &list); err != nil {
		return fmt.Errorf("list lock policies: %w", err)
	}
	p.policy = policy.Resolve(p.run.Spec.WorkloadClass, list.Items)
	return nil
}

// observeTenant reads the namespace until the tenant is pinned in status.
func (p *pass) observeTenant(ctx context.Context) error {
	if p.run.Status != nil && p.run.Status.Tenant != "" {
		return nil
	}
	ns := &corev1.Namespace{}
	if err := p.client.Get(ctx, types.NamespacedName{Name: p.key.Namespace}, ns); err != nil {
		return fmt.Errorf("read namespace: %w", err)
	}
	p.tenant = facts.ResolveTenant(p.run.Spec.Tenant, ns.Name, ns.Labels, ns.Annotations)
	p.permits = facts.ResolvePermits(ns.Annotations, p.requireLists)
	return nil
}

// ripe leaves results for a later pass when they can wait for company.
func ripe(waiting []*results.Pending, now time.Time, run *v1alpha1.WorkflowRun) (letters, unripe []*results.Pending, later time.Time) {
	if at := pacing.BatchReadyAt(paced(waiting), run); at.After(now) {
		return nil, waiting, at
	}
	return waiting, nil, time.Time{}
}

// paced is what pacing has to do with results.
func paced(letters []*results.Pending) []pacing.Waiting {
	list := make([]pacing.Waiting, 0, len(letters))
	for _, l := range letters {
		list = append(list, pacing.Waiting{
			Since: l.Since, Item: l.Fact.ID.Item != protocol.NoItem, Started: l.Fact.Result.Status == protocol.StatusStarted,
		})
	}
	return list
}

// input is what the core decides on, for a given state of the lock.
func (p *pass) input(lock lifecycle.Lock) lifecycle.Input {
	in := lifecycle.Input{
		Run: p.run, Now: p.clock.Now(), Lock: lock, Tenant: p.tenant,
		Permits: p.permits, Gate: p.slot.Gate, Claim: p.claim, Approvals: p.decided, Workers: p.workers, NATSDown: p.nats.Outage(), Parent: p.relatives.Parent, Children: p.relatives.Children,
		Answers: p.answers(), Lists: p.lists.of(p.run.UID), Payloads: p.found.payloads,
		Evaluated: p.evaluated, Quick: !p.desk.Has(),
		DeadLetters: deadLetters(p.doomed), Form: p.form(), MaxRetryAfter: p.policy.Delivery.MaxDelay,
	}
	for _, l := range p.letters {
		in.Results = append(in.Results, l.Fact)
	}
	if p.policy.Name != "" {
		in.Policy = &v1alpha1.PolicyReference{Name: p.policy.Name, Generation: p.policy.Generation}
	}
	return in
}

// fenceOf returns the stored fence and the lease that wrote it; 0 and "" before the first write.
func fenceOf(run *v1alpha1.WorkflowRun) (int64, string) {
	if run.Status == nil || run.Status.Fence == nil {
		return 0, ""
	}
	if run.Status.Lock == nil {
		return *run.Status.Fence, ""
	}
	return *run.Status.Fence, run.Status.Lock.LeaseID
}

// tenantName is whom the run is accounted to: pinned in status, or what the namespace says.
func (p *pass) tenantName() string {
	if p.run.Status != nil && p.run.Status.Tenant != "" {
		return p.run.Status.Tenant
	}
	return p.tenant.Name
}
