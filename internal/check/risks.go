// SPDX-License-Identifier: Apache-2.0

package check

import "github.com/syncopate-dev/syncopate/internal/policy"

// judgeRisks looks at what is well alone and not together.
func judgeRisks(f Facts) []Finding {
	if f.Policies.Why != "" {
		return unreadAll(f.Policies.Unread, CoalescedOnOne, RejectUnguarded)
	}
	var coalesced, rejects, passed []string
	for _, p := range together(f) {
		e := policy.Of(&p)
		if e.Checkpoint.Coalesced {
			coalesced = append(coalesced, p.Name)
		}
		if e.Admission.Reject {
			rejects = append(rejects, p.Name)
			if f.Webhook.passes(&p) {
				passed = append(passed, p.Name)
			}
		}
	}
	return append(f.coalesced(coalesced), f.rejects(rejects, passed)...)
}

// coalesced: what status does not have yet is in NATS only.
func (f Facts) coalesced(names []string) []Finding {
	switch one := f.NATS.single(); {
	case len(names) == 0:
		return CoalescedOnOne.ok("no LockPolicy has coalesced checkpoints")
	case f.NATS.Why != "":
		return CoalescedOnOne.unread(f.NATS.Unread)
	case one != "":
		return []Finding{CoalescedOnOne.find(Warning, "three replicas of the streams, or checkpoint mode EveryStep",
			"LockPolicies with coalesced checkpoints (%s) on one NATS server: %s, and the steps that only NATS has are done again", some(names), one)}
	}
	return CoalescedOnOne.ok("LockPolicies with coalesced checkpoints (%s) have streams with replicas", some(names))
}

// rejects: the webhook alone refuses. passed are the policies with classes for which it
// is not asked.
func (f Facts) rejects(names, passed []string) []Finding {
	switch {
	case len(names) == 0:
		return RejectUnguarded.ok("no LockPolicy has onLimit: Reject")
	case f.Webhook.Why != "":
		return RejectUnguarded.unread(f.Webhook.Unread)
	case f.Webhook.Missing:
		return []Finding{RejectUnguarded.find(Failed, "install the webhook (docs/admission.md), or say onLimit: Queue",
			"LockPolicies say onLimit: Reject (%s), and without the webhook nothing is refused: runs wait", some(names))}
	case len(passed) > 0:
		return []Finding{RejectUnguarded.find(Failed, "add their classes to webhook.classes of the chart, or to the condition class-rejects of the webhook (docs/admission.md); for a policy with \"*\" leave the list out, so that it is asked for all classes",
			"LockPolicies say onLimit: Reject (%s), and the webhook is asked for the classes %s only: runs of their other classes wait", some(passed), some(f.Webhook.Classes))}
	case f.Webhook.Asked.Why != "":
		return RejectUnguarded.unread(f.Webhook.Asked)
	case f.Webhook.Ignores:
		return []Finding{RejectUnguarded.find(Warning, "failurePolicy Fail, if runs must never wait (docs/admission.md says what that costs)",
			"LockPolicies say onLimit: Reject (%s), and failurePolicy is Ignore: while the webhook is not reached, runs wait", some(names))}
	}
	return RejectUnguarded.ok("the webhook refuses for LockPolicies with onLimit: Reject (%s)", some(names))
}
