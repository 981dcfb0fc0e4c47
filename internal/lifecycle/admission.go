package lifecycle

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// GateState is what the tenant's gate says of a run that is not admitted.
type GateState int

// States of the gate. The zero value admits nobody.
const (
	GateUnasked     GateState = iota // it was not asked; Needs.Admission says that it has to be
	GateAsked                        // it was asked, and its answer will wake the run: what is said of it stands
	GateOpen                         // the run may be admitted by this decision: it has a slot, or there is no limit
	GateFull                         // the tenant has as many runs under way as it may
	GateBusy                         // strategy Lock: the lock of the tenant was not to be had
	GateUnavailable                  // it could not be asked
	GateRebuilding                   // it lost its data, and admits nobody until the runs are counted again
)

// Gate is what the tenant's gate answered, after the run of this decision was read.
type Gate struct {
	State    GateState
	Used     int    // runs of the tenant that are under way under the policy
	Limit    int    // how many may be
	Position int    // of the run in line, from 1
	Waiting  int    // runs in line
	Ahead    string // namespace/name of the run just ahead; "" for the first
	Cause    string // GateBusy, GateUnavailable, GateRebuilding: for people
}

// ClaimState is what became of a run's claim of its idempotency key.
type ClaimState int

// States of a claim. The zero value is no claim.
const (
	ClaimUnasked ClaimState = iota
	ClaimOurs               // the run is the first with its key
	ClaimTaken              // another run has it
	ClaimUnavailable
)

// Claim is what was found out about the idempotency key of a run.
type Claim struct {
	State ClaimState
	Owner string // ClaimTaken: namespace/name of the run that has it
	Same  bool   // ClaimTaken: that run has the same spec
	Cause string // ClaimUnavailable: for people
}

// admit lets the run in if its key and its tenant's gate let it. While the run is suspended its queue clock does not run.
func (d *decider) admit() {
	if status.Admitted(&d.st) {
		return
	}
	if d.run.Spec.Suspend {
		d.st.Admission = nil
		return
	}
	d.queue()
	if d.in.Parent != nil {
		d.admitChild()
		return
	}
	if !d.claimed() {
		return
	}
	switch d.in.Gate.State {
	case GateOpen:
		d.st.Admission.AdmittedAt = bounds.Second(d.now)
		if d.in.Policy != nil {
			d.st.Admission.Policy = d.in.Policy.Name
		}
		d.event(EventNormal, v1alpha1.ReasonAdmitted, "Admitted for tenant "+d.st.Tenant)
	case GateUnasked:
		d.out.Needs.Admission = true
	case GateAsked, GateFull, GateBusy, GateUnavailable, GateRebuilding:
	}
}

// queue starts the queue clock.
func (d *decider) queue() {
	if d.st.Admission == nil {
		d.st.Admission = &v1alpha1.AdmissionStatus{}
	}
	if d.st.Admission.QueuedAt == nil {
		d.st.Admission.QueuedAt = bounds.Second(d.now)
	}
}

// claimed says whether the run may go on by its idempotency key; if another run has it, the run ends.
func (d *decider) claimed() bool {
	key := d.run.Spec.IdempotencyKey
	if key == "" {
		return true
	}
	switch d.in.Claim.State {
	case ClaimOurs:
		return true
	case ClaimUnasked:
		d.out.Needs.Claim = true
	case ClaimTaken:
		if d.in.Claim.Same {
			d.end(v1alpha1.RunFailed, v1alpha1.ReasonDuplicateRun, fmt.Sprintf(
				"run %s of tenant %s has the same idempotency key and the same spec: see there", d.in.Claim.Owner, d.st.Tenant))
		} else {
			d.end(v1alpha1.RunFailed, v1alpha1.ReasonIdempotencyConflict, fmt.Sprintf(
				"run %s of tenant %s has the same idempotency key and another spec", d.in.Claim.Owner, d.st.Tenant))
		}
	case ClaimUnavailable:
	}
	return false
}

// queued says whether the run waits to be admitted.
func (d *decider) queued() bool { return !status.Admitted(&d.st) && !d.run.Spec.Suspend }

func (d *decider) admittedCondition() {
	switch {
	case status.Admitted(&d.st):
		d.set(v1alpha1.ConditionAdmitted, metav1.ConditionTrue, v1alpha1.ReasonAdmitted,
			"Admitted at "+d.st.Admission.AdmittedAt.UTC().Format(time.RFC3339)+d.slotText())
	case d.over:
		d.set(v1alpha1.ConditionAdmitted, metav1.ConditionUnknown, v1alpha1.ReasonAdmissionPending, "The run ended before it was admitted")
	case d.run.Spec.Suspend:
		d.set(v1alpha1.ConditionAdmitted, metav1.ConditionFalse, v1alpha1.ReasonSuspended, d.suspension().is)
	default:
		d.waitingCondition()
	}
}

