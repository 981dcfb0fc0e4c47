package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// gates let runs in, tenant by tenant. See internal/gatekeeper.
type gates interface {
	// Admit asks for a slot for a run as it was read before. An *askedError says that the answer will wake the run.
	Admit(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective) (store.Answer, error)
	// Wrote is told that this process wrote a run, from one resourceVersion to another.
	Wrote(uid types.UID, from, to string)
	// Leave takes from a run whatever it has under a policy, and wakes who is next.
	Leave(ctx context.Context, uid types.UID, tenant, policyName string) error
	// Claim claims the run's idempotency key; an error says that it is not known whose it is.
	Claim(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string) (lifecycle.Claim, error)
	// Yield gives an idempotency key up if it is that of the run.
	Yield(ctx context.Context, uid types.UID, tenant, key string) error
}

// keptGates are the gates of a gatekeeper.
type keptGates struct{ *quota.Controller }

// Claim implements gates.
func (k keptGates) Claim(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string) (lifecycle.Claim, error) {
	owner, err := k.Controller.Claim(ctx, run, tenant)
	if err != nil || owner == nil {
		return lifecycle.Claim{State: lifecycle.ClaimOurs}, err
	}
	return lifecycle.Claim{State: lifecycle.ClaimTaken, Owner: owner.Name, Same: owner.Same}, nil
}

// Wrote implements gates.
func (keptGates) Wrote(types.UID, string, string) {}

// everyone lets every run in: there are no limits and no keys.
type everyone struct{}

// Admit implements gates.
func (everyone) Admit(context.Context, *v1alpha1.WorkflowRun, string, policy.Effective) (store.Answer, error) {
	return store.Answer{Admitted: true}, nil
}

// Wrote implements gates.
func (everyone) Wrote(types.UID, string, string) {}

// Leave implements gates.
func (everyone) Leave(context.Context, types.UID, string, string) error { return nil }

// Claim implements gates.
func (everyone) Claim(context.Context, *v1alpha1.WorkflowRun, string) (lifecycle.Claim, error) {
	return lifecycle.Claim{State: lifecycle.ClaimOurs}, nil
}

// Yield implements gates.
func (everyone) Yield(context.Context, types.UID, string, string) error { return nil }

// stay is where a run has a slot or a place in line.
type stay struct{ tenant, policy string }

// askClaim claims the run's idempotency key.
func (p *pass) askClaim(ctx context.Context) {
	claim, err := p.gates.Claim(ctx, p.run, p.tenantName())
	if err != nil {
		claim = lifecycle.Claim{State: lifecycle.ClaimUnavailable, Cause: err.Error()}
		p.comeAgain(ctx, err, "Idempotency key not claimed")
	}
	p.claim = claim
}

// askGate asks for a slot. It is asked once in a pass, after the run was read: a grant that is out of date when the write comes is
// refused by the run's resourceVersion.
func (p *pass) askGate(ctx context.Context) {
	at := stay{tenant: p.tenantName(), policy: p.policy.Name}
	if was := p.mem.stay; was != nil && *was != at {
		if err := p.leave(ctx, *was); err != nil { // the class has another policy now: the place under the old one is not needed
			p.gate = gateOf(err)
			p.comeAgain(ctx, err, "Place under another policy not given up")
			return
		}
	}
	p.mem.stay = &at // before the answer, which may get lost
	answer, err := p.gates.Admit(ctx, p.run, at.tenant, p.policy)
	if asked, ok := errors.AsType[*askedError](err); ok {
		p.gate, p.askedAt = lifecycle.Gate{State: lifecycle.GateAsked}, asked.since
		return
	}
	if err != nil {
		p.gate = gateOf(err)
		p.comeAgain(ctx, err, "Gate not asked")
		return
	}
	p.gate = lifecycle.Gate{
		State: lifecycle.GateFull, Used: answer.Used, Limit: answer.Limit, Position: answer.Position, Waiting: answer.Waiting, Ahead: answer.Ahead,
	}
	if answer.Admitted {
		p.gate.State = lifecycle.GateOpen
	}
}

