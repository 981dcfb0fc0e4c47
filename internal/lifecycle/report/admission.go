// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

func (r *Report) admission() {
	switch {
	case status.Admitted(r.st):
		r.set(v1alpha1.ConditionAdmitted, metav1.ConditionTrue, v1alpha1.ReasonAdmitted,
			"Admitted at "+r.st.Admission.AdmittedAt.UTC().Format(time.RFC3339)+slotText(r.st))
	case r.found.End != nil:
		r.set(v1alpha1.ConditionAdmitted, metav1.ConditionUnknown, v1alpha1.ReasonAdmissionPending, "The run ended before it was admitted")
	case r.run.Spec.Suspend:
		r.set(v1alpha1.ConditionAdmitted, metav1.ConditionFalse, v1alpha1.ReasonSuspended, suspensionOf(r.in).is)
	default:
		r.waitingCondition()
	}
}

// waitingCondition says why the run is not admitted. The place in line is that of the moment at
// which the run began to wait for this reason: keeping it up to date would cost a write per run and
// change of the line.
func (r *Report) waitingCondition() {
	reason, message := r.whyNotAdmitted()
	was := status.Condition(r.st, v1alpha1.ConditionAdmitted)
	if reason == "" {
		if was != nil && was.Status == metav1.ConditionFalse && was.Reason != v1alpha1.ReasonSuspended {
			r.set(v1alpha1.ConditionAdmitted, was.Status, was.Reason, was.Message) // nobody was asked: what was said stands
			return
		}
		r.set(v1alpha1.ConditionAdmitted, metav1.ConditionUnknown, v1alpha1.ReasonAdmissionPending, "Waits for admission")
		return
	}
	if was != nil && was.Reason == reason {
		if head(was.Message) == head(message) {
			message = was.Message
		}
	} else {
		r.toldToWait(reason, message)
	}
	r.set(v1alpha1.ConditionAdmitted, metav1.ConditionFalse, reason, message)
}

// usual are the reasons to wait that are no trouble.
var usual = []string{
	v1alpha1.ReasonTenantAtCapacity, v1alpha1.ReasonTotalAtCapacity, v1alpha1.ReasonWaitingForLock, v1alpha1.ReasonWaitingForParent,
	v1alpha1.ReasonWaitingForPolicy,
}

// toldToWait is the event of a run that begins to wait for another reason.
func (r *Report) toldToWait(reason, message string) {
	switch {
	case r.in.Lock.State != facts.LockHeld: // the event of the lock tells
	case slices.Contains(usual, reason):
		r.detail(reason, message)
	default:
		r.warn(reason, message)
	}
}

// head is the part of a message about waiting that tells one reason from another; the rest is
// of one moment.
func head(message string) string {
	h, _, _ := strings.Cut(message, momentSeparator)
	return h
}

const momentSeparator = "; "

// whyNotAdmitted is the reason and message of Admitted=False; "" if nobody was asked, or who gave
// no answer is not what a run with a slot waits for.
func (r *Report) whyNotAdmitted() (reason, message string) {
	at := r.now.UTC().Format(time.RFC3339)
	switch {
	case r.in.Lock.State == facts.LockUnavailable:
		return v1alpha1.ReasonAdmissionUnavailable, "Nobody is admitted while Redis cannot be used" + momentSeparator + bounds.Cut(r.in.Lock.Message, bounds.MaxMessageChars/2)
	case r.in.Template.Missing != "" || r.in.Parent != nil:
		return r.whatIsMissing()
	case r.in.Claim.State == facts.ClaimUnavailable && !status.KeepsSlot(r.st):
		return v1alpha1.ReasonAdmissionUnavailable, "The idempotency key cannot be claimed" + momentSeparator + bounds.Cut(r.in.Claim.Cause, bounds.MaxMessageChars/2)
	}
	if reason, message = r.whyNotLocked(at); reason != "" || status.KeepsSlot(r.st) {
		return reason, message
	}
	return r.whyNoSlot(at)
}

