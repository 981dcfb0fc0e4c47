// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	hooks "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/policy"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/template"
)

const (
	// reservation is how long a slot is kept for a run whose creation was allowed: see
	// "Reservations" in the package documentation.
	reservation = 10 * time.Second
	// AtOnce bounds the questions that are with the quota. A burst waits for its turn here, as long
	// as its requests may take, instead of for a connection to Redis, where the second that a call
	// has would run out.
	AtOnce = 16
	// ChecksAtOnce bounds the runs whose inputs are checked against their Workflow. One can take
	// some tens of milliseconds of a core, which the passes of this replica need, too.
	ChecksAtOnce = 4
	// inputsShare is the part of a request's time, one in so many, that it may take to look at
	// inputs: the operator looks at them, too, and the quota does not wait.
	inputsShare = 3
	// maxTries is how often the quota is asked that cannot be reached. The first call may have
	// happened: it is idempotent by UID.
	maxTries = 3
)

// reserver keeps slots for runs that do not exist yet. run is as in the admission request, with its
// UID; a ttl of 0 only asks. Errors of package admission say when to try again.
type reserver interface {
	Reserve(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective, ttl time.Duration) (store.Answer, error)
	// ReserveKey claims the run's idempotency key for as long; owner is another run that has
	// it, nil: none.
	ReserveKey(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, ttl time.Duration) (owner *quota.Owner, err error)
	// Release gives up what Reserve kept for a run that is not created after all.
	Release(ctx context.Context, uid types.UID, tenant, policyName string) error
}

// turns are shared by namespaces: a burst of one must not have others wait behind all of it.
type turns interface {
	Wait(ctx context.Context, namespace string) (done func(), err error)
}

// revisionSource has the revisions of Workflows; *templates.Templates does.
type revisionSource interface {
	Named(ctx context.Context, namespace string, r v1alpha1.WorkflowRevision) (*template.Content, error)
}

// handler answers admission requests. Safe for concurrent use.
type handler struct {
	cache   client.Reader
	live    client.Reader // for what the cache may not have yet
	quotas  reserver
	ttl     time.Duration  // of reservations
	rand    func() float64 // uniform in [0,1)
	turns   turns          // AtOnce of them: one for each question that is with the quota
	metrics *metrics

	revisions revisionSource
	checks    turns // ChecksAtOnce of them: one for each look at inputs
}

// scene is what there is to know about a run that is to be created.
type scene struct {
	run    *v1alpha1.WorkflowRun
	policy policy.Effective
	tenant lifecycle.Tenant
	taken  bool // its name, by another run
}

// Handle implements the handler of controller-runtime's webhooks.
func (h *handler) Handle(ctx context.Context, req hooks.Request) hooks.Response {
	a := h.decide(ctx, req)
	h.metrics.answered(a.outcome)
	return a.response(req.Name)
}

func (h *handler) decide(ctx context.Context, req hooks.Request) answer {
	if !isCreation(req) {
		return notAsked()
	}
	run := &v1alpha1.WorkflowRun{}
	if err := json.Unmarshal(req.Object.Raw, run); err != nil {
		return malformed(err)
	}
	run.Namespace = req.Namespace
	if field, bound := tooDeep(&run.Spec); field != "" {
		return invalid(field, bound)
	}
	if why := tooLarge(run); why != "" {
		return wrong([]string{why})
	}
	a := h.ofRun(ctx, req, run)
	if a.code == 0 {
		a.warnings = warningsOf(run)
	}
	return a
}

func (h *handler) ofRun(ctx context.Context, req hooks.Request, run *v1alpha1.WorkflowRun) answer {
	limit := budgetOf(ctx)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	if problems := h.wrongInputs(ctx, run, limit/inputsShare); len(problems) > 0 {
		return wrong(problems)
	}
	s, err := h.observe(ctx, run)
	switch {
	case err != nil:
		return unanswered(err)
	case !s.asks():
		return notAsked()
	}
	ttl := h.ttl
	if req.DryRun != nil && *req.DryRun {
		ttl = 0
	}
	return h.judge(ctx, s, within(s.policy, limit), ttl)
}

