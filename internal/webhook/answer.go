// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	hooks "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

const (
	// capacityWaits is how many whole seconds, from 1, a refused client is told to wait, drawn
	// evenly: those that were refused together do not come back together.
	capacityWaits = 3
	// unknownWait is the wait after an error that does not say when to try again.
	unknownWait = time.Second
)

// answer is what a request is answered. code 0: allowed.
type answer struct {
	outcome string // label of the metric
	code    int32
	reason  metav1.StatusReason
	cause   string // reason to program against: v1alpha1.ReasonTenantAtCapacity and the like
	message string
	retry   time.Duration // 0: not worth it

	warnings []string // for who creates the run, which is let in
}

// notAsked lets a run in that the quota was not asked about.
func notAsked() answer { return answer{outcome: outcomeNotAsked} }

// admitted lets a run in that has a reservation.
func admitted() answer { return answer{outcome: outcomeAdmitted} }

// malformed refuses what is no WorkflowRun; the API server has checked the schema before.
func malformed(err error) answer {
	return answer{
		outcome: outcomeMalformed, code: http.StatusBadRequest, reason: metav1.StatusReasonBadRequest, cause: "Malformed",
		message: "the object cannot be read: " + err.Error(),
	}
}

// atCapacity refuses a run of a tenant without room. r is uniform in [0,1).
func atCapacity(tenant, policyName string, a store.Answer, r float64) answer {
	message := fmt.Sprintf("tenant %s is at its limit of %d under way at a time (LockPolicy %s): %d under way, %d being created, %d waiting",
		tenant, a.Limit, policyName, a.Used, a.Reserved, a.Waiting)
	if a.Limit == 0 {
		message = fmt.Sprintf("tenant %s is admitted none: LockPolicy %s sets its limit to 0 (%d under way)", tenant, policyName, a.Used)
	}
	cause := v1alpha1.ReasonTenantAtCapacity
	if a.Limit > 0 && a.Used+a.Reserved+a.Waiting < a.Limit && a.Total > 0 {
		cause = v1alpha1.ReasonTotalAtCapacity
		message = fmt.Sprintf("tenant %s has %d of at most %d under way, but all tenants have %d of at most %d, or the rest is guaranteed to others (LockPolicy %s)",
			tenant, a.Used, a.Limit, a.All, a.Total, policyName)
	}
	return answer{
		outcome: outcomeRejected, code: http.StatusTooManyRequests, reason: metav1.StatusReasonTooManyRequests,
		cause: cause, message: message,
		retry: time.Second + time.Duration(r*capacityWaits)*time.Second,
	}
}

// taken refuses a run whose idempotency key another one has. There is nothing to try again: the
// work is that of the other.
func duplicate(tenant string, owner quota.Owner) answer {
	a := answer{
		outcome: outcomeDuplicate, code: http.StatusConflict, reason: metav1.StatusReasonConflict, cause: v1alpha1.ReasonDuplicateRun,
		message: fmt.Sprintf("run %s of tenant %s has the same idempotency key and the same spec: see there", owner.Name, tenant),
	}
	if !owner.Same {
		a.cause, a.message = v1alpha1.ReasonIdempotencyConflict,
			fmt.Sprintf("run %s of tenant %s has the same idempotency key and another spec", owner.Name, tenant)
	}
	return a
}

// planned is an error that says why nothing was decided, and when to try again. Those of
// package admission do.
type planned interface {
	error
	Reason() string
	RetryDelay() time.Duration
}

// unreachable says that the quota could not be asked. A process that was paused for longer than a
// call may take gets the same error, so it is worth another try.
func unreachable(err error) bool {
	p, ok := errors.AsType[planned](err)
	return ok && p.Reason() == v1alpha1.ReasonAdmissionUnavailable
}

// unanswered refuses a run about which nothing could be decided.
func unanswered(err error) answer {
	a := answer{
		outcome: outcomeUnavailable, code: http.StatusServiceUnavailable, reason: metav1.StatusReasonServiceUnavailable,
		cause: v1alpha1.ReasonAdmissionUnavailable, message: err.Error(), retry: unknownWait,
	}
	if p, ok := errors.AsType[planned](err); ok {
		a.cause, a.retry = p.Reason(), p.RetryDelay()
	}
	switch a.cause {
	case v1alpha1.ReasonAdmissionBusy:
		a.outcome = outcomeBusy
	case v1alpha1.ReasonAdmissionRebuilding:
		a.outcome = outcomeRebuilding
	}
	return a
}

// response is the answer in the words of the API server. name is that of the run.
func (a answer) response(name string) hooks.Response {
	if a.code == 0 {
		return hooks.Allowed("").WithWarnings(a.warnings...)
	}
	return hooks.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: a.code, Reason: a.reason, Message: a.cause + ": " + a.message,
		Details: &metav1.StatusDetails{
			Name: name, Group: v1alpha1.GroupVersion.Group, Kind: "workflowruns",
			Causes:            []metav1.StatusCause{{Type: metav1.CauseType(a.cause), Message: a.message}},
			RetryAfterSeconds: int32(math.Ceil(a.retry.Seconds())),
		},
	}}}
}