// gateOf says what an error of the gate means.
func gateOf(err error) lifecycle.Gate {
	g := lifecycle.Gate{State: lifecycle.GateUnavailable, Cause: err.Error()}
	if _, ok := errors.AsType[*store.BusyError](err); ok {
		g.State = lifecycle.GateBusy
	}
	if _, ok := errors.AsType[*store.RebuildingError](err); ok {
		g.State = lifecycle.GateRebuilding
	}
	return g
}

// gateAnswers is when a pass stops to wait for the answer of the run's gate without a word: until then nothing is written, since the answer
// most likely comes with it. Zero: nobody was asked, or that time is over.
func (p *pass) gateAnswers() time.Time {
	if p.gate.State != lifecycle.GateAsked {
		return time.Time{}
	}
	if at := p.askedAt.Add(gatePatience); at.After(p.clock.Now()) {
		return at
	}
	return time.Time{}
}

func (p *pass) comeAgain(ctx context.Context, err error, what string) {
	wait := retryDelay(err)
	p.later = pacing.Earliest(p.later, p.clock.Now().Add(wait))
	log.FromContext(ctx).V(1).Info(what, "delay", wait, "cause", err.Error())
}

// tenantName is whom the run is accounted to: pinned in status, or what the namespace says.
func (p *pass) tenantName() string {
	if p.run.Status != nil && p.run.Status.Tenant != "" {
		return p.run.Status.Tenant
	}
	return p.tenant.Name
}

// leave gives up what the run has at a gate; who is next is woken. Until it worked it is remembered.
func (p *pass) leave(ctx context.Context, at stay) error {
	if err := p.gates.Leave(ctx, p.run.UID, at.tenant, at.policy); err != nil {
		return fmt.Errorf("leave the gate of %s: %w", at.tenant, err)
	}
	if p.mem.stay != nil && *p.mem.stay == at {
		p.mem.stay = nil
	}
	return nil
}

// leaveIfOver gives up the slot of a run that ended, and the place of one that was suspended before it was admitted. What a process
// leaves behind that dies before, the janitor of the gates finds.
func (p *pass) leaveIfOver(ctx context.Context) error {
	if p.mem.stay == nil || !over(p.run) {
		return nil
	}
	return p.leave(ctx, *p.mem.stay)
}

// over says whether a run needs nothing from its gate: it ended, or it was suspended before it was admitted.
func over(run *v1alpha1.WorkflowRun) bool {
	return lifecycle.Finished(run) || (run.Spec.Suspend && !lifecycle.Admitted(run))
}

// stayOf is where a run has a slot or a place as far as its status tells; nil: nowhere.
func stayOf(run *v1alpha1.WorkflowRun) *stay {
	st := run.Status
	switch {
	case st == nil || st.Tenant == "" || st.Parent != nil: // a child has the slot of its root, and never one of its own
		return nil
	case st.Admission != nil && st.Admission.AdmittedAt != nil:
		return &stay{tenant: st.Tenant, policy: st.Admission.Policy}
	case st.Policy != nil:
		return &stay{tenant: st.Tenant, policy: st.Policy.Name}
	default:
		return nil
	}
}

// leaveGone gives up what a deleted run had at its tenant's gate, and its idempotency key.
func (r *Reconciler) leaveGone(ctx context.Context, g remains) error {
	var failed error
	if g.stay != nil {
		failed = r.gates.Leave(ctx, g.uid, g.stay.tenant, g.stay.policy)
	}
	if g.key != "" {
		failed = errors.Join(failed, r.gates.Yield(ctx, g.uid, g.tenant, g.key))
	}
	if failed != nil {
		return fmt.Errorf("give up what deleted run %s had: %w", g.uid, failed)
	}
	return nil
}