// judge asks for the run's idempotency key, if it has one, and for a slot, if its tenant
// has a limit.
func (h *handler) judge(ctx context.Context, s scene, p policy.Effective, ttl time.Duration) answer {
	if a, refused := h.keyOf(ctx, s, 0); refused {
		return a
	}
	if s.limited() {
		got, err := h.reserve(ctx, s, p, ttl)
		if err != nil {
			return unanswered(err)
		}
		if !got.Admitted {
			return atCapacity(s.tenant.Name, s.policy.Name, got, h.rand())
		}
	}
	a, refused := h.keyOf(ctx, s, ttl)
	if !refused {
		return admitted()
	}
	if s.limited() && ttl > 0 {
		// If this fails the reservation ends by itself.
		_ = h.quotas.Release(ctx, s.run.UID, s.tenant.Name, s.policy.Name)
	}
	return a
}

// keyOf asks for the idempotency key of a run: first whether another has it, so that a repetition
// is told so though there is no room, and once there is room, for ttl. So whoever is refused for
// the key is told of a run that has room, too.
func (h *handler) keyOf(ctx context.Context, s scene, ttl time.Duration) (a answer, refused bool) {
	if s.run.Spec.IdempotencyKey == "" {
		return answer{}, false
	}
	done, err := h.turn(ctx, s.run.Namespace)
	if err != nil {
		return unanswered(err), true
	}
	defer done()
	owner, err := h.quotas.ReserveKey(ctx, s.run, s.tenant.Name, ttl)
	switch {
	case err != nil:
		return unanswered(err), true
	case owner != nil:
		return duplicate(s.tenant.Name, *owner), true
	default:
		return answer{}, false
	}
}

// reserve asks the quota, in turn. Where strategy Lock may be asked for there are no turns: who
// waits for the lock of one tenant must not keep up the others.
func (h *handler) reserve(ctx context.Context, s scene, p policy.Effective, ttl time.Duration) (store.Answer, error) {
	if !p.Admission.Waits() {
		done, err := h.turn(ctx, s.run.Namespace)
		if err != nil {
			return store.Answer{}, err
		}
		defer done()
	}
	for try := 1; ; try++ {
		a, err := h.quotas.Reserve(ctx, s.run, s.tenant.Name, p, ttl)
		if !unreachable(err) || try == maxTries || ctx.Err() != nil {
			return a, err
		}
	}
}

// turn waits for one.
func (h *handler) turn(ctx context.Context, namespace string) (done func(), err error) {
	if done, err = h.turns.Wait(ctx, namespace); err != nil {
		return nil, fmt.Errorf("too many creations at once: %w", err)
	}
	return done, nil
}

// observe gathers what the answer depends on, and leaves out what is not needed because of what
// was found before.
func (h *handler) observe(ctx context.Context, run *v1alpha1.WorkflowRun) (scene, error) {
	s := scene{run: run}
	var policies v1alpha1.LockPolicyList
	if err := h.cache.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil { // they are only read, at each creation
		return s, fmt.Errorf("list lock policies: %w", err)
	}
	s.policy = policy.Resolve(run.Spec.WorkloadClass, policies.Items)
	if !s.refusable() {
		return s, nil
	}
	ns, err := h.namespace(ctx, run.Namespace)
	if err != nil {
		return s, fmt.Errorf("read namespace: %w", err)
	}
	s.tenant = facts.ResolveTenant(run.Spec.Tenant, ns.Name, ns.Labels, ns.Annotations)
	if !s.limited() && !s.keyed() {
		return s, nil
	}
	if s.taken, err = h.taken(ctx, client.ObjectKeyFromObject(run)); err != nil {
		return s, fmt.Errorf("look up the name: %w", err)
	}
	return s, nil
}

// namespace reads it live if it is not in the cache: one file often makes a namespace and a
// run in it.
func (h *handler) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := h.cache.Get(ctx, client.ObjectKey{Name: name}, ns)
	if apierrors.IsNotFound(err) {
		err = h.live.Get(ctx, client.ObjectKey{Name: name}, ns)
	}
	return ns, err
}

// taken says whether there is a run of that name. The cache alone may still have one that was just
// deleted, to be made anew.
func (h *handler) taken(ctx context.Context, key client.ObjectKey) (bool, error) {
	other := &v1alpha1.WorkflowRun{}
	err := h.cache.Get(ctx, key, other)
	if err == nil {
		err = h.live.Get(ctx, key, other)
	}
	return err == nil, client.IgnoreNotFound(err)
}