// whyNoSlot is what the gate of the tenant says; "" if nobody asked it, or it is open.
func (r *Report) whyNoSlot(at string) (reason, message string) {
	g := &r.in.Gate
	switch g.State {
	case facts.GateUnasked, facts.GateAsked, facts.GateOpen:
	case facts.GateFull:
		return r.capacity(at)
	case facts.GateBusy:
		return v1alpha1.ReasonAdmissionBusy, "The admission lock of tenant " + r.st.Tenant + " is busy" + momentSeparator + bounds.Cut(g.Cause, bounds.MaxMessageChars/2)
	case facts.GateRebuilding:
		return v1alpha1.ReasonAdmissionRebuilding, "Redis lost what it knew of admitted runs; nobody is admitted until they are counted again"
	case facts.GateNoPolicy:
		return v1alpha1.ReasonWaitingForPolicy, "LockPolicy " + g.Cause + " is gone" + momentSeparator +
			"the run waits until " + g.Until.UTC().Format(time.RFC3339) + " whether it comes back"
	case facts.GateUnavailable:
		return v1alpha1.ReasonAdmissionUnavailable, "Nobody is admitted while Redis cannot be used" + momentSeparator + bounds.Cut(g.Cause, bounds.MaxMessageChars/2)
	}
	return "", ""
}

// capacity is why there is no room: the tenant has all that it may have, or all tenants together.
func (r *Report) capacity(at string) (reason, message string) {
	g, policy := &r.in.Gate, ""
	if r.in.Policy != nil {
		policy = r.in.Policy.Name
	}
	if g.Used < g.Limit && g.Total > 0 {
		text := fmt.Sprintf("All tenants have %d slots taken, of at most %d by LockPolicy %s%stenant %s has %d, place %d of %d in its line at %s",
			g.All, g.Total, policy, momentSeparator, r.st.Tenant, g.Used, g.Position, g.Waiting, at)
		return v1alpha1.ReasonTotalAtCapacity, bounds.Cut(text, bounds.MaxMessageChars)
	}
	return v1alpha1.ReasonTenantAtCapacity, bounds.Cut(r.capacityText(policy, at), bounds.MaxMessageChars)
}

func (r *Report) capacityText(policy, at string) string {
	g := &r.in.Gate
	if g.Limit == 0 {
		return fmt.Sprintf("LockPolicy %s admits no runs of tenant %s: its limit is 0", policy, r.st.Tenant)
	}
	text := fmt.Sprintf("Tenant %s has %d slots taken, of at most %d by LockPolicy %s%splace %d of %d in line at %s",
		r.st.Tenant, g.Used, g.Limit, policy, momentSeparator, g.Position, g.Waiting, at)
	if g.Ahead != "" {
		text += ", behind " + g.Ahead
	}
	return text
}

// slotText says under whose slot a child runs.
func slotText(st *v1alpha1.WorkflowRunStatus) string {
	if st.Parent == nil {
		return ""
	}
	return " under the slot of run " + st.Parent.Root + ", as a child of run " + st.Parent.Name
}

// whatIsMissing is why a run is not admitted that needs another object: its Workflow,
// or its parent.
func (r *Report) whatIsMissing() (reason, message string) {
	if r.in.Template.Missing != "" {
		return v1alpha1.ReasonWaitingForWorkflow, r.templateText()
	}
	return v1alpha1.ReasonWaitingForParent, r.parentText()
}

// templateText is why a run without its Workflow is not admitted.
func (r *Report) templateText() string {
	missing := bounds.Cut(r.in.Template.Missing, bounds.MaxMessageChars/2)
	if r.in.Template.Patient {
		return missing
	}
	return fmt.Sprintf("%s; the run ends if that stays so until %s", missing,
		r.run.CreationTimestamp.Add(facts.TemplatePatience).UTC().Format(time.RFC3339))
}

// parentText is why a run that claims a parent is not admitted.
func (r *Report) parentText() string {
	return fmt.Sprintf("Waits for run %s, its parent by its owner reference, to name it in its status", r.in.Parent.Claim.Name)
}
