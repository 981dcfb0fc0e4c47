// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

const (
	// maxReplicas is the bound of status.rollout.replicas. A process that finds no place counts in
	// vain: where it is the one that decides, the candidate is not tried any longer.
	maxReplicas = 64
	// maxHistory is that of status.rollout.history.
	maxHistory = 10
)

// rollOut decides on the rollout of a policy, for its next status, and returns what to announce
// once that is written.
func (r *Reconciler) rollOut(p *v1alpha1.LockPolicy, next *v1alpha1.LockPolicyStatus, now time.Time) []rollout.Event {
	if p.Spec.Rollout == nil {
		events := untried(p, next)
		next.Rollout = nil
		meta.RemoveStatusCondition(&next.Conditions, v1alpha1.ConditionRolledOut)
		return events
	}
	first := next.Rollout == nil
	if !first && stateOf(next.Rollout).Active() {
		next.Rollout.Replicas = r.reported(p.Name, next.Rollout)
	}
	before := stateOf(next.Rollout)
	decided, events := r.decide(p, next, now)
	begun := begins(before, decided, events)
	if decided.Phase == rollout.Promoted && wantedOf(p, next).differs() { // runLock was promoted, and admission is tried next
		promoted := events
		decided, events = r.decide(p, next, now)
		events = append(promoted, events...)
	}
	if !first && policy.PlanOf(p).Canary && p.Status.ObservedGeneration != p.Generation {
		events = append(events, edited(p, decided, wantedOf(p, next).more, begun)...)
		if text := decided.Beyond(policy.PlanOf(p)); text != "" {
			events = append(events, rollout.Event{Warning: true, Reason: rollout.ReasonCanaryRuns, Message: text})
		}
	}
	meta.SetStatusCondition(&next.Conditions, rolledOut(p, decided, now))
	return events
}

// begins says that a decision is about another candidate, or about none any more.
func begins(before, decided rollout.State, events []rollout.Event) bool {
	return decided.Active() && decided.Candidate != before.Candidate ||
		slices.ContainsFunc(events, func(e rollout.Event) bool { return e.Reason == rollout.ReasonSuperseded })
}

// decide makes the next decision, and puts it into the status.
func (r *Reconciler) decide(p *v1alpha1.LockPolicy, next *v1alpha1.LockPolicyStatus, now time.Time) (rollout.State, []rollout.Event) {
	before, w := next.Rollout, wantedOf(p, next)
	state := stateOf(before)
	in := rollout.Input{Plan: policy.PlanOf(p), Spec: w.revision, Unit: w.unit, State: state, Command: command(p, before), Now: now}
	if before != nil {
		in.Tally, in.UnderWay = tallyOf(before.Replicas), r.underWayOf(p.Name, before)
		in.Full = len(before.Replicas) >= maxReplicas && !slices.ContainsFunc(before.Replicas, func(o v1alpha1.RolloutReplica) bool { return o.Name == r.Process })
	}
	decided, events := rollout.Decide(in)
	content := func(rev rollout.Revision) *v1alpha1.RolloutRevision { return w.stored(rev, before) }
	next.Rollout = storedState(decided, before, content)
	if !decided.Active() || decided.Candidate != state.Candidate {
		next.Rollout.Replicas = nil // they counted for another candidate, or there is nothing to decide
	}
	next.Rollout.History = remembered(next.Rollout.History, state, decided, events, func(rev rollout.Revision) v1alpha1.RolloutOutcome {
		return v1alpha1.RolloutOutcome{Name: rev.Name(), EndedAt: metav1.NewTime(now.Truncate(time.Second)), Changes: changesOf(content(state.Baseline), content(rev))}
	})
	return decided, events
}

// untried announces that what spec says is in force, also what was taken back: edits are not tried
// any more.
func untried(p *v1alpha1.LockPolicy, next *v1alpha1.LockPolicyStatus) []rollout.Event {
	s := stateOf(next.Rollout)
	if !s.Active() && s.Phase != rollout.RolledBack || !wantedOf(p, next).differs() {
		return nil
	}
	return []rollout.Event{{Warning: true, Reason: rollout.ReasonImmediate, Message: fmt.Sprintf(
		"Generation %d is in force for all runs at once, untried: rollout is not in spec any more. Candidate %s was %s",
		p.Generation, s.Candidate.Name(), s.Phase)}}
}