// waitingCondition says why the run is not admitted. The place in line is that of the moment at which the run began to wait for
// this reason: keeping it up to date would cost a write per run and change of the line.
func (d *decider) waitingCondition() {
	reason, message := d.whyNotAdmitted()
	was := status.Condition(&d.st, v1alpha1.ConditionAdmitted)
	if reason == "" {
		if was != nil && was.Status == metav1.ConditionFalse && was.Reason != v1alpha1.ReasonSuspended {
			d.set(v1alpha1.ConditionAdmitted, was.Status, was.Reason, was.Message) // nobody was asked: what was said stands
			return
		}
		d.set(v1alpha1.ConditionAdmitted, metav1.ConditionUnknown, v1alpha1.ReasonAdmissionPending, "Waits for admission")
		return
	}
	if was != nil && was.Reason == reason {
		if head(was.Message) == head(message) {
			message = was.Message
		}
	} else {
		d.toldToWait(reason, message)
	}
	d.set(v1alpha1.ConditionAdmitted, metav1.ConditionFalse, reason, message)
}

// toldToWait is the event of a run that begins to wait for another reason.
func (d *decider) toldToWait(reason, message string) {
	kind := EventWarning
	if reason == v1alpha1.ReasonTenantAtCapacity || reason == v1alpha1.ReasonWaitingForParent {
		kind = EventNormal
	}
	if d.in.Lock.State == LockHeld { // else the event of the lock tells
		d.event(kind, reason, message)
	}
}

// head is the part of a message about waiting that tells one reason from another; the rest is of one moment.
func head(message string) string {
	h, _, _ := strings.Cut(message, momentSeparator)
	return h
}

const momentSeparator = "; "

// whyNotAdmitted is the reason and message of Admitted=False; "" if nobody was asked.
func (d *decider) whyNotAdmitted() (reason, message string) {
	g := &d.in.Gate
	at := d.now.UTC().Format(time.RFC3339)
	switch {
	case d.in.Lock.State == LockUnavailable:
		return v1alpha1.ReasonAdmissionUnavailable, "Nobody is admitted while Redis cannot be used" + momentSeparator + bounds.Cut(d.in.Lock.Message, bounds.MaxMessageChars/2)
	case d.in.Parent != nil:
		return v1alpha1.ReasonWaitingForParent, d.parentText()
	case d.in.Claim.State == ClaimUnavailable:
		return v1alpha1.ReasonAdmissionUnavailable, "The idempotency key cannot be claimed" + momentSeparator + bounds.Cut(d.in.Claim.Cause, bounds.MaxMessageChars/2)
	}
	switch g.State {
	case GateUnasked, GateAsked, GateOpen:
	case GateFull:
		return v1alpha1.ReasonTenantAtCapacity, bounds.Cut(d.capacityText(at), bounds.MaxMessageChars)
	case GateBusy:
		return v1alpha1.ReasonAdmissionBusy, "The admission lock of tenant " + d.st.Tenant + " is busy" + momentSeparator + bounds.Cut(g.Cause, bounds.MaxMessageChars/2)
	case GateRebuilding:
		return v1alpha1.ReasonAdmissionRebuilding, "Redis lost what it knew of admitted runs; nobody is admitted until they are counted again"
	case GateUnavailable:
		return v1alpha1.ReasonAdmissionUnavailable, "Nobody is admitted while Redis cannot be used" + momentSeparator + bounds.Cut(g.Cause, bounds.MaxMessageChars/2)
	}
	return "", ""
}

func (d *decider) capacityText(at string) string {
	g, policy := &d.in.Gate, ""
	if d.in.Policy != nil {
		policy = d.in.Policy.Name
	}
	if g.Limit == 0 {
		return fmt.Sprintf("LockPolicy %s admits no runs of tenant %s: its limit is 0", policy, d.st.Tenant)
	}
	text := fmt.Sprintf("Tenant %s has %d runs under way, of at most %d by LockPolicy %s%splace %d of %d in line at %s",
		d.st.Tenant, g.Used, g.Limit, policy, momentSeparator, g.Position, g.Waiting, at)
	if g.Ahead != "" {
		text += ", behind " + g.Ahead
	}
	return text
}
