// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	hooks "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

const (
	// longest is how long a request may take if the API server does not say how long it waits.
	longest = 9 * time.Second
	// shortest is how long it may take in any case.
	shortest = 500 * time.Millisecond
	// ahead is how much earlier than the API server gives up it is answered, so that the client
	// is told why.
	ahead = time.Second
	// besidesLock is what a decision by strategy Lock may take beside the wait for the lock; see
	// admission, "Failure handling".
	besidesLock = 3 * time.Second
)

// isCreation says whether a request is what the webhook is for, whatever else it was
// registered for.
func isCreation(req hooks.Request) bool {
	return req.Operation == admissionv1.Create && req.Resource.Group == v1alpha1.GroupVersion.Group &&
		req.Resource.Resource == "workflowruns" && req.SubResource == ""
}

// refusable says whether a run of this policy may be refused at its creation at all. One that
// claims to be a child run asks for no slot: the controller lets it in only if its parent, which
// has one, names it.
func (s scene) refusable() bool {
	return s.run.ClaimsParent() == nil && s.policy.Name != "" && s.policy.Admission.Reject && !s.run.Spec.Suspend && s.run.Spec.Shutdown == ""
}

// limited says whether the tenant's slots are to be asked for: it is one that the namespace may
// name, and it has a limit.
func (s scene) limited() bool {
	return s.tenant.Allowed && s.policy.Admission.Limit(s.tenant.Name) != policy.NoLimit
}

// keyed says whether the run's idempotency key is to be claimed.
func (s scene) keyed() bool { return s.tenant.Allowed && s.run.Spec.IdempotencyKey != "" }

// asks says whether the quota has to be asked; else the run is allowed.
func (s scene) asks() bool { return s.refusable() && (s.limited() || s.keyed()) && !s.taken }

// within is the policy with a wait for the lock of strategy Lock that leaves time to answer.
func within(p policy.Effective, limit time.Duration) policy.Effective {
	p.Admission.Lock = shortened(p.Admission.Lock, limit)
	if p.Admission.Trial != nil {
		trial := *p.Admission.Trial
		trial.Lock = shortened(trial.Lock, limit)
		p.Admission.Trial = &trial
	}
	return p
}

func shortened(l *policy.AdmissionLock, limit time.Duration) *policy.AdmissionLock {
	if l == nil {
		return nil
	}
	lock := *l
	lock.MaxWait = min(lock.MaxWait, max(0, limit-besidesLock))
	return &lock
}

// budgetKey is where a context has how long its request may take.
type budgetKey struct{}

// withBudget takes how long the API server waits from the parameter that it sends
// with each request.
func withBudget(ctx context.Context, r *http.Request) context.Context {
	waits, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, budgetKey{}, min(longest, max(shortest, waits-ahead)))
}

func budgetOf(ctx context.Context) time.Duration {
	if limit, ok := ctx.Value(budgetKey{}).(time.Duration); ok {
		return limit
	}
	return longest
}