// edited announces what an edit did not begin: what is tried later, and what is not tried at all.
func edited(p *v1alpha1.LockPolicy, s rollout.State, later, begun bool) []rollout.Event {
	but := ""
	switch {
	case later:
		when := "once runLock is promoted"
		if s.Phase == rollout.RolledBack {
			when = fmt.Sprintf("only once runLock is promoted or edited: its candidate %s was taken back", s.Candidate.Name())
		}
		return []rollout.Event{{Reason: v1alpha1.ReasonTriedNext, Message: fmt.Sprintf(
			"Strategy and lock of admission in generation %d are tried %s; limits are in force", p.Generation, when)}}
	case begun:
		return nil
	case s.Active() || s.Phase == rollout.RolledBack:
		what := "runLock"
		if s.Unit == rollout.TenantMinute {
			what = "strategy and lock of admission"
		}
		but = fmt.Sprintf(", but for %s, whose candidate %s is %s", what, s.Candidate.Name(), s.Phase)
	}
	return []rollout.Event{{Reason: rollout.ReasonInForce, Message: fmt.Sprintf(
		"Generation %d is in force for all runs at once%s: only edits of runLock, and of strategy and lock of admission without a total, are tried on a part of them",
		p.Generation, but)}}
}

// reported is what all processes counted, with what this one has by now.
func (r *Reconciler) reported(policyName string, st *v1alpha1.LockPolicyRolloutStatus) []v1alpha1.RolloutReplica {
	t := r.Ballots.Of(ballot.Entry{Policy: policyName, Candidate: st.Candidate.Name})
	if t == (rollout.Tally{}) {
		return st.Replicas
	}
	mine := v1alpha1.RolloutReplica{Name: r.Process, Canary: storedCounts(t.Canary), Control: storedCounts(t.Control), RestRuns: t.Rest}
	replicas := slices.Clone(st.Replicas)
	if i := slices.IndexFunc(replicas, func(o v1alpha1.RolloutReplica) bool { return o.Name == r.Process }); i >= 0 {
		replicas[i] = mine
		return replicas
	}
	if len(replicas) < maxReplicas {
		replicas = append(replicas, mine)
	}
	return replicas
}

// command is what a user says about the candidate.
func command(p *v1alpha1.LockPolicy, st *v1alpha1.LockPolicyRolloutStatus) rollout.Command {
	verb, name, _ := strings.Cut(p.Annotations[v1alpha1.AnnotationRollout], " ")
	switch {
	case st == nil || st.Candidate == nil || name != st.Candidate.Name:
		return rollout.NoCommand
	case verb == "promote":
		return rollout.Promote
	case verb == "abort":
		return rollout.Abort
	default:
		return rollout.NoCommand
	}
}

// changesOf is what a revision asks for against another one.
func changesOf(before, after *v1alpha1.RolloutRevision) []string {
	if before == nil || after == nil {
		return nil
	}
	return policy.Changes(policy.ContentOf(before), policy.ContentOf(after))
}

// remembered adds what became of a candidate.
func remembered(history []v1alpha1.RolloutOutcome, before, after rollout.State, events []rollout.Event, outcome func(rollout.Revision) v1alpha1.RolloutOutcome) []v1alpha1.RolloutOutcome {
	history = slices.Clone(history)
	add := func(rev rollout.Revision, reason rollout.Reason) {
		one := outcome(rev)
		one.Reason = string(reason)
		history = append(history, one)
	}
	for _, e := range events {
		switch {
		case e.Reason == rollout.ReasonSuperseded:
			add(before.Candidate, e.Reason)
		case e.Reason == after.Reason && (after.Phase == rollout.Promoted || after.Phase == rollout.RolledBack):
			add(after.Candidate, e.Reason)
		}
	}
	return history[max(0, len(history)-maxHistory):]
}

// rolledOut is the condition.
func rolledOut(p *v1alpha1.LockPolicy, s rollout.State, now time.Time) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionRolledOut, Status: metav1.ConditionTrue, Reason: string(s.Reason), Message: cut(s.Message),
		ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	switch {
	case s.Active():
		c.Status = metav1.ConditionUnknown
	case s.Phase == rollout.RolledBack:
		c.Status = metav1.ConditionFalse
	}
	return c
}

// announce writes events about what is in status now.
func (r *Reconciler) announce(p *v1alpha1.LockPolicy, events []rollout.Event) {
	for _, e := range events {
		kind := "Normal"
		if e.Warning {
			kind = "Warning"
		}
		if r.Events != nil {
			r.Events.Eventf(p, nil, kind, string(e.Reason), "Rollout", "%s", e.Message)
		}
	}
}
